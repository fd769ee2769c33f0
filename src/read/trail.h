/* The way of a replay through its history: which rows were read and are not finished, in the order in which they were
 * read. Rows finish in any order; the trail knows up to where all have, which is where to go on after a stop.
 *
 * After a lost connection reading begins again behind that place. Rows that had finished beyond it are remembered as
 * being *ahead*, so that they are not read, and not sent, a second time. One thread. */
#ifndef POSTRIDER_READ_TRAIL_H
#define POSTRIDER_READ_TRAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

/* A row by what it is known by, as text. */
struct trail_row {
	char *order;                    /* value of the order column */
	char *id;
	char *lane;                     /* what waits when the row is refused */
	bool finished;
};

struct trail {
	struct trail_row *rows;         /* from `first` on, `count` of them */
	uint32_t first, count, room;
	uint32_t open;                  /* of these, not finished */
	uint64_t number;                /* of rows[first]; each row has the next one */
	struct trail_row passed;        /* the last of those up to which all are finished; id NULL: none */
	struct buf ahead;               /* ids that are not to be read again: the literal of an array */
	uint64_t ahead_until;           /* when the trail has come to this number they are behind it */
};

void trail_init(struct trail *t);
void trail_release(struct trail *t);

/* The last row that was read; NULL: reading begins at the beginning. */
const struct trail_row *trail_last(const struct trail *t);
/* A row was read; returns its number. */
uint64_t trail_add(struct trail *t, const char *order, const char *id, const char *lane);
/* It was published, or is given up. Once for each row, except that a number from before a rewind means nothing. */
void trail_finish(struct trail *t, uint64_t number);
/* Every row of the lane that is not finished is given up. */
void trail_give_up(struct trail *t, struct slice lane);
/* What is not finished will be read again, behind `passed`. */
void trail_rewind(struct trail *t);

#endif
