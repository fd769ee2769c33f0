/* A reader's own connection: settings, statements made for the table, pipeline. */
#ifndef POSTRIDER_READ_SESSION_H
#define POSTRIDER_READ_SESSION_H

#include "pg/conn.h"
#include "pg/pipeline.h"
#include "read/reader.h"

/* Behind a pooler that shares server connections (then statements are not prepared) a session's settings would reach other
 * clients of the pool, so nothing is set there but inside a transaction: this row of the reader's table of statements is the
 * first in each. The last setting is what the transaction has already, or else this fails: by then it cannot be changed. */
#define SESSION_VALUE_SETTING(name, value) " pg_catalog.set_config('" name "', '" value "', true),"
#define SESSION_SETTINGS                                                                                        \
	{ "postrider_settings", "set up the transaction",                                                       \
	  "SELECT pg_catalog.set_config('search_path', 'pg_catalog', true),"                                    \
	  " pg_catalog.set_config('statement_timeout', $1::pg_catalog.text, true),"                             \
	  " pg_catalog.set_config('lock_timeout', $2::pg_catalog.text, true),"                                  \
	  " pg_catalog.set_config('idle_in_transaction_session_timeout', $3::pg_catalog.text, true),"           \
	  " pg_catalog.set_config('synchronous_commit', 'off', true),"                                          \
	  PG_VALUE_SETTINGS(SESSION_VALUE_SETTING)                                                              \
	  " pg_catalog.set_config('enable_seqscan', 'off', true),"                                              \
	  " pg_catalog.set_config('enable_bitmapscan', 'off', true),"                                           \
	  " pg_catalog.set_config('max_parallel_workers_per_gather', '0', true),"                               \
	  " pg_catalog.set_config('jit', 'off', true),"                                                         \
	  " pg_catalog.set_config('transaction_isolation', 'read committed', true)" }

/* Queues it where it is needed; `statement` is its number. */
bool session_send_settings(struct pipeline *p, int statement, const struct database_config *database, struct error *err);

/* On failure the pipeline is closed. */
bool session_open(const struct reader_driver *driver, const struct reader_env *env, const struct statement *statements,
		  int n, struct pipeline *p, char **ret_identity, struct error *err);

#endif
