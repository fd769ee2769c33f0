/* Opening a connection to a store while the worker goes on: libpq resolves names and asks the catalogue in a
 * thread of its own, which ends when it has a connection that is ready to append, or a reason why not. */
#ifndef POSTRIDER_SINK_DIAL_H
#define POSTRIDER_SINK_DIAL_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"
#include "sink/store.h"

/* Under this name the statement of the store is prepared on the new connection. */
#define DIAL_STATEMENT "postrider_append"

struct dial;

/* The arguments must outlive the dial; `table` is for the kind's learn. */
struct dial *dial_start(const struct store_kind *kind, const struct database_config *database, const char *table);
/* Readable when it is over. */
int dial_fd(const struct dial *d);
bool dial_is_over(const struct dial *d);
/* Ends the dial and frees it. Waits unless it is over. On success both belong to the caller. */
bool dial_finish(struct dial *d, PGconn **ret_conn, struct store **ret_store, struct error *err);
/* Gives up and frees it; accepts NULL. Interrupts the attempt, and waits at most for one statement's timeout. */
void dial_cancel(struct dial *d);

/* What the thread does, for callers that may wait (`check`): connects and sets the session up. */
bool dial_connect(const struct store_kind *kind, const struct database_config *database, int interrupt_fd, PGconn **ret,
		  struct error *err);

#endif
