/* Which servers are meant, and whether with TLS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "sink/nats_conf.h"

static char none[] = "", where[] = "f.yaml:3:9";

static struct sink_config sink_with(char *servers)
{
	return (struct sink_config){
		.where = where,
		.nats = { .servers = servers, .stream = none, .tls_ca_file = none, .tls_cert_file = none, .tls_key_file = none,
			  .user = none, .password_file = none, .token_file = none, .credentials_file = none },
	};
}

static void lists_of_servers(void **state _unused_)
{
	static const struct {
		const char *servers, *url, *host;       /* the last one */
		size_t count;
		bool tls;
	} cases[] = {
		{ "nats://127.0.0.1:4222", "nats://127.0.0.1:4222", "127.0.0.1", 1, false },
		{ "localhost", "nats://localhost", "localhost", 1, false },
		{ "[::1]:4222", "nats://[::1]:4222", "::1", 1, false },
		{ "tls://localhost:4222", "nats://localhost:4222", "localhost", 1, true },
		{ "nats://localhost, nats://b.example.com:4333 ,", "nats://b.example.com:4333", "b.example.com", 2, true },
		{ "127.0.0.1.example.com:4222", "nats://127.0.0.1.example.com:4222", "127.0.0.1.example.com", 1, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sink_config sink = sink_with((char *)(uintptr_t)cases[i].servers);
		struct nats_servers s;
		struct error err;

		if (!nats_servers_read(&sink, &s, &err))
			fail_msg("%s: %s", cases[i].servers, err.message);
		assert_int_equal(s.count, cases[i].count);
		assert_string_equal(s.items[s.count - 1].url, cases[i].url);
		assert_string_equal(s.items[s.count - 1].host, cases[i].host);
		assert_int_equal(s.tls, cases[i].tls);
		nats_servers_release(&s);
	}
}

static void what_cannot_be_a_server_is_refused(void **state _unused_)
{
	static const char *const lists[] = { "", " , ", "http://localhost:4222", "nats://", ":4222", "[::1", "nats://relay:s3cret@localhost" };

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		struct sink_config sink = sink_with((char *)(uintptr_t)lists[i]);
		struct nats_servers s;
		struct error err = { 0 };

		if (nats_servers_read(&sink, &s, &err))
			fail_msg("'%s' was taken for a server", lists[i]);
		assert_int_equal(err.kind, ERROR_CONFIG);
		assert_null(strstr(err.message, "s3cret"));
	}
}

static void tls_is_a_setting_too(void **state _unused_)
{
	struct sink_config sink = sink_with((char[]){ "nats.example.com" });
	struct nats_servers s;
	struct error err;

	sink.nats.tls = SINK_TLS_OFF;
	assert_true(nats_servers_read(&sink, &s, &err));
	assert_false(s.tls);
	nats_servers_release(&s);
	sink = sink_with((char[]){ "localhost" });
	sink.nats.tls_ca_file = (char[]){ "/ca.pem" };
	assert_true(nats_servers_read(&sink, &s, &err));
	assert_true(s.tls);
	nats_servers_release(&s);
}

static void there_is_one_way_to_say_who_we_are(void **state _unused_)
{
	struct sink_config sink = sink_with((char[]){ "localhost" });
	struct nats_servers s;
	struct error err;

	sink.nats.user = (char[]){ "relay" };
	sink.nats.token_file = (char[]){ "/token" };
	assert_false(nats_servers_read(&sink, &s, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_non_null(strstr(err.message, "token_file"));
}

static void a_file_that_cannot_be_read_is_named(void **state _unused_)
{
	struct sink_config sink = sink_with((char[]){ "localhost" });
	char missing[] = "/nowhere/file";
	natsOptions *options;
	struct nats_servers s;
	struct error err;

	sink.nats.user = (char[]){ "relay" };
	sink.nats.password_file = missing;
	assert_true(nats_servers_read(&sink, &s, &err));
	assert_true(nats_conf_build(&sink, &s, 0, &options, &err));
	assert_false(nats_conf_identify(options, &sink, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_non_null(strstr(err.message, missing));
	sink.nats.user = none;
	sink.nats.credentials_file = missing;
	assert_false(nats_conf_identify(options, &sink, &err));
	assert_non_null(strstr(err.message, missing));
	natsOptions_Destroy(options);
	s.tls = true;
	sink.nats.tls_ca_file = missing;
	assert_false(nats_conf_build(&sink, &s, 0, &options, &err));
	assert_non_null(strstr(err.message, missing));
	nats_servers_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_of_servers),
		cmocka_unit_test(what_cannot_be_a_server_is_refused),
		cmocka_unit_test(tls_is_a_setting_too),
		cmocka_unit_test(there_is_one_way_to_say_who_we_are),
		cmocka_unit_test(a_file_that_cannot_be_read_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
