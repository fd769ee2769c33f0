#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/macros.h"
#include "relay/verdict.h"

enum { FIRST_MS = 1000, MAX_MS = 5 * 60 * 1000, DRAWS = 2000 };

/* --- what follows a failure ----------------------------------------------------------------------------------- */

struct expected {
	enum error_kind kind;
	enum window_action action;
	bool counts;
};

static void every_kind_of_error_has_its_verdict(void **state _unused_)
{
	static const struct expected table[] = {
		{ ERROR_NONE, WINDOW_HOLD, false },
		{ ERROR_TRANSPORT, WINDOW_RESEND, false },
		{ ERROR_THROTTLED, WINDOW_RESEND, false },
		{ ERROR_REJECTED, WINDOW_HOLD, true },
		{ ERROR_AUTH, WINDOW_HOLD, false },
		{ ERROR_CONFIG, WINDOW_HOLD, false },
		{ ERROR_LOST, WINDOW_RESEND, false },
		{ ERROR_BUG, WINDOW_HOLD, false },
	};

	assert_int_equal(ARRAY_SIZE(table), ERROR_KIND_COUNT);
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const struct verdict *v = verdict_of(table[i].kind);

		assert_int_equal(table[i].kind, i);
		assert_int_equal(v->action, table[i].action);
		assert_int_equal(v->counts, table[i].counts);
	}
}

static void an_outage_costs_no_row_an_attempt_and_holds_no_entity_back(void **state _unused_)
{
	const enum error_kind outages[] = { ERROR_TRANSPORT, ERROR_THROTTLED, ERROR_LOST };

	for (size_t i = 0; i < ARRAY_SIZE(outages); i++) {
		assert_int_equal(verdict_of(outages[i])->action, WINDOW_RESEND);
		assert_false(verdict_of(outages[i])->counts);
	}
}

static void only_what_a_row_itself_is_to_blame_for_counts_as_its_attempt(void **state _unused_)
{
	for (enum error_kind kind = 0; kind < ERROR_KIND_COUNT; kind++)
		assert_int_equal(verdict_of(kind)->counts, kind == ERROR_REJECTED);
}

/* --- how long a held entity waits ----------------------------------------------------------------------------- */

/* Without jitter: doubles from the first delay up to the longest. */
static int64_t full_delay(uint32_t attempts)
{
	int64_t ms = FIRST_MS;

	for (uint32_t i = 1; i < attempts && ms < MAX_MS; i++)
		ms *= 2;
	return MIN(ms, MAX_MS);
}

struct range {
	int64_t least, most;
};

static struct range drawn(uint32_t attempts)
{
	struct range r = { INT64_MAX, 0 };
	uint64_t seed = attempts;

	for (int i = 0; i < DRAWS; i++) {
		int64_t ms = verdict_delay_ms(attempts, &seed);

		r.least = MIN(r.least, ms);
		r.most = MAX(r.most, ms);
	}
	return r;
}

static void a_delay_lies_in_the_upper_half_of_its_doubling(void **state _unused_)
{
	for (uint32_t attempts = 1; attempts <= 40; attempts++) {
		struct range r = drawn(attempts);
		int64_t full = full_delay(attempts);

		assert_in_range(r.least, full / 2, full);
		assert_in_range(r.most, full / 2, full);
	}
}

static void delays_spread_over_that_half(void **state _unused_)
{
	for (uint32_t attempts = 1; attempts <= 40; attempts++) {
		struct range r = drawn(attempts);
		int64_t full = full_delay(attempts);

		assert_true(r.least < full / 2 + full / 50);
		assert_true(r.most > full - full / 50);
	}
}

static void the_first_delays_are_one_two_and_four_seconds_at_most(void **state _unused_)
{
	assert_in_range(drawn(1).most, 980, 1000);
	assert_in_range(drawn(2).most, 1960, 2000);
	assert_in_range(drawn(3).most, 3920, 4000);
}

static void no_delay_is_longer_than_five_minutes_however_often_a_row_was_refused(void **state _unused_)
{
	const uint32_t many[] = { 10, 11, 64, 65, 1000, UINT32_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		assert_in_range(drawn(many[i]).most, MAX_MS - MAX_MS / 50, MAX_MS);
}

static void an_entity_whose_row_was_never_counted_waits_as_after_the_first_time(void **state _unused_)
{
	uint64_t none = 7, once = 7;

	for (int i = 0; i < DRAWS; i++)
		assert_int_equal(verdict_delay_ms(0, &none), verdict_delay_ms(1, &once));
}

static void a_seed_repeats_its_delays_and_another_one_has_others(void **state _unused_)
{
	uint64_t a = 1, again = 1, b = 2;
	int same = 0;

	for (int i = 0; i < DRAWS; i++) {
		int64_t ms = verdict_delay_ms(5, &a);

		assert_int_equal(ms, verdict_delay_ms(5, &again));
		same += ms == verdict_delay_ms(5, &b);
	}
	assert_true(same < DRAWS / 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_of_error_has_its_verdict),
		cmocka_unit_test(an_outage_costs_no_row_an_attempt_and_holds_no_entity_back),
		cmocka_unit_test(only_what_a_row_itself_is_to_blame_for_counts_as_its_attempt),
		cmocka_unit_test(a_delay_lies_in_the_upper_half_of_its_doubling),
		cmocka_unit_test(delays_spread_over_that_half),
		cmocka_unit_test(the_first_delays_are_one_two_and_four_seconds_at_most),
		cmocka_unit_test(no_delay_is_longer_than_five_minutes_however_often_a_row_was_refused),
		cmocka_unit_test(an_entity_whose_row_was_never_counted_waits_as_after_the_first_time),
		cmocka_unit_test(a_seed_repeats_its_delays_and_another_one_has_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
