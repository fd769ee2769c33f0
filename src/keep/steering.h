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

#define STEERING_CHANNEL "postrider_steer"      /* its payload is the number of the outbox */

/* Once for each connection. */
bool steering_listen(struct line *l, struct error *err);
/* Calls `pause` with the tables that are paused. */
bool steering_look(struct line *l, void (*pause)(void *arg, const char *const *tables, size_t n), void *arg,
		   struct error *err);
/* Waits for so long at most, and where nothing can be heard for no longer than until the next look. True: it is worth
 * looking now, because somebody has said something, or the connection has. */
bool steering_wait(struct line *l, int64_t ms);

#endif
