#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "sink/webhook_conf.h"

static char secret_path[] = "/tmp/postrider-test-XXXXXX";

static struct sink_config settings(const char *url)
{
	return (struct sink_config){
		.name = (char *)"hook", .where = (char *)"f.yaml:1:1",
		.webhook = { .url = (char *)url, .secret_file = secret_path, .authorization_file = (char *)"",
			     .content_type = (char *)"application/json", .header_prefix = (char *)"postrider-", .concurrency = 4,
			     .connect_timeout_ms = 1000, .answer_timeout_ms = 1000 },
	};
}

static int make_secret(void **state _unused_)
{
	int fd = mkstemp(secret_path);

	dprintf(fd, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
	return close(fd);
}

static int drop_secret(void **state _unused_)
{
	return unlink(secret_path);
}

static void urls_are_looked_at(void **state _unused_)
{
	static const struct {
		const char *url;
		bool allow_private, allow_http;
		const char *fault;
	} cases[] = {
		{ "https://hooks.example.com/secret", false, false, NULL },
		{ "https://hooks.example.com/secret/{topic}?x={topic}", false, false, NULL },
		{ "http://hooks.example.com/secret", false, true, NULL },
		{ "http://hooks.example.com/secret", true, false, "plain text" },
		{ "http://127.0.0.1:8080/secret", true, false, NULL },
		{ "http://[::1]:8080/secret", true, false, NULL },
		{ "http://127.0.0.1:8080/secret", false, false, "plain text" },
		{ "http://127.0.0.1.secret.example.com/", true, false, "plain text" },
		{ "https://user:secret@hooks.example.com/", false, false, "a user or a password" },
		{ "https://{topic}.secret.example.com/", false, false, "not a URL|differ by topic" },
		{ "ftp://secret/", false, false, "not a URL" },
		{ "file:///secret", true, true, "not a URL" },
		{ "secret", false, false, "not a URL" },
		{ "https://", false, false, "not a URL" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sink_config sink = settings(cases[i].url);
		struct error err = { 0 };
		const char *other;
		bool ok;

		sink.webhook.allow_private = cases[i].allow_private;
		sink.webhook.allow_http = cases[i].allow_http;
		ok = webhook_conf_check(&sink, &err);
		if (ok != !cases[i].fault)
			fail_msg("%s: %s", cases[i].url, ok ? "taken" : err.message);
		if (ok)
			continue;
		other = strchr(cases[i].fault, '|');
		assert_int_equal(err.kind, ERROR_CONFIG);
		assert_true((other && strstr(err.message, other + 1)) ||
			    memmem(err.message, strlen(err.message), cases[i].fault,
				   other ? (size_t)(other - cases[i].fault) : strlen(cases[i].fault)));
		assert_null(strstr(err.message, "secret"));
	}
}

static void a_prefix_is_a_name(void **state _unused_)
{
	struct sink_config sink = settings("https://hooks.example.com/");
	struct error err;

	sink.webhook.header_prefix = (char *)"X-A\r\n";
	assert_false(webhook_conf_check(&sink, &err));
	sink.webhook.header_prefix = (char *)"X-A-";
	assert_true(webhook_conf_check(&sink, &err));
	sink.webhook.content_type = (char *)"a\nb";
	assert_false(webhook_conf_check(&sink, &err));
}

static void files_are_looked_at(void **state _unused_)
{
	struct sink_config sink = settings("https://hooks.example.com/");
	struct error err;

	sink.webhook.tls_ca_file = (char *)"/nowhere/ca.pem";
	assert_false(webhook_conf_check(&sink, &err));
	assert_non_null(strstr(err.message, "f.yaml:1:1: tls_ca_file"));
	sink = settings("https://hooks.example.com/");
	sink.webhook.secret_file = (char *)"/nowhere/secret";
	assert_false(webhook_conf_check(&sink, &err));
	assert_non_null(strstr(err.message, "/nowhere/secret"));
}

/* No name of the outside leads here, and no request goes out. */
static void check_refuses_private_addresses(void **state _unused_)
{
	struct sink_config sink = settings("https://localhost:1/");
	struct finding_list findings = { 0 };

	webhook_check(&sink, &findings);
	assert_int_equal(findings.count, 1);
	assert_int_equal(findings.items[0].level, FINDING_FAIL);
	assert_non_null(strstr(findings.items[0].what, "private, local or reserved"));
	assert_non_null(strstr(findings.items[0].fix, "allow_private"));
	finding_release(&findings);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(urls_are_looked_at),
		cmocka_unit_test(a_prefix_is_a_name),
		cmocka_unit_test(files_are_looked_at),
		cmocka_unit_test(check_refuses_private_addresses),
	};

	return cmocka_run_group_tests(tests, make_secret, drop_secret);
}
