/* The rows of one claim, and the memory they live in: the reader's PGresult and an arena for what routing adds.
 * Freed when the last of its events is released; only the owning worker touches it. */
#ifndef POSTRIDER_RELAY_BATCH_H
#define POSTRIDER_RELAY_BATCH_H

#include <libpq-fe.h>
#include <stdint.h>

#include "base/arena.h"
#include "relay/event.h"

struct batch {
	PGresult *rows;                 /* owned; NULL for readers that do not read from PostgreSQL */
	struct arena arena;
	struct event *events;           /* in the arena */
	uint32_t count;
	uint32_t live;                  /* events not yet released */
};

/* Takes over `rows`, which may be NULL. All `count` events are zero and live. */
struct batch *batch_new(PGresult *rows, uint32_t count);
/* The event is done with; with the last one the batch goes. */
void batch_release_event(struct event *ev);
void batch_free(struct batch *b);

#endif
