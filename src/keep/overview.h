/* What a database says of all nodes and of the outboxes that we have settings for: what `postrider status` shows. Reads
 * only, and nothing that takes long however large an outbox is. */
#ifndef POSTRIDER_KEEP_OVERVIEW_H
#define POSTRIDER_KEEP_OVERVIEW_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"

#define PENDING_MAX 100000      /* rows that are counted */

/* Columns of `nodes`, all as text. */
enum {
	NODE_NUMBER,
	NODE_NAME,
	NODE_VERSION,
	NODE_SCHEMA,            /* newest version of the schema that its program knows */
	NODE_PID,
	NODE_STATE,             /* alive, silent, dead */
	NODE_SESSION,           /* open, gone; NULL behind a pooler, where nobody can tell */
	NODE_STARTED_AT,        /* RFC 3339 */
	NODE_HEARTBEAT_AT,
	NODE_HEARTBEAT_AGE_MS,
	NODE_HEARTBEAT_MS,
	NODE_WORKERS,           /* how many */
	NODE_OUTBOXES,          /* JSON: as its heart wrote it */
	NODE_OWNS,              /* JSON: what the database says that its workers have, table by table */
};

/* Columns of `workers`, in the order of their nodes. What a program of another version does not say is NULL. */
enum {
	WORKER_NODE,
	WORKER_OUTBOX,
	WORKER_NUMBER,
	WORKER_CONNECTED,       /* true or false */
	WORKER_CONDITION,       /* standby */
	WORKER_ENTITIES,
	WORKER_OWNS,            /* shards or leases, as the database has them */
	WORKER_ROWS,
	WORKER_SETTLED,
	WORKER_CLAIMS,
	WORKER_EMPTY_CLAIMS,
	WORKER_LOST,
	WORKER_CLAIM_MS,
	WORKER_ERROR,
};

/* Columns of `sinks`: those that cannot be reached, in the order of their nodes. */
enum {
	SINK_NODE,
	SINK_OUTBOX,
	SINK_NAME,
	SINK_SINCE,             /* RFC 3339 */
	SINK_REASON,
};

/* Columns of `slots`: outboxes that are read from the log. */
enum {
	SLOT_TABLE,
	SLOT_NAME,
	SLOT_STATE,             /* active, idle, lost (the server gave it up), gone, polled (it was dropped on purpose) */
	SLOT_RETAINED_BYTES,    /* of the log, that the server keeps for it; NULL: it cannot be told */
	SLOT_WAL_STATUS,        /* as in pg_replication_slots */
	SLOT_CONFIRMED,         /* place in the log */
	SLOT_BACKLOG,           /* rows from before the slot that are left, at most PENDING_MAX */
	SLOT_PARKED,            /* events that are put aside, at most PENDING_MAX */
};

struct outbox_overview {
	const struct outbox_config *config;
	int64_t pending;                /* at most PENDING_MAX; without those that are scheduled for later */
	bool more;                      /* than that … */
	int64_t estimate;               /* … and how many the planner thinks; `pending` when that is exact */
	int64_t oldest_ms;              /* age of the first row; -1: there is none, or it cannot be told */
	int64_t scheduled;              /* rows for later, at most PENDING_MAX … */
	int64_t next_due_ms;            /* … and until the first of them is due; -1: there is none */
	int64_t held;                   /* entities held back that have rows … */
	int64_t blocked;                /* … and those of them that nobody tries any more */
	int64_t retry_ms;               /* until the first of the others is tried again, 0 when it is due; -1: there is none */
	char *retry_at;                 /* RFC 3339; NULL: there is none */
	char *paused_since;             /* RFC 3339; NULL: it is not … */
	char *paused_by;                /* … and who said so */
	struct error error;             /* kind ERROR_NONE: the figures above are there */
};

struct overview {
	int schema;
	PGresult *nodes;
	PGresult *workers;
	PGresult *sinks;
	PGresult *slots;
	struct outbox_overview *outboxes;
	size_t n_outboxes;
};

/* False when the schema is not there or does not serve this program, or the database fails. That one table cannot be
 * read is said in its own `error`. The settings must outlive the result. */
bool overview_read(PGconn *conn, const struct config *config, struct overview *ret, struct error *err);
void overview_release(struct overview *o);      /* also for _cleanup_ */

/* Parts of it. What is wrong with an outbox is in its `error`. */
void overview_read_outbox(PGconn *conn, const struct outbox_config *config, struct outbox_overview *ret);
void overview_release_outbox(struct outbox_overview *o);
bool overview_read_slots(PGconn *conn, PGresult **ret, struct error *err);

#endif
