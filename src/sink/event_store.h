/* The event store: a table that events are appended to, each with the next version of its entity.
 *
 * What it promises, and how: a message id is stored once, because those that are there are left out before the others
 * are numbered, and a unique index guards against whoever writes at the same time; versions of an entity are contiguous
 * from 1 in the order of the events, because a set is numbered after that. So appending again what may or may not have
 * been stored is always right. */
#ifndef POSTRIDER_SINK_EVENT_STORE_H
#define POSTRIDER_SINK_EVENT_STORE_H

#include "sink/event_rows.h"
#include "sink/store.h"

enum store_column {
	STORE_ENTITY_TYPE = EVENT_ENTITY_TYPE,
	STORE_ENTITY_ID = EVENT_ENTITY_ID,
	STORE_EVENT_TYPE = EVENT_EVENT_TYPE,
	STORE_MESSAGE_ID = EVENT_MESSAGE_ID,
	STORE_PAYLOAD = EVENT_PAYLOAD,
	STORE_HEADERS = EVENT_HEADERS,
	STORE_CREATED_AT = EVENT_CREATED_AT,
	STORE_FILLED,                   /* columns that take their values from events */
	STORE_VERSION = STORE_FILLED,
	STORE_COLUMNS,
};

/* All of them as the literal of an array; the caller frees. */
char *event_store_column_list(void);

/* A table, its types looked up. Immutable. */
struct event_store {
	struct store store;
	char *table;                    /* quoted and qualified */
	char *types[STORE_COLUMNS];     /* fit for a cast */
	char *version_index;            /* unique, on entity_type, entity_id and version; NULL: there is none */
};

extern const struct store_kind event_store_kind;

/* Privileges, the indexes that the promises rest on, columns that would refuse events. */
void event_store_check(PGconn *conn, const struct store *store, const char *topic, struct finding_list *findings);

#endif
