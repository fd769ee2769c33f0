/* Appending to a store (store.h) over a connection of our own, inside the worker's loop.
 *
 * It connects when there is something to append, and after a failure pauses longer each time. One statement is under
 * way at a time and commits by itself. When a set is refused because of what a row says, its events go again one by
 * one, so that only the bad one fails. When another worker stored an event of the same entity at the same time, the set
 * goes again at once. */
#ifndef POSTRIDER_SINK_APPEND_H
#define POSTRIDER_SINK_APPEND_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"
#include "sink/breaker.h"
#include "sink/dial.h"
#include "sink/event_rows.h"
#include "sink/outcome.h"
#include "sink/store.h"

struct append {
	const struct store_kind *kind;
	const struct database_config *database;
	const char *table;
	struct outcomes *outcomes;
	struct breaker *breaker;        /* of the target: a failed dial opens it, another closes it */

	struct dial *dial;              /* NULL: nobody is connecting */
	PGconn *conn;                   /* NULL: no connection */
	struct store *store;            /* as it was at the last connect; NULL before the first */
	bool wanted;                    /* connect as soon as the pause is over */
	struct backoff backoff;
	int64_t retry_at_ms;
	bool away;                      /* `why_away` has not been reported */
	struct error why_away;

	struct event **events;          /* the set under way, `count` of them */
	uint32_t count, room;
	uint32_t at;                    /* the first without an outcome */
	bool one_by_one;                /* the set was refused; event number `at` is under way alone */
	uint32_t *refused;              /* numbers of those that failed in the pass one by one */
	uint32_t n_refused;
	bool unflushed;                 /* libpq has bytes to send */
	int64_t answer_by_ms;           /* when the statement under way must have been answered */
	bool failed;                    /* the statement under way; `why` is set */
	bool outrun;                    /* and that because another worker was faster: was_outrun of its kind */
	bool recalled;                  /* nobody waits for the set under way */
	bool has_company;               /* the sink was outrun once: others store events of the same entities */
	struct error why;
	struct event_rows rows;
};

/* The arguments must outlive it. */
void append_init(struct append *a, const struct store_kind *kind, const struct database_config *database,
		 const char *table, struct outcomes *outcomes, struct breaker *breaker);
/* Sends one set as a statement that is prepared under this name: event_rows_send. */
bool append_send(struct append *a, PGconn *conn, const char *name, struct event *const events[], uint32_t n,
		 struct error *err);
/* Events that are under way come back as ERROR_LOST. */
void append_release(struct append *a);

/* As submit of a sink. While the server is away, each failed attempt is reported by failing one event with its reason. */
uint32_t append_submit(struct append *a, struct event *const events[], uint32_t n, int64_t now_ms);
int append_pollfd(const struct append *a, short *ret_events, int64_t *ret_deadline_ms);
void append_pump(struct append *a, int64_t now_ms);
/* As recall of a sink. A statement that was sent goes on; one that is not sent as a whole takes its connection with it. */
void append_recall(struct append *a);

/* Connects if need be, without an event to append: `store` is known after that. Returns whether it is known now; while
 * it is not, a failed attempt takes the first event as append_submit does: *ret_taken. */
bool append_learn(struct append *a, struct event *const events[], int64_t now_ms, uint32_t *ret_taken);
/* The table may have changed: looks it up again in the background, and uses what it knows until then. */
void append_relearn(struct append *a, int64_t now_ms);
/* Closes the connection if nothing is under way. */
void append_rest(struct append *a);

#endif
