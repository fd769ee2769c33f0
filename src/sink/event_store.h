/* The event store: a table that events are appended to, each with the next version of its entity.
 *
 * What it promises, and how: a message id is stored once, because those that are there are left out before the others
 * are numbered, and a unique index guards against whoever writes at the same time; versions of an entity are contiguous
 * from 1 in the order of the events, because a set is numbered after that. So appending again what may or may not have
 * been stored is always right. */
#ifndef POSTRIDER_SINK_EVENT_STORE_H
#define POSTRIDER_SINK_EVENT_STORE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/finding.h"
#include "relay/event.h"

enum store_column {
	STORE_ENTITY_TYPE,
	STORE_ENTITY_ID,
	STORE_EVENT_TYPE,
	STORE_MESSAGE_ID,
	STORE_PAYLOAD,
	STORE_HEADERS,
	STORE_CREATED_AT,
	STORE_FILLED,                   /* columns that take their values from events */
	STORE_VERSION = STORE_FILLED,
	STORE_COLUMNS,
};

/* All of them as the literal of an array; the caller frees. */
char *event_store_column_list(void);

/* A table, its types looked up. Immutable. */
struct event_store {
	char *table;                    /* quoted and qualified */
	char *types[STORE_COLUMNS];     /* fit for a cast */
	char *insert;                   /* the statement that appends a set */
	char *version_index;            /* unique, on entity_type, entity_id and version; NULL: there is none */
};

/* Looks the table up; waits. ERROR_CONFIG when it or a column is missing, with the SQL that mends it as the hint. */
bool event_store_learn(PGconn *conn, const char *table, struct event_store **ret, struct error *err);
void event_store_free(struct event_store *store);
void event_store_freep(struct event_store **store);     /* for _cleanup_ */

/* For `check`: privileges, the indexes that the promises rest on, columns that would refuse events. */
void event_store_check(PGconn *conn, const struct event_store *store, struct finding_list *findings);

/* The parameters of one append: an array per column in PostgreSQL's binary format, so any bytes pass as they are. */
struct event_rows {
	struct buf arrays[STORE_FILLED];
	struct buf headers;             /* of one event */
};

void event_rows_init(struct event_rows *rows);
void event_rows_release(struct event_rows *rows);

/* How many of the events fit well into one statement; at least 1 of n. */
uint32_t event_store_fit(struct event *const events[], uint32_t n);

/* Both queue one command on a connection and give one result; in pipeline mode or out of it. `rows` is working memory.
 * On failure (false) nothing was queued: ERROR_REJECTED when the events are too large for the protocol, else the
 * connection is broken. */
bool event_store_send_prepare(PGconn *conn, const struct event_store *store, const char *name, struct error *err);
bool event_store_send(PGconn *conn, const struct event_store *store, const char *name, struct event_rows *rows,
		      struct event *const events[], uint32_t n, struct error *err);
/* Did an append fail because another one gave a version of an entity first, at the same time, or would have but for a
 * deadlock of the two? Readers that keep no order let that happen. Trying again finds the next version. */
bool event_store_was_outrun(const struct event_store *store, const PGresult *res);

#endif
