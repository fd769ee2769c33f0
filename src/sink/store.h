/* Something in PostgreSQL that events are appended to, a set of them with one statement: the event store, or queues. What
 * append.h, dial.h and the sinks need to know of either is here.
 *
 * Appending again what may or may not have been stored must be right: a store has each message id once. */
#ifndef POSTRIDER_SINK_STORE_H
#define POSTRIDER_SINK_STORE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/finding.h"

struct store;

struct store_kind {
	const char *name;               /* for messages and pg_stat_activity: "event store" */
	/* Looks up what is there; waits. ERROR_CONFIG when something is missing, with what mends it as the hint. */
	bool (*learn)(PGconn *conn, const char *table, struct store **ret, struct error *err);
	void (*free)(struct store *store);
	/* Did an append fail only because of another one at the same time? Trying again succeeds then. */
	bool (*was_outrun)(const struct store *store, const PGresult *res);
	/* For `check`: what is wrong with it. `topic` as in sink.h. */
	void (*check)(PGconn *conn, const struct store *store, const char *topic, struct finding_list *findings);
};

/* The first member of what each kind keeps. Immutable. */
struct store {
	const struct store_kind *kind;
	char *append;                   /* the statement; parameters as event_rows_send has them */
	int n_columns;
	uint32_t bytes;                 /* which of the columns are bytea */
};

static inline void store_free(struct store *store)
{
	if (store)
		store->kind->free(store);
}

static inline void store_freep(struct store **store)    /* for _cleanup_ */
{
	store_free(*store);
	*store = NULL;
}

/* Whether the server says that two statements were in each other's way. */
bool store_was_deadlock(const PGresult *res);
/* For `check`: the server itself says whether the statement fits what is there. */
void store_check_statement(PGconn *conn, const struct store *store, struct finding_list *findings);

#endif
