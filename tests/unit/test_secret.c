#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/mem.h"
#include "config/secret.h"

static void connection_strings_show_no_secret(void **state _unused_)
{
	static const struct {
		const char *url, *shown;
	} cases[] = {
		{ "", "" },
		{ "postgresql://app@127.0.0.1:5432/shop", "postgresql://app@127.0.0.1:5432/shop" },
		{ "postgresql:///shop", "postgresql:///shop" },
		{ "postgresql://[::1]:5432/shop", "postgresql://[::1]:5432/shop" },
		{ "postgresql://app@h1:1,h2:2/shop?target_session_attrs=any",
		  "postgresql://app@h1:1,h2:2/shop?target_session_attrs=any" },
		{ "postgresql://app:geheim@db/shop", "postgresql://app:***@db/shop" },
		{ "postgres://app:geheim@h1:1,h2:2/shop", "postgres://app:***@h1:1,h2:2/shop" },
		{ "postgresql://:geheim@db/shop", "postgresql://:***@db/shop" },
		{ "postgresql://app:@db/shop", "postgresql://app:***@db/shop" },
		{ "postgresql://app:ge@heim@db/shop", "postgresql://app:***@db/shop" },
		{ "postgresql://app:ge:heim@db/shop", "postgresql://app:***@db/shop" },
		{ "postgresql://app:ge/heim@db/shop", "postgresql://app:***@db/shop" },
		{ "postgresql://app:ge?heim@db/shop", "postgresql://app:***@db/shop" },
		{ "postgresql://app:ge%40heim@db/shop", "postgresql://app:***@db/shop" },
		{ "postgresql://app:ge#heim@db/shop?sslmode=require", "postgresql://app:***@db/shop?sslmode=require" },
		{ "postgresql://db/shop?user=app&password=geheim", "postgresql://db/shop?user=app&password=***" },
		{ "postgresql://db/shop?PASSWORD=geheim", "postgresql://db/shop?PASSWORD=***" },
		{ "postgresql://db/shop?p%61ssword=geheim", "postgresql://db/shop?p%61ssword=***" },
		{ "postgresql://db/shop?sslpassword=geheim&sslmode=verify-full",
		  "postgresql://db/shop?sslpassword=***&sslmode=verify-full" },
		{ "postgresql://db/shop?not_yet_invented=geheim", "postgresql://db/shop?not_yet_invented=***" },
		{ "postgresql://db/?dbname=postgresql://a:geheim@b", "postgresql://db/?dbname=***" },
		{ "mysql://app:geheim@db/shop", "mysql://app:***@db/shop" },
		{ "host=db user=app dbname=shop", "host=db user=app dbname=shop" },
		{ "host=db password=geheim user=app", "host=db password=*** user=app" },
		{ "host = db  password = 'ge heim' user=app", "host=db password=*** user=app" },
		{ "password='it\\'s geheim' host=db", "password=*** host=db" },
		{ "password=ge\\ heim host=db", "password=*** host=db" },
		{ "password='geheim", "***" },
		{ "host=db geheim", "host=db ***" },
		{ "geheim", "***" },
		{ "dbname='postgresql://a:geheim@b/c' host=db", "dbname=*** host=db" },
		{ "dbname='password=geheim'", "dbname=***" },
		{ "password=", "password=***" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mem_freep) char *shown = config_redact_url(cases[i].url);

		assert_string_equal(shown, cases[i].shown);
		assert_null(strstr(shown, "geheim"));
		assert_int_equal(config_url_has_secret(cases[i].url), strstr(cases[i].shown, "***") != NULL);
	}
	assert_null(config_redact_url(NULL));
}

static void an_endless_connection_string_is_hidden(void **state _unused_)
{
	_cleanup_(mem_freep) char *url = mem_alloc(100001);
	_cleanup_(mem_freep) char *shown = NULL;

	memset(url, 'h', 100000);
	memcpy(url, "postgresql://", 13);
	shown = config_redact_url(url);
	assert_string_equal(shown, "***");
}

static void names_of_secret_properties_are_known(void **state _unused_)
{
	assert_true(config_is_secret_name("sasl.password"));
	assert_true(config_is_secret_name("ssl.key.password"));
	assert_true(config_is_secret_name("sasl.oauthbearer.client.secret"));
	assert_true(config_is_secret_name("ssl.key.pem"));
	assert_false(config_is_secret_name("compression.type"));
	assert_false(config_is_secret_name("sasl.username"));
}

/* Puts bytes into a file and reads them as a secret. */
static bool read_as_secret(const char *bytes, size_t len, char **ret, struct error *err)
{
	char path[] = "/tmp/postrider-secret-XXXXXX";
	int fd = mkstemp(path);
	bool ok;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
	ok = config_read_secret(path, ret, err);
	unlink(path);
	return ok;
}

static void a_secret_file_loses_one_newline_at_its_end(void **state _unused_)
{
	static const struct {
		const char *content, *secret;
	} cases[] = {
		{ "geheim", "geheim" },         { "geheim\n", "geheim" },   { "geheim\r\n", "geheim" },
		{ "geheim\n\n", "geheim\n" },   { " ge heim ", " ge heim " },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mem_freep) char *secret = NULL;
		struct error err;

		assert_true(read_as_secret(cases[i].content, strlen(cases[i].content), &secret, &err));
		assert_string_equal(secret, cases[i].secret);
	}
}

static void a_wrong_secret_file_is_named_and_not_shown(void **state _unused_)
{
	static const struct {
		const char *content;
		size_t len;
		const char *reason;
	} cases[] = {
		{ "", 0, "is empty" },
		{ "\n", 1, "is empty" },
		{ "ge\0heim", 7, "contains a NUL character" },
	};
	_cleanup_(mem_freep) char *large = mem_alloc(SECRET_MAX_BYTES + 1);
	char *secret = NULL;
	struct error err;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_false(read_as_secret(cases[i].content, cases[i].len, &secret, &err));
		assert_int_equal(err.kind, ERROR_CONFIG);
		assert_non_null(strstr(err.message, "the secret file /tmp/postrider-secret-"));
		assert_non_null(strstr(err.message, cases[i].reason));
		assert_null(strstr(err.message, "heim"));
	}
	memset(large, 'x', SECRET_MAX_BYTES + 1);
	assert_false(read_as_secret(large, SECRET_MAX_BYTES + 1, &secret, &err));
	assert_non_null(strstr(err.message, "is larger than 64 KiB"));
	assert_true(read_as_secret(large, SECRET_MAX_BYTES, &secret, &err));
	free(secret);
}

static void a_missing_secret_file_is_told(void **state _unused_)
{
	char *secret = NULL;
	struct error err;

	assert_false(config_read_secret("/nowhere/password", &secret, &err));
	assert_string_equal(err.message, "could not open the secret file /nowhere/password: No such file or directory");
	assert_false(config_read_secret("/tmp", &secret, &err));
	assert_string_equal(err.message, "could not read the secret file /tmp: Is a directory");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connection_strings_show_no_secret),
		cmocka_unit_test(an_endless_connection_string_is_hidden),
		cmocka_unit_test(names_of_secret_properties_are_known),
		cmocka_unit_test(a_secret_file_loses_one_newline_at_its_end),
		cmocka_unit_test(a_wrong_secret_file_is_named_and_not_shown),
		cmocka_unit_test(a_missing_secret_file_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
