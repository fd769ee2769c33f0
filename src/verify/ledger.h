/* What should be in the topics: an entry for each row of the user's table, found by the id that its message carries.
 * Filled while the table is read, only looked into after that. One thread.
 *
 * A row takes some 40 bytes and the bytes of its id; an entity some 20 and the bytes of its name. */
#ifndef POSTRIDER_VERIFY_LEDGER_H
#define POSTRIDER_VERIFY_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "verify/words.h"

#define LEDGER_ROWS_MAX UINT32_C(1500000000)   /* 3/4 of 2^31, the most slots that struct words can have */
#define LEDGER_TOPICS_MAX 10000

struct ledger_row {
	uint32_t entity;                /* number in `entities`; WORDS_NONE: the row has none, and no order */
	uint32_t rank;                  /* by the column of order: later rows have higher ones, equal ones the same */
	uint16_t topic;                 /* number in `topics` */
	bool pending;                   /* not published yet, so it may be missing */
};

struct ledger {
	struct words ids;               /* number n is the id of rows[n] */
	struct words entities;
	struct words topics;
	struct words unroutable;        /* ids of rows of which the route makes no message */
	struct ledger_row *rows;
	uint32_t rows_room;
	uint64_t repeated;              /* rows with the id of an earlier one: nobody can tell them apart in a topic */
};

struct ledger_entry {
	struct slice id;                /* as the message carries it */
	struct slice entity;            /* NULL: none */
	struct slice topic;
	uint32_t rank;
	bool pending;
};

void ledger_init(struct ledger *l);
void ledger_release(struct ledger *l);

/* Both are false when the ledger is full: LEDGER_ROWS_MAX rows, LEDGER_TOPICS_MAX topics. */
bool ledger_add(struct ledger *l, const struct ledger_entry *e);
bool ledger_add_unroutable(struct ledger *l, struct slice id);
/* The row with this id, if it is there, is not published yet. */
void ledger_set_pending(struct ledger *l, struct slice id);

#endif
