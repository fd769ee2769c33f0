/* What people ask of all nodes at once, by rows in the schema postrider: outboxes that are paused, entities that are let go,
 * put aside or get rows back (see steer/). Who writes such a row also notifies; the heart of each node listens, and looks.
 * Where a pooler keeps notifications away it looks more often instead, so that a node knows within half a second either
 * way. One thread at a time: whose line it is. */
#ifndef POSTRIDER_KEEP_STEERING_H
#define POSTRIDER_KEEP_STEERING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "keep/line.h"
#include "keep/node.h"

/* Once for each connection. */
bool steering_listen(struct line *l, struct error *err);
/* What is to be known of an outbox; of one that is not named neither is so. */
struct steering_word {
	const char *table;
	bool paused;
	bool letters;                   /* it has dead letters whose entities may go on: who does notes that */
};

/* Calls `tell` with all that there is to be known. */
bool steering_look(struct line *l, void (*tell)(void *arg, const struct steering_word *words, size_t n), void *arg,
		   struct error *err);
/* Waits for so long at most, and where nothing can be heard for no longer than until the next look. True: it is worth
 * looking now, because somebody has said something, or the connection has. */
bool steering_wait(struct line *l, int64_t ms);

#endif
