#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "aws/credentials.h"
#include "aws/endpoint.h"
#include "base/macros.h"

static void expect(const char *url, enum sink_tls tls, const char *whole, const char *host)
{
	struct aws_endpoint e;
	struct error err;

	assert_true(aws_endpoint_read(url, tls, "sqs", "eu-central-1", &e, &err));
	assert_string_equal(e.url, whole);
	assert_string_equal(e.host, host);
	aws_endpoint_release(&e);
}

static void the_host_is_what_libcurl_sends(void **state _unused_)
{
	expect("", SINK_TLS_AUTO, "https://sqs.eu-central-1.amazonaws.com/", "sqs.eu-central-1.amazonaws.com");
	expect("https://vpce.example.com/", SINK_TLS_AUTO, "https://vpce.example.com/", "vpce.example.com");
	expect("https://vpce.example.com:443", SINK_TLS_AUTO, "https://vpce.example.com:443/", "vpce.example.com");
	expect("https://vpce.example.com:80", SINK_TLS_AUTO, "https://vpce.example.com:80/", "vpce.example.com:80");
	expect("http://127.0.0.1:9324", SINK_TLS_AUTO, "http://127.0.0.1:9324/", "127.0.0.1:9324");
	expect("http://[::1]:9324", SINK_TLS_AUTO, "http://[::1]:9324/", "[::1]:9324");
	expect("http://elastic:80", SINK_TLS_OFF, "http://elastic:80/", "elastic");
}

static void plain_text_stays_on_this_machine(void **state _unused_)
{
	struct aws_endpoint e;
	struct error err;

	assert_false(aws_endpoint_read("http://elastic:9324", SINK_TLS_AUTO, "sqs", "x", &e, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_non_null(strstr(err.message, "plain text"));
	assert_false(aws_endpoint_read("http://127.0.0.1.example.com", SINK_TLS_AUTO, "sqs", "x", &e, &err));
	assert_false(aws_endpoint_read("http://127.0.0.1", SINK_TLS_ON, "sqs", "x", &e, &err));
}

static void what_is_no_address_is_refused(void **state _unused_)
{
	static const char *const urls[] = { "sqs.example.com", "ftp://x",       "https://",
					    "https://x/path",  "https://u:p@x", "https://x?a" };
	struct aws_endpoint e;
	struct error err;

	for (size_t i = 0; i < ARRAY_SIZE(urls); i++)
		assert_false(aws_endpoint_read(urls[i], SINK_TLS_AUTO, "sqs", "x", &e, &err));
}

static void china_has_another_domain(void **state _unused_)
{
	struct aws_endpoint e;
	struct error err;

	assert_true(aws_endpoint_read("", SINK_TLS_AUTO, "sqs", "cn-north-1", &e, &err));
	assert_string_equal(e.host, "sqs.cn-north-1.amazonaws.com.cn");
	aws_endpoint_release(&e);
}

static void expirations_are_times(void **state _unused_)
{
	assert_int_equal(aws_expiration("2015-08-30T12:36:00Z"), 1440938160);
	assert_true(aws_expiration("soon") == AWS_NEVER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_host_is_what_libcurl_sends),
		cmocka_unit_test(plain_text_stays_on_this_machine),
		cmocka_unit_test(what_is_no_address_is_refused),
		cmocka_unit_test(china_has_another_domain),
		cmocka_unit_test(expirations_are_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
