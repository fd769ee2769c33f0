/* What `postrider init` puts into a database: the schema postrider, outbox tables, and what belongs beside them.
 * Running it and printing it for a DBA use the same statements. Main thread only. */
#ifndef POSTRIDER_PG_INSTALL_H
#define POSTRIDER_PG_INSTALL_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

struct install_outbox {
	const char *table;              /* schema.table */
	const char *scheduled;          /* the column of schedules, if the table has it; "": none is */
	char *branch_sql;               /* makes the table of a branch; returns lines; NULL: it is none */
	char *reader_sql;               /* what its reader wants besides; returns lines; NULL: nothing */
	char *lean_sql;                 /* what becomes of published rows wants; the same */
	bool create;                    /* make the recommended table where there is none; otherwise it must exist */
};

struct install_plan {
	const struct install_outbox *outboxes;
	size_t n_outboxes;
	const char *role;               /* gets what a relay needs; NULL: nobody */
};

/* A text as a literal of SQL. The caller frees. */
char *install_literal(const char *text);

/* Does what is missing and calls `done` with one line for each thing. Every statement is a transaction of its own;
 * after a failure the same call goes on where it stopped. */
bool install_run(PGconn *conn, const struct install_plan *plan, void (*done)(const char *line), struct error *err);

/* The same as a script for psql, without a connection; it may be run again. Fails when a name is none. */
bool install_print(const struct install_plan *plan, FILE *out, struct error *err);

#endif
