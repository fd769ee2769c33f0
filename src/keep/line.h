/* A line to the database, of the heart or the janitor: a connection on which statements are asked one by one, and never waited for long. A
 * connection that was cut looks just like a server that thinks, and the next beat is due soon. One thread at a time. */
#ifndef POSTRIDER_KEEP_LINE_H
#define POSTRIDER_KEEP_LINE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "config/config.h"

struct line {
	PGconn *conn;                   /* NULL: not connected */
	int stop_fd;                    /* readable: the process stops, and waits no longer than it must */
	int64_t patience_ms;            /* for an answer */
	bool pooled;                    /* a pooler is known to be in between: our session is not our own */
	bool hears;                     /* notifications arrive */
};

/* Connects, unless it is connected; waits. `purpose` as for pg_connect. */
bool line_open(struct line *l, const struct database_config *database, const char *purpose, struct error *err);
void line_close(struct line *l);
bool line_stopping(const struct line *l);

/* As pg_query. */
bool line_ask(struct line *l, const char *doing, const char *sql, int n_params, const char *const *params,
	      PGresult **ret, struct error *err);

/* A number as a parameter, in `to`, which must live as long. */
struct number {
	char text[24];
};

static inline const char *number(struct number *to, int64_t value)
{
	snprintf(to->text, sizeof(to->text), "%lld", (long long)value);
	return to->text;
}

/* The pid that others may look for, as libpq has it. NULL where sessions say nothing. */
const char *line_own_pid(const struct line *l, struct number *to);

#endif
