/* The rows of one claim, and the memory they live in: the reader's PGresult and an arena for what routing adds.
 * Freed when the last of its events is released; only the owning worker touches it. */
#ifndef POSTRIDER_RELAY_BATCH_H
#define POSTRIDER_RELAY_BATCH_H

#include <libpq-fe.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/arena.h"
#include "relay/event.h"

/* A result whose rows go to several workers. Freed by the last who is done with it. */
struct shared_rows {
	PGresult *rows;
	_Atomic uint32_t users;
};

void shared_rows_release(struct shared_rows *s);

struct batch {
	PGresult *rows;                 /* owned, or shared; NULL for readers that do not read from PostgreSQL */
	struct shared_rows *shared;     /* NULL: not shared */
	uint32_t *picks;                /* which rows of the result are this batch's; NULL: all, in order */
	struct arena arena;
	struct event *events;           /* in the arena */
	uint32_t count;
	uint32_t live;                  /* events not yet released, and whoever else counted himself in */
	uint64_t claim;                 /* number of the claim that brought them: see struct answer */
	struct slice relay;             /* who publishes them, for templates that want to say so */
};

/* Takes over `rows`, which may be NULL. All `count` events are zero and live. */
struct batch *batch_new(PGresult *rows, uint32_t count);
/* The number in the result of event number `i`. */
static inline int batch_row(const struct batch *b, uint32_t i)
{
	return (int)(b->picks ? b->picks[i] : i);
}

/* The event is done with; with the last one the batch goes. */
void batch_release_event(struct event *ev);
void batch_release(struct batch *b);
void batch_free(struct batch *b);

#endif
