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

static const struct failure_config defaults = {
	.max_retries = INT64_MAX,
	.first_delay_ms = FIRST_MS,
	.max_delay_ms = MAX_MS,
	.jitter = 50,
};

/* Of a row that was refused that often, this time included; 0: what failed was not its fault. */
static int64_t delay_ms(uint32_t attempts, uint64_t *seed)
{
	struct error why = { .kind = attempts > 0 ? ERROR_REJECTED : ERROR_CONFIG };
	struct event ev = { .attempt = attempts > 0 ? attempts - 1 : 0, .failure = &why };

	return verdict_hold(&defaults, &ev, seed).delay_ms;
}

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
		int64_t ms = delay_ms(attempts, &seed);

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
		assert_int_equal(delay_ms(0, &none), delay_ms(1, &once));
}

static void a_seed_repeats_its_delays_and_another_one_has_others(void **state _unused_)
{
	uint64_t a = 1, again = 1, b = 2;
	int same = 0;

	for (int i = 0; i < DRAWS; i++) {
		int64_t ms = delay_ms(5, &a);

		assert_int_equal(ms, delay_ms(5, &again));
		same += ms == delay_ms(5, &b);
	}
	assert_true(same < DRAWS / 100);
}

static void jitter_is_the_part_of_a_delay_that_is_left_to_chance(void **state _unused_)
{
	struct error why = { .kind = ERROR_REJECTED };
	struct event ev = { .attempt = 3, .failure = &why };
	uint64_t seed = 1;

	for (int64_t jitter = 0; jitter <= 100; jitter += 25) {
		struct failure_config policy = { .max_retries = 9, .first_delay_ms = 100, .max_delay_ms = 10000, .jitter = jitter };

		for (int i = 0; i < DRAWS; i++)
			assert_in_range(verdict_hold(&policy, &ev, &seed).delay_ms, 800 - 8 * jitter, 800);
	}
}

/* --- when retries are used up --------------------------------------------------------------------------------- */

static void a_policy_follows_the_last_retry_and_no_earlier_one(void **state _unused_)
{
	static const struct {
		enum when_refused then;
		enum hold_kind last;
	} table[] = {
		{ REFUSED_BLOCK, HOLD_BLOCK },
		{ REFUSED_DEAD_LETTER, HOLD_BURY },
		{ REFUSED_SKIP, HOLD_SKIP },
	};
	uint64_t seed = 1;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct failure_config policy = { .max_retries = 3, .first_delay_ms = 1, .max_delay_ms = 8, .then = table[i].then };

		for (uint32_t attempt = 0; attempt < 6; attempt++) {
			struct error why = { .kind = ERROR_REJECTED };
			struct event ev = { .attempt = attempt, .failure = &why };
			struct hold h = verdict_hold(&policy, &ev, &seed);

			assert_int_equal(h.kind, attempt >= 3 ? table[i].last : HOLD_RETRY);
			assert_int_equal(h.attempts, attempt + 1);
			assert_ptr_equal(h.event, &ev);
			if (h.kind == HOLD_BLOCK)
				assert_true(h.delay_ms > INT64_C(50) * 365 * 24 * 3600 * 1000);
			else if (attempt >= 3)
				assert_int_equal(h.delay_ms, 0);
		}
	}
}

static void whoever_is_to_stop_does_so_at_the_first_refusal(void **state _unused_)
{
	struct failure_config policy = { .max_retries = 10, .first_delay_ms = 1, .max_delay_ms = 8, .then = REFUSED_STOP };
	struct error why = { .kind = ERROR_REJECTED };
	struct event ev = { .failure = &why };
	uint64_t seed = 1;

	assert_int_equal(verdict_hold(&policy, &ev, &seed).kind, HOLD_STOP);
	assert_int_equal(verdict_hold(&policy, &ev, &seed).delay_ms, 0);
}

static void what_is_not_the_rows_fault_uses_up_no_retry(void **state _unused_)
{
	static const enum when_refused all[] = { REFUSED_BLOCK, REFUSED_DEAD_LETTER, REFUSED_SKIP, REFUSED_STOP };
	uint64_t seed = 1;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct failure_config policy = { .max_retries = 0, .first_delay_ms = 1, .max_delay_ms = 8, .then = all[i] };

		for (enum error_kind kind = 0; kind < ERROR_KIND_COUNT; kind++) {
			struct error why = { .kind = kind };
			struct event ev = { .attempt = 5, .failure = &why };
			struct hold h = verdict_hold(&policy, &ev, &seed);

			if (kind == ERROR_REJECTED)
				continue;
			assert_int_equal(h.kind, HOLD_RETRY);
			assert_int_equal(h.attempts, 5);
		}
	}
}

#define PAIR(topic, then) { .key = (char[]){ topic }, .value = (char[]){ then } }

static void the_first_topic_that_fits_decides(void **state _unused_)
{
	struct config_pair pairs[] = {
		PAIR("audit.*", "skip"), PAIR("audit.login", "stop"), PAIR("orders", "dead_letter"), PAIR("*", "block"),
	};
	struct failure_config policy = { .then = REFUSED_STOP, .topics = { pairs, 3 } };

	assert_int_equal(when_refused_of(&policy, SLICE_LITERAL("audit.login")), REFUSED_SKIP);
	assert_int_equal(when_refused_of(&policy, SLICE_LITERAL("audit.")), REFUSED_SKIP);
	assert_int_equal(when_refused_of(&policy, SLICE_LITERAL("audit")), REFUSED_STOP);
	assert_int_equal(when_refused_of(&policy, SLICE_LITERAL("orders")), REFUSED_DEAD_LETTER);
	assert_int_equal(when_refused_of(&policy, SLICE_LITERAL("orders2")), REFUSED_STOP);
	assert_int_equal(when_refused_of(&policy, SLICE_NULL), REFUSED_STOP);
	policy.topics.count = 4;
	assert_int_equal(when_refused_of(&policy, SLICE_LITERAL("orders2")), REFUSED_BLOCK);
}

static void a_letter_that_is_refused_is_judged_by_the_topic_it_was_meant_for(void **state _unused_)
{
	struct config_pair pairs[] = { PAIR("dead", "stop"), PAIR("orders", "dead_letter") };
	struct failure_config policy = { .topics = { pairs, 2 } };
	struct error why = { .kind = ERROR_REJECTED };
	struct event ev = {
		.failure = &why, .letter = true, .topic = SLICE_LITERAL("dead"), .meant_for = SLICE_LITERAL("orders"),
	};

	assert_int_equal(verdict_hold_kind(&policy, &ev), HOLD_BURY);
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
		cmocka_unit_test(jitter_is_the_part_of_a_delay_that_is_left_to_chance),
		cmocka_unit_test(a_policy_follows_the_last_retry_and_no_earlier_one),
		cmocka_unit_test(whoever_is_to_stop_does_so_at_the_first_refusal),
		cmocka_unit_test(what_is_not_the_rows_fault_uses_up_no_retry),
		cmocka_unit_test(the_first_topic_that_fits_decides),
		cmocka_unit_test(a_letter_that_is_refused_is_judged_by_the_topic_it_was_meant_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
