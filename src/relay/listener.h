/* The thread of a node that hears of new rows: it LISTENs on one connection for all outboxes and rings their bells.
 *
 * A NOTIFY in every transaction would make all commits of the server wait for each other. So the trigger on an outbox
 * notifies only while a flag says so, a sequence that the listener sets ("armed"): while rows come slowly enough that each
 * may ring. When they come fast the listener clears the flag, workers look for themselves, and INSERT pays next to nothing.
 * Mode `always` never clears it; mode `off` has no listener.
 *
 * Whatever fails here costs time, never rows: workers then look every few milliseconds to a tenth of a second, and at the
 * poll interval in any case. */
#ifndef POSTRIDER_RELAY_LISTENER_H
#define POSTRIDER_RELAY_LISTENER_H

#include "base/error.h"
#include "config/config.h"
#include "relay/bell.h"

struct listener;

struct listener_outbox {
	const char *name;
	const char *table;              /* as registered in postrider.outbox */
	enum wakeup_mode mode;
	struct bell *bell;
};

/* Starts the thread. The outboxes are copied; their bells outlive the listener. */
struct listener *listener_start(const struct database_config *database, const struct listener_outbox *outboxes, size_t n);
/* Ends and joins it. */
void listener_stop(struct listener *l);

#endif
