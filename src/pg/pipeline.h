/* A connection in pipeline mode. Statements are queued and sent without waiting; results are taken in as they come, each
 * with the statement that it answers. */
#ifndef POSTRIDER_PG_PIPELINE_H
#define POSTRIDER_PG_PIPELINE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"

struct statement {
	const char *name;               /* that it is prepared under */
	const char *doing;              /* for messages: "could not <doing>: …" */
	const char *sql;
};

struct param {
	const char *value;              /* NULL is SQL's */
	size_t len;
	bool binary;
};

enum {
	PIPELINE_SYNC = -1,             /* the end of a transaction */
	PIPELINE_GUEST = -2,            /* somebody else's statement: pipeline_expect_guests */
};

struct pipeline {
	PGconn *conn;
	const struct statement *statements;
	char **sql;                     /* of each, for this table; owned */
	char **untimed_sql;               /* what is sent instead while `untimed`: NULL where that is the same; owned, or NULL */
	bool untimed;                     /* the user's to set */
	int n_statements;
	bool prepared;                  /* they are known to the server by name */
	int *expected;                  /* what the next results answer */
	uint32_t n_expected, room, at;
};

/* Takes over `conn`, also on failure, and `sql` and `untimed_sql`, arrays of n texts. Statements are prepared by name, or sent in full
 * each time: behind a pooler the server connection that knows them may be another one next time. */
bool pipeline_open(struct pipeline *p, PGconn *conn, const struct statement *statements, char **sql, char **untimed_sql, int n,
		   bool prepare, struct error *err);
void pipeline_close(struct pipeline *p);

/* Text, or NULL; must live until it is sent, as all parameters. */
struct param text_param(const char *text);
/* Text in binary form is its bytes, and need not end in a NUL. */
struct param slice_param(struct slice s);
struct param array_param(const struct buf *array);

/* One statement; one result will come for it. */
bool pipeline_send(struct pipeline *p, int statement, const struct param *params, int n, bool binary_result,
		   struct error *err);
/* Somebody else has queued statements on the connection: so many results are his. */
void pipeline_expect_guests(struct pipeline *p, uint32_t results);
/* Ends the implicit transaction and hands everything to the network. */
bool pipeline_sync(struct pipeline *p, struct error *err);

/* Writes as much as the socket takes. */
bool pipeline_flush(struct pipeline *p, struct error *err);

bool pipeline_busy(const struct pipeline *p);   /* results are still to come */
int pipeline_pollfd(const struct pipeline *p, short *ret_events);
/* Reads what has arrived. False: the connection is gone. */
bool pipeline_read(struct pipeline *p, struct error *err);
/* The next result that has arrived whole, failed ones included, and what it answers; NULL when there is none yet. False:
 * the connection is gone. The caller owns the result. */
bool pipeline_next(struct pipeline *p, int *ret_statement, PGresult **ret, struct error *err);
/* Reads what has arrived and hands each result to `take`, which owns it then. *ret_complete: the last one that was expected
 * has come. False: `take` said so, or the connection is gone. */
typedef bool pipeline_taker(void *arg, int statement, PGresult *res, struct error *err);
bool pipeline_receive(struct pipeline *p, pipeline_taker *take, void *arg, bool *ret_complete, struct error *err);
/* Does the same until everything has come, for what is done while nothing else goes on. */
bool pipeline_wait(struct pipeline *p, int64_t timeout_ms, pipeline_taker *take, void *arg, struct error *err);
/* Sends one statement and waits for its result. */
bool pipeline_run(struct pipeline *p, int statement, const struct param *params, int n, int64_t timeout_ms, PGresult **ret,
		  struct error *err);
/* True unless the result says that its statement failed. */
bool pipeline_worked(const struct pipeline *p, int statement, const PGresult *res, struct error *err);

#endif
