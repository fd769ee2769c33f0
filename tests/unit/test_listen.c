#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/macros.h"
#include "config/listen.h"

static void addresses_are_known_by_their_digits(void **state _unused_)
{
	static const struct {
		const char *text;
		bool loopback;
	} right[] = {
		{ "127.0.0.1:9187", true }, { "127.9.9.9:1", true },  { "localhost:9187", true },  { "[::1]:65535", true },
		{ "0.0.0.0:9187", false },  { "[::]:9187", false },   { "192.0.2.1:80", false },   { "[2001:db8::1]:80", false },
		{ "[::ffff:192.0.2.1]:80", false },
	};
	struct listen_address a;

	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		assert_true(listen_parse(right[i].text, &a));
		assert_int_equal(listen_is_loopback(&a), right[i].loopback);
	}
}

static void everything_else_is_refused(void **state _unused_)
{
	static const char *const wrong[] = {
		"",        "9187",         ":9187",          "127.0.0.1",        "127.0.0.1:",     "127.0.0.1:0",
		"::1:9187", "[::1]",       "[127.0.0.1]:80", "127.0.0.1:65536",  "127.0.0.1:+80",  "127.0.0.1:80x",
		"relay.example:9187",      "[]:80",          "*:80",             "127.1:80",       "[::1:80",
		"[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]:80",
	};
	struct listen_address a;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		if (listen_parse(wrong[i], &a))
			fail_msg("taken: %s", wrong[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_are_known_by_their_digits),
		cmocka_unit_test(everything_else_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
