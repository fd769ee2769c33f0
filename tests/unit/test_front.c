#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <libpq-fe.h>

#include "base/macros.h"
#include "pg/array.h"
#include "read/front.h"
#include "read/hand.h"

enum { FIRST = 9, POLL_MS = 5000 };     /* FIRST: some number in a reader's table */

/* Two workers of one process. */
struct scene {
	struct outbox_config outbox;
	struct table table;
	struct hand hand;
	struct reader_env env;
	struct front one, other;
};

static void scene_init(struct scene *s, bool drawn_in_order)
{
	*s = (struct scene){ .outbox.poll_interval_ms = POLL_MS, .table.drawn_in_order = drawn_in_order };
	hand_init(&s->hand);
	s->env = (struct reader_env){ .outbox = &s->outbox, .table = &s->table, .hand = &s->hand };
	front_init(&s->one, &s->env, FIRST);
	front_init(&s->other, &s->env, FIRST);
}

static void scene_release(struct scene *s)
{
	front_release(&s->one);
	front_release(&s->other);
	hand_release(&s->hand);
}

static void floor_is(struct front *f, int64_t id)
{
	PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc field = { .name = (char *)"x", .format = 1, .typid = TYPE_INT8, .typlen = 8 };
	uint64_t bytes = htobe64((uint64_t)id);

	assert_int_equal(PQsetResultAttrs(res, 1, &field), 1);
	assert_int_equal(PQsetvalue(res, 0, 0, (char *)&bytes, sizeof(bytes)), 1);
	assert_true(front_take(f, FIRST + (f->known ? FRONT_NEXT : FRONT_FIRST), res));
	PQclear(res);
}

/* A walk that takes so long and finds all there is. */
static void walk(struct front *f, int64_t now, int64_t took)
{
	assert_false(front_serves(f, now));
	front_answered(f, true, true, true, now + took);
}

static void claims_walk_until_a_floor_is_known(void **state _unused_)
{
	struct scene s;

	scene_init(&s, true);
	walk(&s.one, 100000, 50);
	walk(&s.one, 100100, 50);
	floor_is(&s.one, 5);
	assert_true(front_serves(&s.one, 100200));
	walk(&s.other, 100300, 50);     /* each has its own */
	scene_release(&s);
}

static void quick_walks_need_no_floor(void **state _unused_)
{
	struct scene s;

	scene_init(&s, true);
	floor_is(&s.one, 5);
	walk(&s.one, 100000, 3);
	walk(&s.one, 100010, 20);       /* one of them had to wait */
	walk(&s.one, 100040, 1);
	walk(&s.one, 100050, 20);
	walk(&s.one, 100080, 20);       /* and now all of them do */
	assert_true(front_serves(&s.one, 100110));
	scene_release(&s);
}

static void where_rows_may_come_anywhere_there_is_no_floor(void **state _unused_)
{
	struct scene s;
	PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);

	scene_init(&s, false);
	assert_false(front_take(&s.one, FIRST + FRONT_FIRST, res));
	walk(&s.one, 100000, 1);
	walk(&s.one, 100010, 1);
	PQclear(res);
	scene_release(&s);
}

static void one_worker_walks_each_poll_interval(void **state _unused_)
{
	struct scene s;

	scene_init(&s, true);
	floor_is(&s.one, 5);
	floor_is(&s.other, 5);
	assert_false(front_serves(&s.one, 100000));
	walk(&s.other, 100000, 50);
	front_answered(&s.one, true, true, true, 100050);
	assert_true(front_serves(&s.one, 100050 + POLL_MS - 1));
	assert_false(front_serves(&s.one, 100050 + POLL_MS));
	assert_true(front_serves(&s.other, 100050 + POLL_MS));
	scene_release(&s);
}

static void a_slow_walk_is_made_more_seldom(void **state _unused_)
{
	struct scene s;

	scene_init(&s, true);
	floor_is(&s.one, 5);
	walk(&s.one, 100000, 1000);
	assert_true(front_serves(&s.one, 101000 + 3 * POLL_MS));
	assert_false(front_serves(&s.one, 101000 + 20000));
	scene_release(&s);
}

static void a_backlog_is_walked_over_as_long_as_that_is_quick(void **state _unused_)
{
	struct scene s;

	scene_init(&s, true);
	floor_is(&s.one, 5);
	walk(&s.one, 100000, 30);
	walk(&s.one, 100040, 30);
	assert_true(front_serves(&s.one, 100080));
	front_answered(&s.one, false, false, false, 100081);
	assert_false(front_serves(&s.one, 100090));
	front_answered(&s.one, false, false, false, 100130);    /* 40 ms */
	assert_true(front_serves(&s.one, 100140));
	front_answered(&s.one, true, true, false, 100141);
	assert_true(front_serves(&s.one, 100150));
	scene_release(&s);
}

static void who_finds_most_taken_walks_once(void **state _unused_)
{
	struct scene s;

	scene_init(&s, true);
	floor_is(&s.one, 5);
	walk(&s.one, 100000, 50);
	assert_true(front_serves(&s.one, 100100));
	front_answered(&s.one, false, false, true, 100101);
	assert_false(front_serves(&s.one, 100110));
	front_answered(&s.one, false, false, false, 100150);
	assert_true(front_serves(&s.one, 100160));
	scene_release(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(claims_walk_until_a_floor_is_known),
		cmocka_unit_test(quick_walks_need_no_floor),
		cmocka_unit_test(where_rows_may_come_anywhere_there_is_no_floor),
		cmocka_unit_test(one_worker_walks_each_poll_interval),
		cmocka_unit_test(a_slow_walk_is_made_more_seldom),
		cmocka_unit_test(a_backlog_is_walked_over_as_long_as_that_is_quick),
		cmocka_unit_test(who_finds_most_taken_walks_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
