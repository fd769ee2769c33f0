/* What sinks need that ride in the reader's settling transaction (sink.h): statements that are prepared on a connection which
 * is not theirs, and may be another one each time. */
#ifndef POSTRIDER_SINK_RIDE_H
#define POSTRIDER_SINK_RIDE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "relay/event.h"

struct ride {
	char *last_first;               /* message id of the first event of the last ride */
};

/* The same rows again: their transaction was rolled back. If a statement is to blame (somebody changed the table), it may not
 * be prepared, or not be the right one any more. */
bool ride_repeats(struct ride *r, const struct event *first);
void ride_release(struct ride *r);

struct ride_statement {
	char name[32];                  /* another one each time, so that none is there already */
	/* Where it is prepared, and which: a new connection may lie at the address of an old one. */
	const PGconn *prepared_on;
	int prepared_pid;
	char *prepared_sql;
};

/* Queues what prepares `sql`, unless it is, and counts its result. `doing` is for messages. */
bool ride_prepare(struct ride_statement *s, PGconn *conn, const char *sql, const char *doing, uint32_t *results,
		  struct error *err);
/* Also when it is no longer needed. */
void ride_statement_forget(struct ride_statement *s);

#endif
