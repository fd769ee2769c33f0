/* What is a request, and who may make it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/macros.h"
#include "observe/http_guard.h"

static enum http_parsed parse(const char *text, struct http_request *ret)
{
	*ret = (struct http_request){ 0 };
	return http_request_parse(slice_of(text), ret);
}

static void a_request_is_taken_apart(void **state _unused_)
{
	struct http_request r;

	assert_int_equal(parse("GET /metrics?name=a%20b HTTP/1.1\r\nHOST: localhost:9187\r\nAccept: */*\r\n"
			       "authorization: bEARER  se.cret \r\n\r\n", &r), HTTP_COMPLETE);
	assert_int_equal(r.method, HTTP_GET);
	assert_true(slice_is(r.path, "/metrics"));
	assert_true(slice_is(r.query, "name=a%20b"));
	assert_true(slice_is(r.host, "localhost:9187"));
	assert_true(slice_is(r.token, "se.cret"));
}

static void http_1_0_needs_no_host(void **state _unused_)
{
	struct http_request r;

	assert_int_equal(parse("HEAD / HTTP/1.0\r\n\r\n", &r), HTTP_COMPLETE);
	assert_int_equal(r.method, HTTP_HEAD);
	assert_null(r.host.ptr);
	assert_null(r.query.ptr);
	assert_int_equal(parse("HEAD / HTTP/1.1\r\n\r\n", &r), HTTP_MALFORMED);
}

static void other_methods_and_schemes_are_known_to_be_other(void **state _unused_)
{
	struct http_request r;

	assert_int_equal(parse("POST / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic eDp5\r\n\r\n", &r), HTTP_COMPLETE);
	assert_int_equal(r.method, HTTP_OTHER);
	assert_null(r.token.ptr);
}

static void the_end_of_the_head_is_waited_for(void **state _unused_)
{
	const char whole[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
	struct http_request r;

	for (size_t len = 0; len < sizeof(whole) - 1; len++)
		assert_int_equal(http_request_parse((struct slice){ whole, len }, &r), HTTP_UNFINISHED);
	assert_int_equal(parse(whole, &r), HTTP_COMPLETE);
}

static void what_no_sane_client_sends_is_refused(void **state _unused_)
{
	static const char *const wrong[] = {
		"\r\n\r\n",
		"GET\r\n\r\n",
		"GET /\r\n\r\n",
		"GET / HTTP/2.0\r\n\r\n",
		"GET  / HTTP/1.0\r\n\r\n",
		"GET /a b HTTP/1.0\r\n\r\n",
		"GET http://a/ HTTP/1.0\r\n\r\n",
		"GET * HTTP/1.0\r\n\r\n",
		"G(T / HTTP/1.0\r\n\r\n",
		"GET /\t HTTP/1.0\r\n\r\n",
		"GET / HTTP/1.0\nHost: a\r\n\r\n",
		"GET / HTTP/1.0\r\nHost a\r\n\r\n",
		"GET / HTTP/1.0\r\nHost : a\r\n\r\n",
		"GET / HTTP/1.0\r\n Host: a\r\n\r\n",
		"GET / HTTP/1.0\r\nA: b\r\n c\r\n\r\n",
		"GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n",
		"GET / HTTP/1.0\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
		"GET / HTTP/1.0\r\nA: \x01\r\n\r\n",
		"GET / HTTP/1.0\r\nA: b\nHost: c\r\n\r\n",
		"GET / HTTP/1.0\r\n: b\r\n\r\n",
	};
	struct http_request r;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		if (parse(wrong[i], &r) != HTTP_MALFORMED)
			fail_msg("not refused: %s", wrong[i]);
}

static enum http_admission guard_host(const char *host)
{
	struct http_request r = { .host = slice_of(host) };

	return http_guard(&r, "", false);
}

static void without_a_token_the_host_must_not_be_a_name(void **state _unused_)
{
	static const char *const right[] = { NULL, "127.0.0.1", "127.0.0.1:9187", "localhost", "LocalHost:1", "[::1]:9187", "[::1]" };
	static const char *const wrong[] = { "", "evil.example", "127.0.0.1.evil.example:9187", "localhost.evil:1", "[::1]evil:1",
					     "[evil]", "[::1", "0x7f000001" };

	for (size_t i = 0; i < ARRAY_SIZE(right); i++)
		assert_int_equal(guard_host(right[i]), HTTP_ADMITTED);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		if (guard_host(wrong[i]) != HTTP_WRONG_HOST)
			fail_msg("let in: %s", wrong[i]);
}

static void with_a_token_nothing_else_counts(void **state _unused_)
{
	static const char *const wrong[] = { NULL, "", "s", "se.cre", "se.crets", "se.creu", "se.cretse.cret" };
	char path[] = "/tmp/postrider-token-XXXXXX";
	struct http_request r = { .host = SLICE_LITERAL("relay.example"), .token = SLICE_LITERAL("se.cret") };
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "se.cret\n", 8), 8);
	close(fd);
	assert_int_equal(http_guard(&r, path, false), HTTP_ADMITTED);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		r.token = slice_of(wrong[i]);
		assert_int_equal(http_guard(&r, path, false), HTTP_WRONG_TOKEN);
		assert_int_equal(http_guard(&r, path, true), HTTP_ADMITTED);
	}
	unlink(path);
	assert_int_equal(http_guard(&r, path, false), HTTP_NO_TOKEN_FILE);
	assert_int_equal(http_guard(&r, path, true), HTTP_ADMITTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_is_taken_apart),
		cmocka_unit_test(http_1_0_needs_no_host),
		cmocka_unit_test(other_methods_and_schemes_are_known_to_be_other),
		cmocka_unit_test(the_end_of_the_head_is_waited_for),
		cmocka_unit_test(what_no_sane_client_sends_is_refused),
		cmocka_unit_test(without_a_token_the_host_must_not_be_a_name),
		cmocka_unit_test(with_a_token_nothing_else_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
