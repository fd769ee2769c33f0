/* Which events of the log are settled, and up to where without a gap: what may be confirmed to the server, and remembered.
 *
 * Events are numbered as they come. Rows that belong to one transaction share its place in the log, so a place is the end
 * of the last transaction that is settled as a whole, and how many events of the next one are, from its first on. Which ones
 * behind the gap are settled is remembered too, as a list of bits: the next life reads them again and passes over them. */
#ifndef POSTRIDER_READ_WAL_TALLY_H
#define POSTRIDER_READ_WAL_TALLY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Events that came and are not all settled, at most: those behind an unsettled one are remembered one by one. */
#define TALLY_SPAN (1u << 17)
#define TALLY_NOWHERE UINT64_MAX       /* as the commit record of events that are not from the log */

struct tally_place {
	uint64_t confirmed_lsn;         /* everything that was committed up to here is settled */
	uint64_t transaction_lsn;       /* of the commit record of a transaction that is settled in part; 0: none … */
	uint64_t transaction_rows;      /* … and how many of its events, from the first on */
};

struct tally_transaction {
	uint64_t first;                 /* number of its first event */
	uint64_t skipped;               /* of its first events: settled in an earlier life, and without a number */
	uint64_t commit_lsn;            /* of its commit record */
	uint64_t end_lsn;               /* behind that; 0: its end has not come yet */
	uint32_t xid;
};

struct tally {
	struct tally_place known;      /* up to where everything is settled */
	uint64_t head;                  /* the first event that is not known to be settled */
	uint64_t next;                  /* number of the next event */
	uint8_t *settled;               /* a bit for each event from head on, in a ring */
	struct tally_transaction *transactions;        /* from the one of `head` on, in a ring */
	uint32_t n_transactions, at, room;
	uint8_t *recalled;              /* bits of the first events: settled behind the gap in an earlier life */
	uint64_t n_recalled;
};

/* `from` is where an earlier life ended. */
void tally_init(struct tally *l, const struct tally_place *from);
/* What that life left behind the gap, as tally_preview wrote it. Before anything has come. */
void tally_recall(struct tally *l, const void *bits, size_t bytes);
/* Nothing is known of a part of a transaction, nor of what is behind a gap: events were counted in another way. */
void tally_forget_part(struct tally *l);
void tally_release(struct tally *l);

/* A transaction begins; its events follow, and its end. */
void tally_begin(struct tally *l, uint64_t commit_lsn, uint32_t xid);
/* An event of it. False: it was settled in an earlier life, and is nothing to us. */
bool tally_event(struct tally *l, uint64_t *ret_number);
void tally_end(struct tally *l, uint64_t end_lsn);
/* Outside of a transaction: the server has nothing for us up to here. Counts when nothing is on its way. */
void tally_pass(struct tally *l, uint64_t lsn);

/* The transaction of an event that is not known to be settled; 0: it is not from the log. */
uint32_t tally_xid(const struct tally *l, uint64_t number);

/* Events that came and are not all settled. */
uint64_t tally_span(const struct tally *l);

/* The event is settled. */
void tally_mark(struct tally *l, uint64_t number);
bool tally_is_marked(const struct tally *l, uint64_t number);
/* What the place would be if these were settled too: for the transaction in the database that settles them, which writes it
 * down. And which events behind it are, as bits, the lowest of a byte first. */
struct tally_place tally_preview(struct tally *l, const uint64_t *numbers, uint32_t n, struct buf *ret_behind);
/* Moves `known` to what the marks say. */
void tally_advance(struct tally *l);

#endif
