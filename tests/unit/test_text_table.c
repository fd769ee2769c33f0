#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/macros.h"
#include "cli/text_table.h"

static const struct text_column columns[] = { { "name", false, 6 }, { "rows", true, 5 }, { "state", false, 6 } };

static void expect_table(const char *const (*rows)[3], size_t n, const char *expected)
{
	_cleanup_(text_table_release) struct text_table t = { 0 };
	_cleanup_(buf_release) struct buf out = { 0 };

	buf_init(&out, 10000);
	text_table_init(&t, columns, ARRAY_SIZE(columns));
	for (size_t i = 0; i < n; i++)
		text_table_add(&t, rows[i]);
	text_table_write(&t, &out);
	assert_string_equal(buf_str(&out), expected);
}

static void columns_are_as_wide_as_what_is_in_them(void **state _unused_)
{
	static const char *const rows[][3] = { { "a", "1", "up" }, { "second", "12345", "down" } };

	expect_table(rows, 2,
		     "  name     rows  state\n"
		     "  a           1  up\n"
		     "  second  12345  down\n");
}

static void what_is_too_long_is_cut_between_characters(void **state _unused_)
{
	static const char *const rows[][3] = {
		{ "sevenup", "1", "up" },
		{ "äöüßéèê", "2", "up" },
		{ "äöüßéè", "3", "up" },
	};

	expect_table(rows, 3,
		     "  name    rows  state\n"
		     "  seven…     1  up\n"
		     "  äöüßé…     2  up\n"
		     "  äöüßéè     3  up\n");
}

static void what_is_unknown_is_a_dash(void **state _unused_)
{
	static const char *const rows[][3] = { { "a", NULL, NULL } };

	expect_table(rows, 1,
		     "  name  rows  state\n"
		     "  a        -  -\n");
}

static void an_empty_table_has_titles(void **state _unused_)
{
	expect_table(NULL, 0, "  name  rows  state\n");
}

static void counts_have_at_most_seven_characters(void **state _unused_)
{
	static const struct {
		int64_t n;
		const char *text;
	} cases[] = {
		{ 0, "0" },
		{ 999, "999" },
		{ 1000, "1,000" },
		{ 100000, "100,000" },
		{ 999999, "999,999" },
		{ 1000000, "1.0M" },
		{ 12345678, "12.3M" },
		{ 2500000000, "2.5G" },
	};
	struct text_short s;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(text_count(&s, cases[i].n), cases[i].text);
}

static void durations_are_told_in_one_unit(void **state _unused_)
{
	static const struct {
		int64_t ms;
		const char *text;
	} cases[] = {
		{ 0, "0.0 s" },
		{ 449, "0.4 s" },
		{ 9900, "9.9 s" },
		{ 10000, "10 s" },
		{ 119999, "119 s" },
		{ 120000, "2 min" },
		{ 7199999, "119 min" },
		{ 7200000, "2 h" },
		{ 172800000, "2 d" },
	};
	struct text_short s;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(text_duration(&s, cases[i].ms), cases[i].text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(columns_are_as_wide_as_what_is_in_them),
		cmocka_unit_test(what_is_too_long_is_cut_between_characters),
		cmocka_unit_test(what_is_unknown_is_a_dash),
		cmocka_unit_test(an_empty_table_has_titles),
		cmocka_unit_test(counts_have_at_most_seven_characters),
		cmocka_unit_test(durations_are_told_in_one_unit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
