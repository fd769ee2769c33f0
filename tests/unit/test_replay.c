/* How far a replay has come, and at what pace it goes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/macros.h"
#include "base/mem.h"
#include "read/replay.h"

/* --- the trail ------------------------------------------------------------------------------------------------ */

static void nothing_is_passed_before_the_first_row_is_finished(void **state _unused_)
{
	struct trail t;
	uint64_t a, b;

	trail_init(&t);
	assert_null(trail_last(&t));
	a = trail_add(&t, "1", "1", "x");
	b = trail_add(&t, "2", "2", "y");
	assert_string_equal(trail_last(&t)->id, "2");
	trail_finish(&t, b);
	assert_null(t.passed.id);
	assert_int_equal(t.open, 1);
	trail_finish(&t, a);
	assert_string_equal(t.passed.id, "2");
	assert_string_equal(trail_last(&t)->id, "2");
	assert_int_equal(t.open, 0);
	trail_release(&t);
}

static void what_is_given_up_is_in_nobodys_way(void **state _unused_)
{
	struct trail t;
	uint64_t b;

	trail_init(&t);
	trail_add(&t, "1", "1", "x");
	b = trail_add(&t, "2", "2", "y");
	trail_add(&t, "3", "3", "x");
	trail_give_up(&t, SLICE_LITERAL("x"));
	assert_int_equal(t.open, 1);
	assert_string_equal(t.passed.id, "1");
	trail_finish(&t, b);
	assert_string_equal(t.passed.id, "3");
	trail_release(&t);
}

static void after_a_rewind_only_what_was_open_is_read_again(void **state _unused_)
{
	struct trail t;
	uint64_t a, c, again;

	trail_init(&t);
	a = trail_add(&t, "1", "1", "x");
	trail_add(&t, "2", "2", "y");
	c = trail_add(&t, "3", "3", "z");
	trail_finish(&t, a);
	trail_finish(&t, c);
	trail_rewind(&t);
	assert_string_equal(trail_last(&t)->id, "1");
	assert_string_equal(buf_str(&t.ahead), "{\"3\"}");
	trail_finish(&t, c);    /* a number from before means nothing */
	again = trail_add(&t, "2", "2", "y");
	assert_int_equal(t.open, 1);
	trail_finish(&t, again);
	assert_string_equal(buf_str(&t.ahead), "{}");
	trail_release(&t);
}

/* A history in the table of a test: rows 1 to ROWS, of LANES lanes. */
enum { ROWS = 300, LANES = 7, SEEDS = 500 };

struct scene {
	struct trail trail;
	uint32_t finished[ROWS + 1];    /* how often */
	bool refused[LANES];
	uint64_t on_way[ROWS + 1];      /* number in the trail; 0: not on its way */
	uint64_t seed;
};

static bool chance(struct scene *s, uint32_t percent)
{
	return random_next(&s->seed) % 100 < percent;
}

/* As the statement of a page has it. */
static bool is_left_out(const struct scene *s, uint32_t row)
{
	char quoted[16];

	snprintf(quoted, sizeof(quoted), "\"%u\"", row);
	return s->refused[row % LANES] || strstr(buf_str(&s->trail.ahead), quoted);
}

static void read_page(struct scene *s)
{
	const struct trail_row *last = trail_last(&s->trail);
	uint32_t row = last ? (uint32_t)atoi(last->id) + 1 : 1, left = 1 + (uint32_t)(random_next(&s->seed) % 20);

	for (; row <= ROWS && left > 0; row++) {
		char id[16], lane[16];

		if (is_left_out(s, row))
			continue;
		snprintf(id, sizeof(id), "%u", row);
		snprintf(lane, sizeof(lane), "%u", row % LANES);
		assert_int_equal(s->on_way[row], 0);
		s->on_way[row] = trail_add(&s->trail, id, id, lane);
		left--;
	}
}

static void finish_some(struct scene *s)
{
	for (uint32_t row = 1; row <= ROWS; row++) {
		if (s->on_way[row] == 0 || !chance(s, 30))
			continue;
		trail_finish(&s->trail, s->on_way[row]);
		s->on_way[row] = 0;
		s->finished[row]++;
	}
}

static void refuse_one(struct scene *s)
{
	uint32_t lane = (uint32_t)(random_next(&s->seed) % LANES);
	char name[16];

	snprintf(name, sizeof(name), "%u", lane);
	s->refused[lane] = true;
	trail_give_up(&s->trail, slice_of(name));
	for (uint32_t row = lane ? lane : LANES; row <= ROWS; row += LANES)
		s->on_way[row] = 0;
}

static void lose_connection(struct scene *s)
{
	trail_rewind(&s->trail);
	memset(s->on_way, 0, sizeof(s->on_way));
}

static void check_passed(const struct scene *s)
{
	uint32_t passed = s->trail.passed.id ? (uint32_t)atoi(s->trail.passed.id) : 0, open = 0;

	for (uint32_t row = 1; row <= ROWS; row++) {
		assert_true(s->finished[row] <= 1);
		if (row <= passed)
			assert_true(s->finished[row] == 1 || s->refused[row % LANES]);
		open += s->on_way[row] != 0;
	}
	assert_int_equal(s->trail.open, open);
}

static bool is_over(const struct scene *s)
{
	for (uint32_t row = 1; row <= ROWS; row++)
		if (s->finished[row] == 0 && !s->refused[row % LANES])
			return false;
	return true;
}

static void each_row_is_finished_once_whatever_happens(void **state _unused_)
{
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct scene s = { .seed = seed };
		uint32_t steps = 0;

		trail_init(&s.trail);
		while (!is_over(&s)) {
			assert_true(++steps < 100000);
			read_page(&s);
			finish_some(&s);
			if (chance(&s, 5))
				lose_connection(&s);
			if (chance(&s, 1))
				refuse_one(&s);
			check_passed(&s);
		}
		trail_release(&s.trail);
	}
}

/* --- the rate ------------------------------------------------------------------------------------------------- */

static void without_a_rate_everything_is_granted(void **state _unused_)
{
	struct replay r = { 0 };
	int64_t wait;

	assert_int_equal(replay_grant(&r, 12345, 77, &wait), 12345);
	assert_int_equal(wait, 0);
}

/* However it is asked, at no time are there more rows than the rate allows since the beginning, nor many fewer. */
static void rows_never_come_faster_than_the_rate(void **state _unused_)
{
	static const int64_t rates[] = { 1, 3, 10, 999, 1000, 100000, 1000000 };

	for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
		struct replay r = { .rate = rates[i] };
		int64_t began_us = 5000000, now_us = began_us, rows = 0, wait;

		while (now_us < began_us + 20000000) {
			uint32_t granted = replay_grant(&r, 500, now_us, &wait);

			if (granted == 0) {
				assert_true(wait > 0 && wait <= 1001);
				now_us += wait * 1000;
				continue;
			}
			rows += granted;
			replay_spend(&r, granted);
			assert_true(rows * 1000000 <= (now_us - began_us) * rates[i]);
			now_us += 100;
		}
		assert_true(rows >= 20 * MIN(rates[i], 400000) * 8 / 10 - 1);
	}
}

static void a_pause_is_not_made_up_for(void **state _unused_)
{
	struct replay r = { .rate = 100 };
	int64_t wait;

	assert_int_equal(replay_grant(&r, 500, 1000000, &wait), 0);
	assert_int_equal(replay_grant(&r, 500, 100000000, &wait), 10);
	replay_spend(&r, 10);
	assert_int_equal(replay_grant(&r, 500, 100000000, &wait), 0);
	/* A page that brought less than was granted leaves the rest. */
	assert_int_equal(replay_grant(&r, 500, 100100000, &wait), 10);
	replay_spend(&r, 4);
	assert_int_equal(replay_grant(&r, 6, 100100000, &wait), 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_passed_before_the_first_row_is_finished),
		cmocka_unit_test(what_is_given_up_is_in_nobodys_way),
		cmocka_unit_test(after_a_rewind_only_what_was_open_is_read_again),
		cmocka_unit_test(each_row_is_finished_once_whatever_happens),
		cmocka_unit_test(without_a_rate_everything_is_granted),
		cmocka_unit_test(rows_never_come_faster_than_the_rate),
		cmocka_unit_test(a_pause_is_not_made_up_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
