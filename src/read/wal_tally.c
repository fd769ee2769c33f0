#include "read/wal_tally.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"

enum { FIRST_ROOM = 64 };

void tally_init(struct tally *l, const struct tally_place *from)
{
	*l = (struct tally){ .known = *from, .room = FIRST_ROOM };
	l->settled = mem_new_array(uint8_t, TALLY_SPAN / 8);
	l->transactions = mem_new_array(struct tally_transaction, l->room);
}

void tally_release(struct tally *l)
{
	free(l->settled);
	free(l->transactions);
	free(l->recalled);
}

void tally_recall(struct tally *l, const void *bits, size_t bytes)
{
	free(l->recalled);
	l->recalled = mem_new_array(uint8_t, bytes + 1);
	if (bytes > 0)
		memcpy(l->recalled, bits, bytes);
	l->n_recalled = 8 * (uint64_t)bytes;
}

void tally_forget_part(struct tally *l)
{
	l->known.transaction_lsn = l->known.transaction_rows = 0;
	l->n_recalled = 0;
}

static struct tally_transaction *transaction(const struct tally *l, uint32_t i)
{
	return &l->transactions[(l->at + i) % l->room];
}

static void make_room(struct tally *l)
{
	struct tally_transaction *wider;

	if (l->n_transactions < l->room)
		return;
	wider = mem_new_array(struct tally_transaction, 2 * (size_t)l->room);
	for (uint32_t i = 0; i < l->n_transactions; i++)
		wider[i] = *transaction(l, i);
	free(l->transactions);
	l->transactions = wider;
	l->at = 0;
	l->room *= 2;
}

void tally_begin(struct tally *l, uint64_t commit_lsn, uint32_t xid)
{
	make_room(l);
	*transaction(l, l->n_transactions++) = (struct tally_transaction){
		.first = l->next,
		.commit_lsn = commit_lsn,
		.xid = xid,
	};
}

uint32_t tally_xid(const struct tally *l, uint64_t number)
{
	uint32_t low = 0, high = l->n_transactions;

	/* The last one that begins at or before the event; those without events begin where the next one does. */
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (transaction(l, middle)->first <= number)
			low = middle;
		else
			high = middle;
	}
	return transaction(l, low)->xid;
}

/* The server begins with whole transactions, of which some, and a part of another, were settled before. */
static bool was_settled(const struct tally *l, const struct tally_transaction *t)
{
	if (t->commit_lsn < l->known.confirmed_lsn)
		return true;
	return t->commit_lsn == l->known.transaction_lsn && t->skipped < l->known.transaction_rows && t->first == l->next;
}

static void unmark(struct tally *l, uint64_t number)
{
	l->settled[number % TALLY_SPAN / 8] &= (uint8_t)~(1u << number % 8);
}

static bool is_recalled(const struct tally *l, uint64_t number)
{
	return number < l->n_recalled && l->recalled[number / 8] & 1u << number % 8;
}

bool tally_event(struct tally *l, uint64_t *ret_number)
{
	struct tally_transaction *t = transaction(l, l->n_transactions - 1);

	if (was_settled(l, t)) {
		t->skipped++;
		return false;
	}
	*ret_number = l->next++;
	unmark(l, *ret_number);
	if (!is_recalled(l, *ret_number))
		return true;
	tally_mark(l, *ret_number);
	return false;
}

void tally_end(struct tally *l, uint64_t end_lsn)
{
	transaction(l, l->n_transactions - 1)->end_lsn = end_lsn;
	tally_advance(l);
}

void tally_pass(struct tally *l, uint64_t lsn)
{
	if (l->n_transactions == 0)
		l->known.confirmed_lsn = MAX(l->known.confirmed_lsn, lsn);
}

uint64_t tally_span(const struct tally *l)
{
	return l->next - l->head;
}

void tally_mark(struct tally *l, uint64_t number)
{
	l->settled[number % TALLY_SPAN / 8] |= (uint8_t)(1u << number % 8);
}

bool tally_is_marked(const struct tally *l, uint64_t number)
{
	return number < l->head || l->settled[number % TALLY_SPAN / 8] & 1u << number % 8;
}

static uint64_t first_unmarked(const struct tally *l)
{
	uint64_t number = l->head;

	while (number < l->next && tally_is_marked(l, number))
		number++;
	return number;
}

/* How many transactions end at or before this event, and all of their own are settled. */
static uint32_t whole_before(const struct tally *l, uint64_t number)
{
	uint32_t n = 0;

	while (n < l->n_transactions && transaction(l, n)->end_lsn != 0 &&
	       (n + 1 < l->n_transactions ? transaction(l, n + 1)->first : l->next) <= number)
		n++;
	return n;
}

static struct tally_place place_at(const struct tally *l, uint64_t number, uint32_t whole)
{
	struct tally_place place = { .confirmed_lsn = l->known.confirmed_lsn };

	if (whole > 0)
		place.confirmed_lsn = MAX(place.confirmed_lsn, transaction(l, whole - 1)->end_lsn);
	if (whole < l->n_transactions && transaction(l, whole)->commit_lsn != TALLY_NOWHERE) {
		const struct tally_transaction *t = transaction(l, whole);

		place.transaction_lsn = t->commit_lsn;
		place.transaction_rows = t->skipped + (number - t->first);
	}
	if (place.transaction_rows == 0)
		place.transaction_lsn = 0;
	/* What an earlier life settled of a transaction that has not come again yet is not to be forgotten. */
	if (place.transaction_lsn == 0 && l->known.transaction_lsn > place.confirmed_lsn) {
		place.transaction_lsn = l->known.transaction_lsn;
		place.transaction_rows = l->known.transaction_rows;
	}
	return place;
}

/* Of events that have not come again yet, an earlier life's word counts. */
static void write_behind(const struct tally *l, uint64_t first, struct buf *ret)
{
	uint64_t end = MAX(l->next, l->n_recalled);
	uint8_t byte = 0;
	size_t used = 0;

	buf_clear(ret);
	for (uint64_t number = first; number < end; number++) {
		uint64_t bit = number - first;

		if (number < l->next ? tally_is_marked(l, number) : is_recalled(l, number))
			byte |= (uint8_t)(1u << bit % 8);
		if (bit % 8 < 7 && number + 1 < end)
			continue;
		buf_add_char(ret, (char)byte);
		if (byte != 0)
			used = ret->len;
		byte = 0;
	}
	ret->len = used;
}

struct tally_place tally_preview(struct tally *l, const uint64_t *numbers, uint32_t n, struct buf *ret_behind)
{
	uint64_t number;

	for (uint32_t i = 0; i < n; i++)
		tally_mark(l, numbers[i]);
	number = first_unmarked(l);
	write_behind(l, number, ret_behind);
	for (uint32_t i = 0; i < n; i++)
		unmark(l, numbers[i]);
	return place_at(l, number, whole_before(l, number));
}

void tally_advance(struct tally *l)
{
	uint64_t number = first_unmarked(l);
	uint32_t whole = whole_before(l, number);

	l->known = place_at(l, number, whole);
	l->head = number;
	l->at = (l->at + whole) % l->room;
	l->n_transactions -= whole;
}
