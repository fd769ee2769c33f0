#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/macros.h"
#include "read/wal_parking.h"

static struct slice name(char text[16], unsigned i)
{
	return (struct slice){ text, (size_t)snprintf(text, 16, "order-%u", i) };
}

static void who_is_parked_is_found_and_nobody_else(void **state _unused_)
{
	struct parking p;
	char text[16];

	parking_init(&p);
	assert_null(parking_find(&p, slice_of("order-1")));
	for (unsigned i = 0; i < 1000; i++) {
		const struct parked *added = parking_add(&p, name(text, i));

		assert_ptr_equal(parking_find(&p, name(text, i)), added);
	}
	assert_int_equal(p.count, 1000);
	parking_add(&p, name(text, 7));
	assert_int_equal(p.count, 1000);
	for (unsigned i = 0; i < 1000; i += 2)
		parking_remove(&p, parking_find(&p, name(text, i)));
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(parking_find(&p, name(text, i)) != NULL, i % 2);
	assert_int_equal(p.count, 500);
	parking_release(&p);
}

/* What has no entity is parked together, as if its name were empty. */
static void no_name_is_a_name(void **state _unused_)
{
	struct parking p;

	parking_init(&p);
	parking_add(&p, SLICE_LITERAL(""));
	assert_non_null(parking_find(&p, SLICE_NULL));
	parking_release(&p);
}

static void an_entity_is_due_when_its_refusal_is_over(void **state _unused_)
{
	struct parking p;
	struct parked *a, *b, *due[4];

	parking_init(&p);
	a = parking_add(&p, slice_of("a"));
	b = parking_add(&p, slice_of("b"));
	/* Until the refusal is recorded nobody knows when. */
	assert_int_equal(parking_next_ms(&p), CLOCK_NEVER);
	assert_int_equal(parking_due(&p, 1000000, due, ARRAY_SIZE(due)), 0);
	parking_set_refused(a, slice_of("17"), 1, 2000);
	parking_set_refused(b, slice_of("18"), 1, 3000);
	assert_int_equal(parking_next_ms(&p), 2000);
	assert_int_equal(parking_due(&p, 1999, due, ARRAY_SIZE(due)), 0);
	assert_int_equal(parking_due(&p, 2000, due, ARRAY_SIZE(due)), 1);
	assert_ptr_equal(due[0], a);
	/* It is being read, then under way: not due again. */
	assert_int_equal(parking_next_ms(&p), 3000);
	a->fetching = false;
	a->in_flight = 2;
	assert_int_equal(parking_due(&p, 2500, due, ARRAY_SIZE(due)), 0);
	/* Refused again. */
	a->in_flight = 0;
	parking_set_refused(a, slice_of("17"), 2, 9000);
	assert_int_equal(parking_due(&p, 5000, due, ARRAY_SIZE(due)), 1);
	assert_ptr_equal(due[0], b);
	assert_int_equal(a->attempts, 2);
	parking_release(&p);
}

static void no_more_are_due_than_are_asked_for(void **state _unused_)
{
	struct parking p;
	struct parked *due[10];
	char text[16];

	parking_init(&p);
	for (unsigned i = 0; i < 25; i++)
		parking_set_refused(parking_add(&p, name(text, i)), SLICE_NULL, 0, 100);
	assert_int_equal(parking_due(&p, 100, due, 10), 10);
	assert_int_equal(parking_due(&p, 100, due, 10), 10);
	assert_int_equal(parking_due(&p, 100, due, 10), 5);
	assert_int_equal(parking_next_ms(&p), CLOCK_NEVER);
	parking_release(&p);
}

/* What a look at the database finds of one entity. */
static void list(struct parking *p, const char *entity, const char *row, uint32_t attempts, int64_t due_ms, bool stays)
{
	parking_list(p, &(struct parked){ .entity = slice_of(entity), .row_id = row ? slice_of(row) : SLICE_NULL,
					  .attempts = attempts, .due_ms = due_ms, .stays = stays });
}

static void who_is_put_aside_by_a_person_is_not_due_until_he_lets_it_go(void **state _unused_)
{
	struct parking p;
	struct parked *due[4];

	parking_init(&p);
	parking_begin_list(&p);
	list(&p, "a", NULL, 0, 5000, true);
	parking_end_list(&p, 1000);
	assert_int_equal(parking_next_ms(&p), CLOCK_NEVER);
	/* It is no longer in the list, and has nothing in the table: due, and found to be over. */
	parking_begin_list(&p);
	parking_end_list(&p, 2000);
	assert_int_equal(parking_due(&p, 2000, due, ARRAY_SIZE(due)), 1);
	assert_false(due[0]->stays);
	parking_release(&p);
}

static void a_list_changes_when_those_are_tried_again_that_wait(void **state _unused_)
{
	struct parking p;
	struct parked *a, *b, *c;

	parking_init(&p);
	a = parking_add(&p, slice_of("a"));
	b = parking_add(&p, slice_of("b"));
	c = parking_add(&p, slice_of("c"));
	parking_set_refused(a, slice_of("17"), 11, 1000000);
	parking_set_refused(b, slice_of("18"), 1, 9000);
	b->in_flight = 1;
	parking_begin_list(&p);
	list(&p, "a", "17", 0, 3000, false);
	list(&p, "b", "18", 0, 3000, true);
	parking_end_list(&p, 3000);
	assert_int_equal(a->due_ms, 3000);
	assert_int_equal(a->attempts, 0);
	/* Workers have something of it: what becomes of that comes first, but then it stays. */
	assert_int_equal(b->due_ms, 9000);
	assert_int_equal(parking_due_ms(b, 4000), CLOCK_NEVER);
	/* Its refusal is not in the database yet. */
	assert_int_equal(c->due_ms, CLOCK_NEVER);
	parking_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_put_aside_by_a_person_is_not_due_until_he_lets_it_go),
		cmocka_unit_test(a_list_changes_when_those_are_tried_again_that_wait),
		cmocka_unit_test(who_is_parked_is_found_and_nobody_else),
		cmocka_unit_test(no_name_is_a_name),
		cmocka_unit_test(an_entity_is_due_when_its_refusal_is_over),
		cmocka_unit_test(no_more_are_due_than_are_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
