#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/glob.h"
#include "base/macros.h"

static void patterns_fit_or_do_not(void **state _unused_)
{
	static const struct {
		const char *patterns, *text;
		bool fits;
	} cases[] = {
		{ "order.new", "order.new", true },
		{ "order.new", "order.newer", false },
		{ "order.new", "border.new", false },
		{ "order.*", "order.new", true },
		{ "order.*", "order.", true },
		{ "order.*", "order", false },
		{ "*.new", "order.new", true },
		{ "*.new", "order.new.new", true },
		{ "*.new", "order.newest", false },
		{ "o*r.*w", "order.new", true },
		{ "*a*a*", "banana", true },
		{ "*a*a*a*a*", "banana", false },
		{ "*", "", true },
		{ "*", "anything", true },
		{ "**", "x", true },
		{ "?", "x", true },
		{ "?", "", false },
		{ "?", "xy", false },
		{ "?", "\xe2\x82\xac", true }, /* one character of three bytes */
		{ "a?c", "a\xc3\xa9" "c", true },
		{ "*?", "\xc3\xa9", true },
		{ "a|b", "a", true },
		{ "a|b", "b", true },
		{ "a|b", "a|b", false },
		{ "order.*|invoice.paid", "invoice.paid", true },
		{ "order.*|invoice.paid", "invoice.sent", false },
		{ "a|", "", true },
		{ "", "", true },
		{ "", "x", false },
		{ "[ab]", "a", false }, /* no classes: brackets are themselves */
		{ "[ab]", "[ab]", true },
		{ "A", "a", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (glob_matches(cases[i].patterns, slice_of(cases[i].text)) != cases[i].fits)
			fail_msg("\"%s\" and \"%s\"", cases[i].patterns, cases[i].text);
}

static void nothing_is_the_empty_text(void **state _unused_)
{
	assert_true(glob_matches("*", SLICE_NULL));
	assert_false(glob_matches("?*", SLICE_NULL));
}

/* One star after the other must not multiply: 30 of them would take longer than anybody waits. */
static void many_stars_end_soon(void **state _unused_)
{
	char pattern[128] = "", text[4097];

	for (int i = 0; i < 30; i++)
		strcat(pattern, "a*");
	strcat(pattern, "b");
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_false(glob_matches(pattern, slice_of(text)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns_fit_or_do_not),
		cmocka_unit_test(nothing_is_the_empty_text),
		cmocka_unit_test(many_stars_end_soon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
