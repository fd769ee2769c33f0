#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#include "base/macros.h"
#include "relay/rfc3339.h"

static void every_way_to_write_a_moment_gives_the_same(void **state _unused_)
{
	static const char *const same[] = {
		"2026-11-15T09:45:27.123456Z",      "2026-11-15 09:45:27.123456+00", "2026-11-15 09:45:27.123456",
		"2026-11-15T15:15:27.123456+05:30", "2026-11-15 01:45:27.123456-08", "2026-11-15T09:45:27.123456789Z",
	};
	int64_t us;

	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		assert_true(rfc3339_parse(slice_of(same[i]), &us));
		assert_int_equal(us, INT64_C(1794735927123456));
	}
	assert_true(rfc3339_parse(SLICE_LITERAL("1970-01-01T00:00:00.5Z"), &us));
	assert_int_equal(us, 500000);
}

/* The C library knows the calendar too. */
static void every_day_of_four_centuries_is_the_right_one(void **state _unused_)
{
	for (int64_t day = -365 * 200; day < 365 * 200; day++) {
		time_t seconds = (time_t)(day * 86400 + 43200);
		struct tm tm;
		char text[40];
		int64_t us;

		gmtime_r(&seconds, &tm);
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
		assert_true(rfc3339_parse(slice_of(text), &us));
		assert_int_equal(us, (int64_t)seconds * 1000000);
	}
}

static void what_is_no_moment_is_told(void **state _unused_)
{
	static const char *const wrong[] = { "", "infinity", "2026-11-15", "2026-11-15T09:45:27X", "1763199927", "0044-03-15 00:00:00 BC" };
	int64_t us;

	assert_false(rfc3339_parse(SLICE_NULL, &us));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_false(rfc3339_parse(slice_of(wrong[i]), &us));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_way_to_write_a_moment_gives_the_same),
		cmocka_unit_test(every_day_of_four_centuries_is_the_right_one),
		cmocka_unit_test(what_is_no_moment_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
