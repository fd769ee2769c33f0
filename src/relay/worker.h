/* A worker: one thread that owns one reader with its connection, one instance of each sink, and the window between them.
 * Workers of a process and of other processes are alike; they meet only in PostgreSQL.
 *
 * Its loop waits on its mailbox, its connection and its sinks' descriptors until the next deadline, then lets each of them
 * do what it can without waiting. */
#ifndef POSTRIDER_RELAY_WORKER_H
#define POSTRIDER_RELAY_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "keep/node.h"
#include "pg/table.h"
#include "read/reader.h"
#include "relay/bell.h"
#include "relay/feed.h"
#include "relay/route.h"
#include "sink/sink.h"

struct worker;

/* What all workers of an outbox share; none of it changes while they run, except inside the bell and the targets. */
struct outbox {
	const struct outbox_config *config;
	const struct database_config *database;
	const struct reader_driver *reader;
	struct node *node;                      /* this process among others */
	struct route *route;
	struct table *table;
	struct bell bell;
	struct hand hand;
	struct pool *pool;                      /* the reader's own; NULL: it has none */
	struct sink_target **targets;           /* one per configured sink, in order */
	_Atomic bool halted;                    /* a row was refused after which the process is to end: claim no more */
	struct replay *replay;                  /* NULL: rows come from the outbox, not from its history */
};

struct worker_totals {
	uint64_t claimed, settled, claims, empty_claims;
};

/* What came back from one sink, in rows. */
struct sink_counts {
	uint64_t acknowledged;
	uint64_t resent;
	uint64_t errors[ERROR_KIND_COUNT];
};

/* What a worker holds and has done, for `postrider status` and for metrics. */
struct worker_state {
	uint32_t number;
	bool connected;
	const char *condition;                  /* "standby"; NULL: it works as all do */
	char error[sizeof((struct error){ 0 }.message)]; /* why it is not connected; "": it is, or has not tried yet */
	uint32_t entities;                      /* held */
	uint32_t rows;                          /* in flight … */
	size_t bytes;                           /* … and their weight */
	int session;                            /* the server's process whose locks are this worker's; 0: it has no locks */
	struct feed_counts counts;
	struct sink_counts sinks[WINDOW_STAGES_MAX];
	struct histogram latency;               /* from created_at to the last acknowledgement */
};

/* Called by the supervisor. */
struct worker *worker_new(struct outbox *o);            /* before any thread of the outbox starts */
bool worker_start(struct worker *w, struct error *err);
bool worker_ready(const struct worker *w);              /* has been connected once */
/* It cannot go on, and neither can the process: a sink or its first connection was refused for good. */
bool worker_broken(const struct worker *w, struct error *ret_why);
int64_t worker_last_turn_ms(const struct worker *w);    /* for the watchdog: when its loop last went round */
/* Claim no more; end when everything claimed is settled, or at the deadline. */
void worker_drain(struct worker *w, int64_t deadline_ms);
bool worker_ended(const struct worker *w);
/* As of its last turn. Any thread. */
void worker_snapshot(struct worker *w, struct worker_state *ret);
void worker_join(struct worker *w, struct worker_totals *totals);
/* After its sinks' targets are closed: until then they may still hold its rows. */
void worker_free(struct worker *w);

#endif
