#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "relay/bell.h"

enum { WATCHDOG_MS = 5000, WORKERS = 4, STAND_IN_MS = 1000 };

/* --- workers on a virtual clock ------------------------------------------------------------------------------- */

/* A bell and the workers around it. Each follows the protocol of feed.c: note the rings, claim, sleep if allowed. */
struct tower {
	struct bell bell;
	struct mailbox boxes[WORKERS];
	struct {
		uint64_t seen;
		int64_t until;          /* asleep until then; CLOCK_NEVER: for good */
	} workers[WORKERS];
	uint32_t n;
	uint32_t looks;
};

static void tower_open(struct tower *t, uint32_t workers, bool deaf)
{
	*t = (struct tower){ .n = workers };
	bell_init(&t->bell, WATCHDOG_MS);
	for (uint32_t i = 0; i < workers; i++) {
		mailbox_init(&t->boxes[i]);
		assert_int_equal(bell_add_worker(&t->bell, &t->boxes[i]), i);
	}
	bell_set_deaf(&t->bell, deaf);
}

static void tower_close(struct tower *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		mailbox_release(&t->boxes[i]);
}

static void look(struct tower *t, uint32_t w, uint32_t rows, int64_t now)
{
	t->workers[w].seen = bell_rings(&t->bell);
	bell_claimed(&t->bell, rows, now);
	t->looks++;
}

static bool lie_down(struct tower *t, uint32_t w, int64_t now)
{
	return bell_sleep(&t->bell, w, t->workers[w].seen, now, &t->workers[w].until);
}

/* Looks in vain at `now` and falls asleep. */
static int64_t sleep_after_look(struct tower *t, uint32_t w, int64_t now)
{
	look(t, w, 0, now);
	assert_true(lie_down(t, w, now));
	return t->workers[w].until;
}

/* True when the worker was woken since the last time that this was asked. */
static bool was_woken(struct tower *t, uint32_t w)
{
	uint64_t count;

	return read(t->boxes[w].fd, &count, sizeof(count)) == sizeof(count);
}

static uint32_t count_woken(struct tower *t)
{
	uint32_t woken = 0;

	for (uint32_t i = 0; i < t->n; i++)
		woken += was_woken(t, i);
	return woken;
}

/* Whoever's time has come wakes up, and looks if there is reason to. */
static void pass_time(struct tower *t, int64_t from, int64_t to)
{
	for (int64_t now = from; now < to; now++) {
		for (uint32_t i = 0; i < t->n; i++) {
			if (t->workers[i].until > now)
				continue;
			bell_awake(&t->bell, i);
			if (lie_down(t, i, now))
				continue;
			look(t, i, 0, now);
			assert_true(lie_down(t, i, now));
		}
	}
}

/* --- ringing -------------------------------------------------------------------------------------------------- */

static void a_ring_wakes_one_sleeper(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 3, false);
	for (uint32_t i = 0; i < t.n; i++)
		sleep_after_look(&t, i, 0);
	for (uint32_t left = 3; left > 0; left--) {
		bell_ring(&t.bell);
		assert_int_equal(count_woken(&t), 1);
	}
	bell_ring(&t.bell);
	assert_int_equal(count_woken(&t), 0);
	tower_close(&t);
}

static void rings_go_round_among_the_sleepers(void **state _unused_)
{
	uint32_t woken[3] = { 0 };
	struct tower t;

	tower_open(&t, 3, false);
	for (int round = 0; round < 30; round++) {
		for (uint32_t i = 0; i < t.n; i++)
			sleep_after_look(&t, i, 0);
		bell_ring(&t.bell);
		for (uint32_t i = 0; i < t.n; i++) {
			woken[i] += was_woken(&t, i);
			bell_awake(&t.bell, i);
		}
	}
	for (uint32_t i = 0; i < t.n; i++)
		assert_int_equal(woken[i], 10);
	tower_close(&t);
}

static void ringing_for_all_wakes_every_sleeper_and_nobody_else(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 3, false);
	for (uint32_t i = 0; i < t.n; i++)
		sleep_after_look(&t, i, 0);
	bell_awake(&t.bell, 1);
	bell_ring_all(&t.bell);
	assert_true(was_woken(&t, 0));
	assert_false(was_woken(&t, 1));
	assert_true(was_woken(&t, 2));
	/* The one that was up and had looked before it rang does not lie down without looking again. */
	assert_false(lie_down(&t, 1, 0));
	tower_close(&t);
}

static void ringing_for_one_worker_wakes_that_one(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 3, false);
	for (uint32_t i = 0; i < t.n; i++)
		sleep_after_look(&t, i, 0);
	bell_ring_worker(&t.bell, 2);
	assert_false(was_woken(&t, 0));
	assert_false(was_woken(&t, 1));
	assert_true(was_woken(&t, 2));
	/* It rang before it lay down: then it looks first. */
	bell_awake(&t.bell, 2);
	look(&t, 2, 0, 0);
	bell_ring_worker(&t.bell, 2);
	assert_false(lie_down(&t, 2, 0));
	tower_close(&t);
}

static void nobody_sleeps_when_it_rang_since_the_claim(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 1, false);
	look(&t, 0, 0, 0);
	bell_ring(&t.bell);
	assert_false(lie_down(&t, 0, 0));
	assert_false(atomic_load(&t.bell.asleep[0]));
	look(&t, 0, 0, 0);
	assert_true(lie_down(&t, 0, 0));
	tower_close(&t);
}

static void a_worker_that_is_up_is_not_woken(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 2, false);
	sleep_after_look(&t, 0, 0);
	sleep_after_look(&t, 1, 0);
	bell_awake(&t.bell, 0);
	bell_ring(&t.bell);
	assert_false(was_woken(&t, 0));
	assert_true(was_woken(&t, 1));
	tower_close(&t);
}

/* --- watching the clock --------------------------------------------------------------------------------------- */

static void the_first_sleeper_watches_the_clock_and_the_others_stand_in(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 3, false);
	assert_int_equal(sleep_after_look(&t, 0, 1000), 1000 + WATCHDOG_MS);
	assert_int_equal(sleep_after_look(&t, 1, 1000), 1000 + WATCHDOG_MS + STAND_IN_MS);
	assert_int_equal(sleep_after_look(&t, 2, 1000), 1000 + WATCHDOG_MS + STAND_IN_MS);
	tower_close(&t);
}

static void while_the_first_is_up_the_next_one_watches_the_clock(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 2, false);
	sleep_after_look(&t, 0, 1000);
	bell_awake(&t.bell, 0);
	assert_int_equal(sleep_after_look(&t, 1, 1000), 1000 + WATCHDOG_MS);
	tower_close(&t);
}

static void it_is_time_to_look_when_the_watchdog_says_so(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 1, false);
	sleep_after_look(&t, 0, 1000);
	bell_awake(&t.bell, 0);
	assert_true(lie_down(&t, 0, 1000 + WATCHDOG_MS - 1));
	bell_awake(&t.bell, 0);
	assert_false(lie_down(&t, 0, 1000 + WATCHDOG_MS));
	tower_close(&t);
}

static void when_the_first_is_stuck_another_one_looks_a_second_later(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 3, false);
	for (uint32_t i = 0; i < t.n; i++)
		sleep_after_look(&t, i, 0);
	t.workers[0].until = CLOCK_NEVER;
	t.looks = 0;
	pass_time(&t, 0, WATCHDOG_MS + STAND_IN_MS);
	assert_int_equal(t.looks, 0);
	pass_time(&t, WATCHDOG_MS + STAND_IN_MS, WATCHDOG_MS + STAND_IN_MS + 1);
	assert_int_equal(t.looks, 1);
	tower_close(&t);
}

static void an_idle_node_looks_once_per_interval_however_many_workers_it_has(void **state _unused_)
{
	struct tower t;

	tower_open(&t, WORKERS, false);
	for (uint32_t i = 0; i < t.n; i++)
		sleep_after_look(&t, i, 0);
	t.looks = 0;
	pass_time(&t, 0, 60 * 1000);
	assert_int_equal(t.looks, 60 * 1000 / WATCHDOG_MS - 1);
	tower_close(&t);
}

/* --- an entity that is due ------------------------------------------------------------------------------------ */

static void an_entity_that_is_due_earlier_shortens_the_sleep(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 1, false);
	look(&t, 0, 0, 1000);
	bell_due(&t.bell, 3000);
	assert_true(lie_down(&t, 0, 1000));
	assert_int_equal(t.workers[0].until, 3000);
	bell_awake(&t.bell, 0);
	assert_false(lie_down(&t, 0, 3000));
	tower_close(&t);
}

static void only_the_earliest_due_time_is_kept(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 1, false);
	look(&t, 0, 0, 1000);
	bell_due(&t.bell, 3000);
	bell_due(&t.bell, 4000);
	assert_true(lie_down(&t, 0, 1000));
	assert_int_equal(t.workers[0].until, 3000);
	bell_due(&t.bell, 2000);
	assert_true(lie_down(&t, 0, 1000));
	assert_int_equal(t.workers[0].until, 2000);
	tower_close(&t);
}

static void a_due_time_stands_until_somebody_has_claimed_after_it(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 1, false);
	bell_due(&t.bell, 3000);
	assert_int_equal(sleep_after_look(&t, 0, 2999), 3000);
	assert_int_equal(sleep_after_look(&t, 0, 3000), 3000 + WATCHDOG_MS);
	tower_close(&t);
}

static void a_due_time_later_than_the_watchdog_waits_for_its_turn(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 1, false);
	bell_due(&t.bell, 60000);
	assert_int_equal(sleep_after_look(&t, 0, 0), WATCHDOG_MS);
	assert_int_equal(sleep_after_look(&t, 0, 58000), 60000);
	tower_close(&t);
}

/* One that sleeps already does not hear of it; who set the time looks in then, as a stand-in. */
static void a_due_time_is_met_within_a_second_while_others_sleep(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 2, false);
	sleep_after_look(&t, 0, 0);
	look(&t, 1, 0, 0);
	bell_due(&t.bell, 500);
	assert_true(lie_down(&t, 1, 0));
	t.looks = 0;
	pass_time(&t, 0, 500);
	assert_int_equal(t.looks, 0);
	pass_time(&t, 500, 500 + STAND_IN_MS + 1);
	assert_int_equal(t.looks, 1);
	tower_close(&t);
}

/* --- when nobody rings ---------------------------------------------------------------------------------------- */

static void while_deaf_looks_follow_soon_after_work_and_then_ever_less_often(void **state _unused_)
{
	static const int64_t waits[] = { 4, 8, 16, 32, 64, 100, 100, 100 };
	struct tower t;

	tower_open(&t, 1, true);
	look(&t, 0, 50, 1000);
	assert_true(lie_down(&t, 0, 1000));
	assert_int_equal(t.workers[0].until, 1002);
	for (size_t i = 0; i < ARRAY_SIZE(waits); i++)
		assert_int_equal(sleep_after_look(&t, 0, 1000) - 1000, waits[i]);
	look(&t, 0, 1, 1000);
	assert_true(lie_down(&t, 0, 1000));
	assert_int_equal(t.workers[0].until, 1002);
	tower_close(&t);
}

static void while_deaf_the_watchdog_still_sets_the_longest_wait(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 1, true);
	t.bell.watchdog_ms = 10;
	for (int i = 0; i < 8; i++)
		assert_in_range(sleep_after_look(&t, 0, 0), 1, 10);
	assert_int_equal(sleep_after_look(&t, 0, 0), 10);
	tower_close(&t);
}

static void a_deaf_idle_node_looks_ten_times_a_second(void **state _unused_)
{
	struct tower t;

	tower_open(&t, WORKERS, true);
	for (uint32_t i = 0; i < t.n; i++)
		sleep_after_look(&t, i, 0);
	pass_time(&t, 0, 1000);
	t.looks = 0;
	pass_time(&t, 1000, 11000);
	assert_in_range(t.looks, 99, 101);
	tower_close(&t);
}

static void a_bell_is_deaf_until_somebody_listens(void **state _unused_)
{
	struct bell b;

	bell_init(&b, WATCHDOG_MS);
	assert_true(atomic_load(&b.deaf));
}

/* Rows that came while nobody could ring are found at once. */
static void losing_and_regaining_the_ear_rings_once(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 2, false);
	for (int deaf = 1; deaf >= 0; deaf--) {
		sleep_after_look(&t, 0, 0);
		sleep_after_look(&t, 1, 0);
		bell_set_deaf(&t.bell, deaf);
		assert_int_equal(count_woken(&t), 1);
		bell_set_deaf(&t.bell, deaf);
		assert_int_equal(count_woken(&t), 0);
	}
	tower_close(&t);
}

static void a_node_that_hears_again_relies_on_the_bell(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 1, true);
	assert_int_equal(sleep_after_look(&t, 0, 0), 2);
	bell_set_deaf(&t.bell, false);
	assert_int_equal(sleep_after_look(&t, 0, 0), WATCHDOG_MS);
	tower_close(&t);
}

static void rows_are_added_up(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 2, false);
	look(&t, 0, 7, 0);
	look(&t, 1, 0, 0);
	look(&t, 1, 5, 0);
	assert_int_equal(atomic_load(&t.bell.rows), 12);
	tower_close(&t);
}

/* --- threads: no ring is lost --------------------------------------------------------------------------------- */

enum { ROUNDS = 50000, BURST = 3, LOST_AFTER_MS = 3000 };

/* Somebody writes rows and rings; sleepers claim them. Time stands still, so that only a ring can wake anybody. */
struct market {
	struct bell bell;
	struct mailbox boxes[WORKERS];
	_Atomic uint32_t pending, claimed;
	_Atomic bool stop, lost;
};

struct sleeper {
	pthread_t thread;
	struct market *market;
	uint32_t number;
};

static uint32_t claim(struct market *m, uint32_t want)
{
	uint32_t there = atomic_load(&m->pending), take;

	do
		take = MIN(there, want);
	while (!atomic_compare_exchange_weak(&m->pending, &there, there - take));
	atomic_fetch_add(&m->claimed, take);
	return take;
}

static void wait_for_a_ring(struct market *m, uint32_t w)
{
	struct pollfd p = { .fd = m->boxes[w].fd, .events = POLLIN };

	if (poll(&p, 1, LOST_AFTER_MS) == 0 && atomic_load(&m->pending) > 0)
		atomic_store(&m->lost, true);
	mailbox_take(&m->boxes[w]);
}

static void *sleep_and_claim(void *arg)
{
	struct sleeper *s = arg;
	struct market *m = s->market;
	bool hungry = true;
	uint64_t seen = 0;
	int64_t until;

	while (!atomic_load(&m->stop)) {
		bell_awake(&m->bell, s->number);
		if (hungry) {
			uint32_t rows;

			seen = bell_rings(&m->bell);
			rows = claim(m, 1);
			bell_claimed(&m->bell, rows, 0);
			hungry = rows > 0;
			if (hungry) {
				/* There may be more than one worker's share. */
				bell_ring(&m->bell);
				seen++;
			}
			continue;
		}
		if (bell_sleep(&m->bell, s->number, seen, 0, &until))
			wait_for_a_ring(m, s->number);
		else
			hungry = true;
	}
	return NULL;
}

/* Meets the sleepers in any state: still busy, lying down, asleep. */
static void dawdle(uint32_t turns)
{
	static _Atomic uint32_t nothing;

	for (uint32_t i = 0; i < turns; i++)
		atomic_fetch_add_explicit(&nothing, 1, memory_order_relaxed);
}

static uint32_t write_and_ring(struct market *m, uint32_t rounds)
{
	uint32_t rung = 0;

	for (uint32_t round = 0; round < rounds; round++) {
		for (uint32_t left = 1 + round % BURST; left > 0; left--, rung++) {
			atomic_fetch_add(&m->pending, 1);
			bell_ring(&m->bell);
		}
		while (atomic_load(&m->pending) > 0) {
			if (atomic_load(&m->lost))
				return rung;
			sched_yield();
		}
		dawdle(round % 97);
	}
	return rung;
}

static void ring_for(uint32_t workers)
{
	struct sleeper sleepers[WORKERS];
	struct market m = { 0 };
	uint32_t rung;

	bell_init(&m.bell, 3600 * 1000);
	for (uint32_t i = 0; i < workers; i++) {
		mailbox_init(&m.boxes[i]);
		bell_add_worker(&m.bell, &m.boxes[i]);
	}
	bell_set_deaf(&m.bell, false);
	for (uint32_t i = 0; i < workers; i++) {
		sleepers[i] = (struct sleeper){ .market = &m, .number = i };
		assert_int_equal(pthread_create(&sleepers[i].thread, NULL, sleep_and_claim, &sleepers[i]), 0);
	}
	rung = write_and_ring(&m, ROUNDS);
	atomic_store(&m.stop, true);
	for (uint32_t i = 0; i < workers; i++)
		mailbox_wake(&m.boxes[i]);
	for (uint32_t i = 0; i < workers; i++) {
		pthread_join(sleepers[i].thread, NULL);
		mailbox_release(&m.boxes[i]);
	}
	assert_false(m.lost);
	assert_int_equal(m.claimed, rung);
}

static void no_ring_is_lost_between_looking_and_falling_asleep(void **state _unused_)
{
	ring_for(1);
	ring_for(2);
	ring_for(WORKERS);
}

static bool is_woken(struct mailbox *m)
{
	struct pollfd p = { .fd = m->fd, .events = POLLIN };
	bool woken = poll(&p, 1, 0) > 0;

	mailbox_take(m);        /* and the descriptor is quiet again */
	return woken;
}

/* Also those that are awake: who is hungry and may not claim does not lie down. */
static void a_pause_and_its_end_wake_everybody_once(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 2, false);
	look(&t, 0, 0, 0);
	assert_true(lie_down(&t, 0, 0));
	for (uint32_t i = 0; i < 2; i++)
		is_woken(&t.boxes[i]);
	for (int paused = 1; paused >= 0; paused--) {
		bell_set_paused(&t.bell, paused);
		assert_int_equal(bell_is_paused(&t.bell), paused);
		assert_true(is_woken(&t.boxes[0]) && is_woken(&t.boxes[1]));
		bell_set_paused(&t.bell, paused);
		assert_false(is_woken(&t.boxes[0]) || is_woken(&t.boxes[1]));
	}
	tower_close(&t);
}

static void steering_is_counted_and_rings_for_all(void **state _unused_)
{
	struct tower t;

	tower_open(&t, 2, false);
	for (uint32_t i = 0; i < 2; i++) {
		look(&t, i, 0, 0);
		assert_true(lie_down(&t, i, 0));
	}
	bell_steer(&t.bell);
	assert_int_equal(bell_steers(&t.bell), 1);
	assert_false(atomic_load(&t.bell.asleep[0]) || atomic_load(&t.bell.asleep[1]));
	tower_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ring_wakes_one_sleeper),
		cmocka_unit_test(rings_go_round_among_the_sleepers),
		cmocka_unit_test(ringing_for_all_wakes_every_sleeper_and_nobody_else),
		cmocka_unit_test(ringing_for_one_worker_wakes_that_one),
		cmocka_unit_test(nobody_sleeps_when_it_rang_since_the_claim),
		cmocka_unit_test(a_worker_that_is_up_is_not_woken),
		cmocka_unit_test(the_first_sleeper_watches_the_clock_and_the_others_stand_in),
		cmocka_unit_test(while_the_first_is_up_the_next_one_watches_the_clock),
		cmocka_unit_test(it_is_time_to_look_when_the_watchdog_says_so),
		cmocka_unit_test(when_the_first_is_stuck_another_one_looks_a_second_later),
		cmocka_unit_test(an_idle_node_looks_once_per_interval_however_many_workers_it_has),
		cmocka_unit_test(an_entity_that_is_due_earlier_shortens_the_sleep),
		cmocka_unit_test(only_the_earliest_due_time_is_kept),
		cmocka_unit_test(a_due_time_stands_until_somebody_has_claimed_after_it),
		cmocka_unit_test(a_due_time_later_than_the_watchdog_waits_for_its_turn),
		cmocka_unit_test(a_due_time_is_met_within_a_second_while_others_sleep),
		cmocka_unit_test(while_deaf_looks_follow_soon_after_work_and_then_ever_less_often),
		cmocka_unit_test(while_deaf_the_watchdog_still_sets_the_longest_wait),
		cmocka_unit_test(a_deaf_idle_node_looks_ten_times_a_second),
		cmocka_unit_test(a_bell_is_deaf_until_somebody_listens),
		cmocka_unit_test(losing_and_regaining_the_ear_rings_once),
		cmocka_unit_test(a_node_that_hears_again_relies_on_the_bell),
		cmocka_unit_test(rows_are_added_up),
		cmocka_unit_test(a_pause_and_its_end_wake_everybody_once),
		cmocka_unit_test(steering_is_counted_and_rings_for_all),
		cmocka_unit_test(no_ring_is_lost_between_looking_and_falling_asleep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
