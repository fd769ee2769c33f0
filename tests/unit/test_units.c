#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "config/suggest.h"
#include "config/units.h"

#define REFUSED INT64_C(-1)

struct number_case {
	const char *text;
	int64_t value;
};

static void check_numbers(const struct number_case *cases, size_t n, bool (*parse)(const char *, int64_t *))
{
	for (size_t i = 0; i < n; i++) {
		int64_t value = -7;
		bool ok = parse(cases[i].text, &value);

		if (ok != (cases[i].value != REFUSED))
			fail_msg("\"%s\" is %s", cases[i].text, ok ? "taken" : "refused");
		assert_int_equal(value, ok ? cases[i].value : -7);
	}
}

static void integers_are_plain_digits(void **state _unused_)
{
	static const struct number_case cases[] = {
		{ "0", 0 },           { "1", 1 },
		{ "100000", 100000 }, { "9223372036854775807", INT64_MAX },
		{ "", REFUSED },      { "9223372036854775808", REFUSED },
		{ "-1", REFUSED },    { "99999999999999999999", REFUSED },
		{ "+1", REFUSED },    { "010", REFUSED },
		{ " 1", REFUSED },    { "1 ", REFUSED },
		{ "1.0", REFUSED },   { "0x10", REFUSED },
		{ "1_000", REFUSED }, { "ten", REFUSED },
	};

	check_numbers(cases, ARRAY_SIZE(cases), units_integer);
}

static void durations_need_a_unit(void **state _unused_)
{
	static const struct number_case cases[] = {
		{ "5s", 5000 },      { "250ms", 250 },
		{ "2m", 120000 },    { "1h", 3600000 },
		{ "7d", 604800000 }, { "7D", REFUSED },
		{ "0", 0 },          { "0s", 0 },
		{ "5", REFUSED },    { "s", REFUSED },
		{ "5 s", REFUSED },  { "5S", REFUSED },
		{ "-5s", REFUSED },  { "1.5s", REFUSED },
		{ "1m30s", REFUSED }, { "5sec", REFUSED },
		{ "05s", REFUSED },  { "2562047788016h", REFUSED },
		{ "5w", REFUSED },   { "99999999999999999999ms", REFUSED },
	};

	check_numbers(cases, ARRAY_SIZE(cases), units_duration);
}

static void sizes_need_a_unit(void **state _unused_)
{
	static const struct number_case cases[] = {
		{ "100B", 100 },       { "512KiB", 524288 },
		{ "4MiB", 4194304 },   { "1GiB", 1073741824 },
		{ "0", 0 },            { "4MB", REFUSED },
		{ "4", REFUSED },      { "4mib", REFUSED },
		{ "4M", REFUSED },     { "-4MiB", REFUSED },
		{ "4 MiB", REFUSED },  { "8589934592GiB", REFUSED },
		{ "MiB", REFUSED },    { "4MiBx", REFUSED },
	};

	check_numbers(cases, ARRAY_SIZE(cases), units_size);
}

static void booleans_are_true_or_false(void **state _unused_)
{
	static const char *const refused[] = { "yes", "no", "on", "off", "True", "FALSE", "1", "0", "", "true " };
	bool value = false;

	assert_true(units_boolean("true", &value));
	assert_true(value);
	assert_true(units_boolean("false", &value));
	assert_false(value);
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		assert_false(units_boolean(refused[i], &value));
}

static void what_is_printed_can_be_read_again(void **state _unused_)
{
	static const int64_t values[] = { 0,       1,    999,   1000,    1500,     60000, 3600000,
					  3661001, 1024, 65536, 1048577, INT64_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		_cleanup_(buf_release) struct buf b = { .ceiling = 100 };
		int64_t value;

		units_add_duration(&b, values[i]);
		assert_true(units_duration(buf_str(&b), &value));
		assert_int_equal(value, values[i]);
		buf_clear(&b);
		units_add_size(&b, values[i]);
		assert_true(units_size(buf_str(&b), &value));
		assert_int_equal(value, values[i]);
	}
}

static void the_largest_unit_that_fits_is_printed(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 100 };

	units_add_duration(&b, 5400000);
	buf_add_char(&b, ' ');
	units_add_duration(&b, 7200000);
	buf_add_char(&b, ' ');
	units_add_size(&b, 4194304);
	buf_add_char(&b, ' ');
	units_add_size(&b, 1000);
	assert_string_equal(buf_str(&b), "90m 2h 4MiB 1000B");
}

static void a_swap_of_neighbours_is_one_mistake(void **state _unused_)
{
	static const struct {
		const char *a, *b;
		size_t distance;
	} cases[] = {
		{ "workers", "workers", 0 }, { "wrokers", "workers", 1 }, { "worker", "workers", 1 },
		{ "workerss", "workers", 1 }, { "", "abc", 3 },            { "kitten", "sitting", 3 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(suggest_distance(cases[i].a, cases[i].b), cases[i].distance);
		assert_int_equal(suggest_distance(cases[i].b, cases[i].a), cases[i].distance);
	}
}

static void a_word_that_is_near_nothing_gets_no_suggestion(void **state _unused_)
{
	static const char *const known[] = { "id", "workers", "batch_size", "batch_max" };

	assert_string_equal(suggest_nearest("wokers", known, ARRAY_SIZE(known)), "workers");
	assert_string_equal(suggest_nearest("batchsize", known, ARRAY_SIZE(known)), "batch_size");
	assert_null(suggest_nearest("x", known, ARRAY_SIZE(known)));
	assert_null(suggest_nearest("", known, ARRAY_SIZE(known)));
	assert_null(suggest_nearest("elephant", known, ARRAY_SIZE(known)));
	assert_null(suggest_nearest("workers", known, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_are_plain_digits),
		cmocka_unit_test(durations_need_a_unit),
		cmocka_unit_test(sizes_need_a_unit),
		cmocka_unit_test(booleans_are_true_or_false),
		cmocka_unit_test(what_is_printed_can_be_read_again),
		cmocka_unit_test(the_largest_unit_that_fits_is_printed),
		cmocka_unit_test(a_swap_of_neighbours_is_one_mistake),
		cmocka_unit_test(a_word_that_is_near_nothing_gets_no_suggestion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
