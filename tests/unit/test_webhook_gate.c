#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sink/webhook_gate.h"

static struct sink_config config = { .name = (char *)"hook", .webhook = { .max_retry_after_ms = 60000 } };

static struct error why(enum error_kind kind)
{
	struct error err;

	error_set(&err, kind, "because");
	return err;
}

static void it_is_open_at_first(void **state _unused_)
{
	struct webhook_gate g;

	webhook_gate_init(&g, &config);
	assert_int_equal(webhook_gate_room(&g, 16, 1000), 16);
	webhook_gate_passed(&g, 1000);
	assert_int_equal(webhook_gate_room(&g, 16, 1000), 16);
	webhook_gate_release(&g);
}

static void after_a_pause_one_request_goes_and_opens_it(void **state _unused_)
{
	struct error away = why(ERROR_TRANSPORT);
	struct webhook_gate g;
	int64_t until;

	webhook_gate_init(&g, &config);
	webhook_gate_shut(&g, &away, -1, 1000);
	until = webhook_gate_until(&g);
	assert_in_range(until, 1001, 1200);
	assert_int_equal(webhook_gate_room(&g, 16, until - 1), 0);
	assert_int_equal(webhook_gate_room(&g, 16, until), 1);
	assert_true(breaker_is_open(&g.breaker));
	webhook_gate_passed(&g, until);
	assert_false(breaker_is_open(&g.breaker));
	assert_int_equal(webhook_gate_room(&g, 16, until), 16);
	webhook_gate_release(&g);
}

static void many_failures_at_once_are_one(void **state _unused_)
{
	struct error away = why(ERROR_TRANSPORT);
	struct webhook_gate g;
	int64_t now = 1000;

	webhook_gate_init(&g, &config);
	for (int i = 0; i < 100; i++)
		webhook_gate_shut(&g, &away, -1, now);
	assert_in_range(webhook_gate_until(&g), now, now + 200);
	for (int i = 0; i < 20; i++) {
		now = webhook_gate_until(&g);
		webhook_gate_shut(&g, &away, -1, now);
	}
	assert_in_range(webhook_gate_until(&g) - now, 5000, 10000);
	webhook_gate_release(&g);
}

static void it_waits_as_it_is_told_within_its_limit(void **state _unused_)
{
	struct error slow = why(ERROR_THROTTLED);
	struct webhook_gate g;

	webhook_gate_init(&g, &config);
	webhook_gate_shut(&g, &slow, 30000, 1000);
	assert_int_equal(webhook_gate_until(&g), 31000);
	/* What was under way comes in late: neither opens it, nor makes the pause shorter. */
	webhook_gate_passed(&g, 2000);
	webhook_gate_shut(&g, &slow, 5000, 2000);
	assert_int_equal(webhook_gate_room(&g, 16, 30999), 0);
	webhook_gate_shut(&g, &slow, 100000000, 3000);
	assert_int_equal(webhook_gate_until(&g), 63000);
	assert_true(breaker_is_open(&g.breaker));
	webhook_gate_release(&g);
}

static void no_time_at_all_is_a_pause_too(void **state _unused_)
{
	struct error slow = why(ERROR_THROTTLED);
	struct webhook_gate g;

	webhook_gate_init(&g, &config);
	webhook_gate_shut(&g, &slow, 0, 1000);
	assert_true(webhook_gate_until(&g) > 1000);
	webhook_gate_release(&g);
}

static void for_good_is_for_good(void **state _unused_)
{
	struct error gone = why(ERROR_CONFIG), away = why(ERROR_TRANSPORT), shown;
	struct webhook_gate g;
	int64_t since;

	webhook_gate_init(&g, &config);
	webhook_gate_shut_for_good(&g, &gone);
	webhook_gate_shut(&g, &away, 10, 1000);
	webhook_gate_passed(&g, 5000);
	assert_int_equal(webhook_gate_until(&g), CLOCK_NEVER);
	assert_int_equal(webhook_gate_room(&g, 16, CLOCK_NEVER - 1), 0);
	assert_true(breaker_look(&g.breaker, &since, &shown));
	assert_int_equal(shown.kind, ERROR_CONFIG);
	webhook_gate_release(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_open_at_first),
		cmocka_unit_test(after_a_pause_one_request_goes_and_opens_it),
		cmocka_unit_test(many_failures_at_once_are_one),
		cmocka_unit_test(it_waits_as_it_is_told_within_its_limit),
		cmocka_unit_test(no_time_at_all_is_a_pause_too),
		cmocka_unit_test(for_good_is_for_good),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
