/* Events between submit and their answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sink/nats_flight.h"

static struct flight f;
static struct event events[FLIGHT_MAX + 1];

static int fresh(void **state _unused_)
{
	flight_init(&f);
	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		events[i] = (struct event){ .topic = slice_of(i % 2 ? "odd" : "even") };
	return 0;
}

static void they_leave_in_the_order_of_the_queue(void **state _unused_)
{
	uint64_t number;

	for (int i = 0; i < 3; i++)
		assert_true(flight_add(&f, &events[i]));
	for (int i = 0; i < 3; i++)
		assert_ptr_equal(flight_send(&f, 1, &number), &events[i]);
	assert_null(flight_send(&f, 1, &number));
	assert_int_equal(flight_count(&f), 3);
}

static void an_answer_finds_its_event_once(void **state _unused_)
{
	uint64_t first, second;

	flight_add(&f, &events[0]);
	flight_add(&f, &events[1]);
	flight_send(&f, 1, &first);
	assert_null(flight_land(&f, 0));
	assert_null(flight_land(&f, first + FLIGHT_MAX));
	flight_send(&f, 1, &second);
	assert_ptr_equal(flight_land(&f, second), &events[1]);
	assert_ptr_equal(flight_land(&f, first), &events[0]);
	assert_null(flight_land(&f, first));
	assert_int_equal(flight_count(&f), 0);
}

/* The place is used again, its number is not. */
static void a_late_answer_finds_nothing(void **state _unused_)
{
	uint64_t late, number;

	flight_add(&f, &events[0]);
	flight_send(&f, 1, &late);
	assert_ptr_equal(flight_take(&f, NULL), &events[0]);
	flight_add(&f, &events[1]);
	flight_send(&f, 1, &number);
	assert_null(flight_land(&f, late));
	assert_ptr_equal(flight_land(&f, number), &events[1]);
}

static void it_is_full_at_its_limit_and_goes_round(void **state _unused_)
{
	uint64_t number;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < FLIGHT_MAX; i++)
			assert_true(flight_add(&f, &events[i]));
		assert_false(flight_add(&f, &events[FLIGHT_MAX]));
		for (int i = 0; i < FLIGHT_MAX; i++) {
			assert_ptr_equal(flight_send(&f, 1, &number), &events[i]);
			assert_ptr_equal(flight_land(&f, number), &events[i]);
		}
		assert_int_equal(flight_count(&f), 0);
	}
}

static void what_is_queued_is_neither_late_nor_taken(void **state _unused_)
{
	uint64_t number;

	flight_add(&f, &events[0]);
	assert_null(flight_expire(&f, 100));
	assert_null(flight_take(&f, NULL));
	assert_int_equal(flight_oldest(&f), CLOCK_NEVER);
	flight_send(&f, 50, &number);
	flight_add(&f, &events[1]);
	assert_int_equal(flight_oldest(&f), 50);
	assert_null(flight_expire(&f, 50));
	assert_ptr_equal(flight_expire(&f, 51), &events[0]);
	assert_ptr_equal(flight_unqueue(&f), &events[1]);
	assert_null(flight_unqueue(&f));
}

static void events_are_found_by_topic(void **state _unused_)
{
	struct slice odd = slice_of("odd");
	uint64_t number;

	for (int i = 0; i < 4; i++) {
		flight_add(&f, &events[i]);
		flight_send(&f, 1, &number);
	}
	assert_non_null(flight_take(&f, &odd));
	assert_non_null(flight_take(&f, &odd));
	assert_null(flight_take(&f, &odd));
	assert_int_equal(flight_count(&f), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(they_leave_in_the_order_of_the_queue, fresh),
		cmocka_unit_test_setup(an_answer_finds_its_event_once, fresh),
		cmocka_unit_test_setup(a_late_answer_finds_nothing, fresh),
		cmocka_unit_test_setup(it_is_full_at_its_limit_and_goes_round, fresh),
		cmocka_unit_test_setup(what_is_queued_is_neither_late_nor_taken, fresh),
		cmocka_unit_test_setup(events_are_found_by_topic, fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
