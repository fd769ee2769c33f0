/* The tally against a model that remembers everything: random transactions, settled in random order, with restarts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/backoff.h"
#include "base/macros.h"
#include "read/wal_tally.h"

static struct tally_place preview(struct tally *l, const uint64_t *numbers, uint32_t n)
{
	_cleanup_(buf_release) struct buf ignored = { 0 };

	buf_init(&ignored, 1 << 20);
	return tally_preview(l, numbers, n, &ignored);
}

static void nothing_is_known_before_anything_came(void **state _unused_)
{
	struct tally l;
	struct tally_place place;

	tally_init(&l, &(struct tally_place){ .confirmed_lsn = 100 });
	place = preview(&l, NULL, 0);
	assert_int_equal(place.confirmed_lsn, 100);
	assert_int_equal(place.transaction_lsn, 0);
	tally_pass(&l, 150);
	assert_int_equal(l.known.confirmed_lsn, 150);
	tally_release(&l);
}

static void a_gap_holds_back_what_is_behind_it(void **state _unused_)
{
	struct tally l;
	uint64_t a, b, c;

	tally_init(&l, &(struct tally_place){ .confirmed_lsn = 100 });
	tally_begin(&l, 110, 7);
	assert_true(tally_event(&l, &a));
	assert_true(tally_event(&l, &b));
	tally_end(&l, 115);
	tally_begin(&l, 120, 7);
	assert_true(tally_event(&l, &c));
	tally_end(&l, 125);
	tally_mark(&l, b);
	tally_mark(&l, c);
	tally_advance(&l);
	assert_int_equal(l.known.confirmed_lsn, 100);
	assert_int_equal(tally_span(&l), 3);
	/* A preview changes nothing. */
	assert_int_equal(preview(&l, &a, 1).confirmed_lsn, 125);
	tally_advance(&l);
	assert_int_equal(l.known.confirmed_lsn, 100);
	/* Log behind what is not settled is not confirmed by a keepalive. */
	tally_pass(&l, 200);
	assert_int_equal(l.known.confirmed_lsn, 100);
	tally_mark(&l, a);
	tally_advance(&l);
	assert_int_equal(l.known.confirmed_lsn, 125);
	assert_int_equal(tally_span(&l), 0);
	tally_release(&l);
}

static void a_transaction_settled_in_part_goes_on_there(void **state _unused_)
{
	struct tally l;
	struct tally_place place;
	uint64_t number;

	tally_init(&l, &(struct tally_place){ .confirmed_lsn = 100 });
	tally_begin(&l, 110, 7);
	for (int i = 0; i < 10; i++) {
		assert_true(tally_event(&l, &number));
		if (i < 4 || i == 7)
			tally_mark(&l, number);
	}
	tally_advance(&l);
	place = l.known;
	assert_int_equal(place.confirmed_lsn, 100);
	assert_int_equal(place.transaction_lsn, 110);
	assert_int_equal(place.transaction_rows, 4);
	tally_release(&l);

	tally_init(&l, &place);
	/* What the log has before it was settled already, and is sent again. */
	tally_begin(&l, 90, 7);
	assert_false(tally_event(&l, &number));
	tally_end(&l, 95);
	assert_int_equal(l.known.transaction_rows, 4);
	tally_begin(&l, 110, 7);
	for (int i = 0; i < 10; i++)
		assert_int_equal(tally_event(&l, &number), i >= 4);
	tally_end(&l, 115);
	assert_int_equal(tally_span(&l), 6);
	for (uint64_t i = l.head; i < l.next; i++)
		tally_mark(&l, i);
	tally_advance(&l);
	assert_int_equal(l.known.confirmed_lsn, 115);
	assert_int_equal(l.known.transaction_lsn, 0);
	tally_release(&l);
}

static void events_from_before_the_log_have_no_place(void **state _unused_)
{
	struct tally l;
	uint64_t a, b;

	tally_init(&l, &(struct tally_place){ .confirmed_lsn = 100 });
	tally_begin(&l, TALLY_NOWHERE, 7);
	assert_true(tally_event(&l, &a));
	assert_true(tally_event(&l, &b));
	tally_mark(&l, a);
	tally_advance(&l);
	assert_int_equal(l.known.transaction_lsn, 0);
	assert_int_equal(l.known.confirmed_lsn, 100);
	tally_mark(&l, b);
	tally_advance(&l);
	tally_end(&l, 100);
	assert_int_equal(l.n_transactions, 0);
	tally_begin(&l, 110, 7);
	assert_true(tally_event(&l, &a));
	tally_mark(&l, a);
	tally_end(&l, 115);
	assert_int_equal(l.known.confirmed_lsn, 115);
	tally_release(&l);
}

/* --- a log of random transactions, read by one life after the other --------------------------------------------------- */

enum { TRANSACTIONS = 40, EVENTS_MAX = 12, LIVES = 30 };

struct story {
	uint64_t random;
	uint32_t events[TRANSACTIONS];          /* of each */
	bool settled[TRANSACTIONS][EVENTS_MAX]; /* in any life */
	struct buf behind;                      /* what the last life left behind its place */
};

static uint32_t below(struct story *s, uint32_t n)
{
	return (uint32_t)(random_next(&s->random) % n);
}

static uint64_t commit_of(uint32_t t)
{
	return 1000 + 10 * (uint64_t)t;
}

/* Nothing that the place says is settled may be unsettled. */
static void check_place(struct story *s, const struct tally_place *place)
{
	for (uint32_t t = 0; t < TRANSACTIONS; t++)
		for (uint32_t e = 0; e < s->events[t]; e++) {
			bool said = commit_of(t) < place->confirmed_lsn ||
				    (commit_of(t) == place->transaction_lsn && e < place->transaction_rows);

			assert_true(!said || s->settled[t][e]);
		}
}

/* Reads some of the log, settles some of it, and dies; returns the place that it left. */
static struct tally_place live(struct story *s, struct tally_place from, bool to_the_end)
{
	struct {
		uint64_t number;
		uint32_t t, e;
	} open[TRANSACTIONS * EVENTS_MAX];
	uint32_t n_open = 0, until = to_the_end ? TRANSACTIONS : below(s, TRANSACTIONS + 1);
	struct tally l;
	struct tally_place place;

	tally_init(&l, &from);
	tally_recall(&l, s->behind.data, s->behind.len);
	for (uint32_t t = 0; t < until; t++) {
		/* The server begins with the first transaction that is not confirmed, or somewhat before. */
		if (commit_of(t) + 50 < from.confirmed_lsn)
			continue;
		tally_begin(&l, commit_of(t), 100 + t);
		for (uint32_t e = 0; e < s->events[t]; e++) {
			uint64_t number;

			if (!tally_event(&l, &number)) {
				assert_true(s->settled[t][e]);
				continue;
			}
			assert_int_equal(tally_xid(&l, number), 100 + t);
			open[n_open].number = number;
			open[n_open].t = t;
			open[n_open++].e = e;
			while (n_open > 0 && below(s, 3) > 0) {
				uint32_t i = below(s, n_open);
				struct tally_place preview = tally_preview(&l, &open[i].number, 1, &s->behind);

				assert_int_equal(tally_xid(&l, open[i].number), 100 + open[i].t);
				/* Nothing is settled twice. */
				assert_false(s->settled[open[i].t][open[i].e]);
				s->settled[open[i].t][open[i].e] = true;
				check_place(s, &preview);
				tally_mark(&l, open[i].number);
				open[i] = open[--n_open];
				tally_advance(&l);
				assert_memory_equal(&preview, &l.known, sizeof(preview));
			}
		}
		tally_end(&l, commit_of(t) + 5);
	}
	for (; to_the_end && n_open > 0; n_open--) {
		tally_mark(&l, open[n_open - 1].number);
		s->settled[open[n_open - 1].t][open[n_open - 1].e] = true;
	}
	tally_advance(&l);
	place = tally_preview(&l, NULL, 0, &s->behind);
	assert_memory_equal(&place, &l.known, sizeof(place));
	check_place(s, &place);
	tally_release(&l);
	return place;
}

static void random_lives_lose_nothing_and_repeat_nothing(void **state _unused_)
{
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct story s = { .random = seed };
		struct tally_place place = { .confirmed_lsn = 1 };

		buf_init(&s.behind, 1 << 20);
		for (uint32_t t = 0; t < TRANSACTIONS; t++)
			s.events[t] = below(&s, 4) == 0 ? 0 : below(&s, EVENTS_MAX);
		for (int i = 0; i < LIVES; i++)
			place = live(&s, place, false);
		place = live(&s, place, true);
		assert_int_equal(place.confirmed_lsn, commit_of(TRANSACTIONS - 1) + 5);
		for (uint32_t t = 0; t < TRANSACTIONS; t++)
			for (uint32_t e = 0; e < s.events[t]; e++)
				assert_true(s.settled[t][e]);
		buf_release(&s.behind);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_known_before_anything_came),
		cmocka_unit_test(a_gap_holds_back_what_is_behind_it),
		cmocka_unit_test(a_transaction_settled_in_part_goes_on_there),
		cmocka_unit_test(events_from_before_the_log_have_no_place),
		cmocka_unit_test(random_lives_lose_nothing_and_repeat_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
