/* Statements: one blocking call for commands and set-up, and what is common to all errors of a server. */
#ifndef POSTRIDER_PG_EXEC_H
#define POSTRIDER_PG_EXEC_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/error.h"

/* A time as everything that we print has it; `fraction` is "" or ".MS". */
#define PG_RFC3339(time, fraction)                                                                              \
	"to_char(" time " AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS" fraction "\"Z\"')"

/* Runs one statement with text parameters ($1 …; NULL is SQL NULL) and waits. Text results. On failure `err` says
 * "could not <doing>: <server's message>". ret may be NULL when the result does not matter. Not in pipeline mode. */
bool pg_query(PGconn *conn, const char *doing, const char *sql, int n_params, const char *const *params,
	      PGresult **ret, struct error *err);
/* Several statements separated by semicolons, no parameters, no result. */
bool pg_script(PGconn *conn, const char *doing, const char *sql, struct error *err);

/* Turns a failed result, or the state of the connection when `res` is NULL, into an error: its kind by SQLSTATE (one
 * table in exec.c), and a hint where there is one. DETAIL is left out: it may show a row's data. Always false. */
bool pg_error(PGconn *conn, const PGresult *res, const char *doing, struct error *err);

/* What a SQLSTATE means, and the hint that goes with it or NULL. One that we do not know is worth another try. */
enum error_kind pg_sqlstate_kind(const char *sqlstate, const char **ret_hint);

void pg_result_clearp(PGresult **res);          /* for _cleanup_ */

/* "schema"."table" from schema.table, each part quoted; parts may be given in double quotes themselves, and are
 * otherwise taken as they are written. False with ERROR_CONFIG when the text is not a name. The caller frees *ret. conn
 * may be NULL here and below: then SQL is only being printed. */
bool pg_quote_qualified(PGconn *conn, const char *name, char **ret, struct error *err);
bool pg_split_qualified(const char *name, char **ret_schema, char **ret_table, struct error *err);
char *pg_quote_name(PGconn *conn, const char *name);    /* the caller frees with free() */

#endif
