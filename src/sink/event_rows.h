/* A set of events as the parameters of one statement: an array per column in PostgreSQL's binary format, so that any bytes
 * pass as they are. */
#ifndef POSTRIDER_SINK_EVENT_ROWS_H
#define POSTRIDER_SINK_EVENT_ROWS_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "relay/event.h"

enum event_column {
	EVENT_ENTITY_TYPE,
	EVENT_ENTITY_ID,
	EVENT_EVENT_TYPE,
	EVENT_MESSAGE_ID,
	EVENT_PAYLOAD,
	EVENT_HEADERS,
	EVENT_CREATED_AT,
	EVENT_TOPIC,
	EVENT_KEY,
	EVENT_COLUMNS,
};

/* Working memory; it may be used again for any set. */
struct event_rows {
	struct buf arrays[EVENT_COLUMNS];
	struct buf headers;             /* of one event */
};

void event_rows_init(struct event_rows *rows);
void event_rows_release(struct event_rows *rows);

/* How many of the events fit well into one statement; at least 1 of n. */
uint32_t event_rows_fit(struct event *const events[], uint32_t n);

/* Queues the statement of that name, whose parameters are the arrays of the first n_columns columns: of bytea where
 * `bytes` has the bit of the column, of text elsewhere. One result comes; in pipeline mode or out of it. On failure
 * (false) nothing was queued: ERROR_REJECTED when the events are too large for the protocol, else the connection is
 * broken. */
bool event_rows_send(struct event_rows *rows, PGconn *conn, const char *name, int n_columns, uint32_t bytes,
		     struct event *const events[], uint32_t n, struct error *err);

#endif
