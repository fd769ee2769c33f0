#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/macros.h"
#include "sink/rabbitmq_confirms.h"

static struct confirms confirms;
static struct event events[CONFIRMS_MAX + 1];

static int begin(void **state _unused_)
{
	confirms_begin(&confirms);
	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		events[i] = (struct event){ .message_id = SLICE_LITERAL("m") };
	return 0;
}

static void add(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		confirms_add(&confirms, &events[i]);
}

static void expect_settled(uint64_t tag, bool multiple, struct event *expected, bool expected_returned)
{
	bool returned = false;

	assert_ptr_equal(confirms_settle(&confirms, tag, multiple, &returned), expected);
	assert_int_equal(returned, expected_returned);
}

static void an_answer_settles_one_or_all_up_to_it(void **state _unused_)
{
	add(5);
	expect_settled(2, false, &events[1], false);
	expect_settled(2, false, NULL, false);
	expect_settled(4, true, &events[0], false);
	expect_settled(4, true, &events[2], false);
	expect_settled(4, true, &events[3], false);
	expect_settled(4, true, NULL, false);
	assert_int_equal(confirms.count, 1);
	expect_settled(0, true, &events[4], false);
	assert_int_equal(confirms.count, 0);
	assert_int_equal(confirms.bytes, 0);
}

static void tags_that_were_never_given_settle_nothing(void **state _unused_)
{
	add(2);
	expect_settled(3, false, NULL, false);
	expect_settled(3, true, NULL, false);
	expect_settled(0, false, NULL, false);
	assert_int_equal(confirms.count, 2);
}

static void a_returned_message_is_found_by_its_id(void **state _unused_)
{
	events[1].message_id = SLICE_LITERAL("other");
	add(3);
	assert_true(confirms_return(&confirms, SLICE_LITERAL("other")));
	assert_false(confirms_return(&confirms, SLICE_LITERAL("nobody")));
	expect_settled(3, true, &events[0], false);
	expect_settled(3, true, &events[1], true);
	expect_settled(3, true, &events[2], false);
}

/* Several rows may have the same message id. */
static void returned_messages_with_one_id_are_told_apart_by_their_order(void **state _unused_)
{
	add(3);
	assert_true(confirms_return(&confirms, SLICE_LITERAL("m")));
	assert_true(confirms_return(&confirms, SLICE_LITERAL("m")));
	expect_settled(3, true, &events[0], true);
	expect_settled(3, true, &events[1], true);
	expect_settled(3, true, &events[2], false);
}

static void a_slot_is_not_used_twice_while_its_event_waits(void **state _unused_)
{
	add(CONFIRMS_MAX);
	assert_false(confirms_has_room(&confirms, &events[CONFIRMS_MAX]));
	for (uint64_t tag = 2; tag <= CONFIRMS_MAX; tag++)
		expect_settled(tag, false, &events[tag - 1], false);
	assert_false(confirms_has_room(&confirms, &events[CONFIRMS_MAX]));
	assert_true(confirms_return(&confirms, SLICE_LITERAL("m")));
	expect_settled(1, false, &events[0], true);
	assert_true(confirms_has_room(&confirms, &events[CONFIRMS_MAX]));
	/* The flag of the one before in its slot is not its own. */
	confirms_add(&confirms, &events[CONFIRMS_MAX]);
	expect_settled(CONFIRMS_MAX + 1, false, &events[CONFIRMS_MAX], false);
}

static void bytes_are_limited_but_one_event_always_fits(void **state _unused_)
{
	events[0].payload.len = 10 * (size_t)CONFIRMS_MAX_BYTES;
	assert_true(confirms_has_room(&confirms, &events[0]));
	confirms_add(&confirms, &events[0]);
	assert_false(confirms_has_room(&confirms, &events[1]));
	expect_settled(1, false, &events[0], false);
	assert_true(confirms_has_room(&confirms, &events[1]));
}

static void what_is_abandoned_comes_oldest_first(void **state _unused_)
{
	add(3);
	expect_settled(2, false, &events[1], false);
	assert_ptr_equal(confirms_abandon(&confirms), &events[0]);
	assert_ptr_equal(confirms_abandon(&confirms), &events[2]);
	assert_null(confirms_abandon(&confirms));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(an_answer_settles_one_or_all_up_to_it, begin),
		cmocka_unit_test_setup(tags_that_were_never_given_settle_nothing, begin),
		cmocka_unit_test_setup(a_returned_message_is_found_by_its_id, begin),
		cmocka_unit_test_setup(returned_messages_with_one_id_are_told_apart_by_their_order, begin),
		cmocka_unit_test_setup(a_slot_is_not_used_twice_while_its_event_waits, begin),
		cmocka_unit_test_setup(bytes_are_limited_but_one_event_always_fits, begin),
		cmocka_unit_test_setup(what_is_abandoned_comes_oldest_first, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
