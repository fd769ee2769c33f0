/* What has come from the log and is not settled yet: pages of rows, the numbers of their events (read/wal_tally.h), and what
 * is to become of each: workers publish it, or it is parked because its entity is. Belongs to the leader.
 *
 * Rows that were in the table before the slot come through here as well, read by SQL; for the tally they are one transaction
 * without a place in the log. */
#ifndef POSTRIDER_READ_WAL_FLOW_H
#define POSTRIDER_READ_WAL_FLOW_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "pg/wal_frame.h"
#include "read/pool.h"
#include "read/wal_tally.h"
#include "read/wal_page.h"
#include "read/wal_parking.h"

/* A row's address says where it comes from: the letter, and for some its number in that table. */
enum origin {
	ORIGIN_LOG = 0,                 /* empty: an insert in the log */
	ORIGIN_MESSAGE = 'm',           /* a logical message in the log */
	ORIGIN_BACKLOG = 'b',           /* in the table before the slot was made: number in postrider.wal_backlog */
	ORIGIN_PARKED = 'p',            /* number in postrider.parked: a row of the table … */
	ORIGIN_PARKED_MESSAGE = 'q',    /* … or a message */
};

enum fate { FATE_PUBLISH, FATE_PARK };

struct flow_page {
	struct shared_rows *rows;
	uint64_t first, last;           /* numbers of its first and last event; some between may have no row */
	uint32_t left;                  /* rows that are not settled */
	size_t bytes;
	uint8_t *fates;                 /* of each row */
};

/* A message that makes no event: put aside as it is. */
struct flow_refused {
	uint64_t number;
	char lsn[WAL_LSN_TEXT];
	struct slice content;           /* owned */
	struct error why;
};

struct flow {
	const struct reader_env *env;
	struct tally tally;
	struct pgoutput *message;       /* the one that is being decoded */
	struct wal_mapping mapping;
	struct wal_page page;           /* that is being filled */
	uint64_t page_first, page_last; /* numbers of its events */
	bool in_transaction;

	struct flow_page *pages;        /* that are not settled, in order */
	uint32_t n_pages, room;
	size_t bytes;                   /* in all of them */
	uint64_t rows;                  /* in all of them, not settled */
	uint64_t *to_park;              /* numbers of events to be parked, in order */
	uint32_t n_to_park, to_park_room;
	struct flow_refused *refused;
	uint32_t n_refused;
	bool warned_of_messages;        /* some are not transactional */
	uint32_t xid;                   /* of the transaction that is being read */
	uint32_t *rescheduled;          /* transactions that wrote rows with a time, or changed one; not looked at yet */
	uint32_t n_rescheduled, rescheduled_room;
};

void flow_init(struct flow *f, const struct reader_env *env, const struct tally_place *from);
void flow_release(struct flow *f);

/* No more for now: workers have enough, or the page is full and wants to be dealt. */
bool flow_is_full(const struct flow *f);
bool flow_page_is_full(const struct flow *f);
/* One frame from the server. False: ERROR_CONFIG when the table is not what it was; ERROR_BUG. */
bool flow_take(struct flow *f, const struct wal_frame *frame, struct error *err);
/* Deals out what has come, if anything; with the pool's lock held. */
void flow_deal(struct flow *f, struct pool *p, struct parking *parking);

/* Rows from before the slot, as text: the fields of the table, and behind them their number in postrider.wal_backlog. They
 * stand between flow_begin_backlog and flow_end_backlog, before anything comes from the log. */
void flow_begin_backlog(struct flow *f);
bool flow_take_backlog(struct flow *f, const PGresult *rows, struct error *err);
void flow_end_backlog(struct flow *f);

/* The number of an event of ours, by what its row carries. */
uint64_t flow_number(const struct flow *f, int32_t part);
/* The row of an event that is not settled. */
void flow_find(const struct flow *f, uint64_t number, const PGresult **ret_rows, int *ret_row);
/* A sink refused an event of this entity: it and those behind it that workers have are to be parked. */
void flow_park_from(struct flow *f, uint64_t number, struct slice entity, struct parked *parked);
/* The events are settled. */
void flow_settled(struct flow *f, const uint64_t *numbers, uint32_t n);
/* The first so many of `to_park`, of `refused`, are in the table. */
void flow_parked(struct flow *f, uint32_t n);
void flow_refused_settled(struct flow *f, uint32_t n);

/* The bytes of an address behind its letter, as a number. */
int64_t flow_origin(struct slice address, enum origin *ret);

#endif
