/* A connection to PostgreSQL as postrider wants it: verified TLS off loopback, keepalives that notice a dead peer,
 * timeouts on every statement, UTC and ISO dates. The thread that opens it owns it. */
#ifndef POSTRIDER_PG_CONN_H
#define POSTRIDER_PG_CONN_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"

/* How the server prints values, the same in every session of ours, whatever a role's defaults are: X(name, value). */
#define PG_VALUE_SETTINGS(X)                                                                                    \
	X("TimeZone", "UTC")                                                                                    \
	X("DateStyle", "ISO, YMD")                                                                              \
	X("IntervalStyle", "postgres")                                                                          \
	X("bytea_output", "hex")                                                                                \
	X("extra_float_digits", "1")

struct pg_setting {
	const char *name;
	const char *value;
	int since;                      /* server version that knows it */
};
#define PG_SETTING(name, value) { name, value, 0 },

/* `purpose` is seen in pg_stat_activity: "postrider <purpose>". `interrupt_fd` (or -1) becoming readable ends the
 * attempt early, with ERROR_LOST. On failure the kind tells a server that is away (transport) from a refusal (auth) and
 * a setting that is wrong (config). */
bool pg_connect(const struct database_config *db, const char *purpose, int interrupt_fd, PGconn **ret,
		struct error *err);
/* The same for a connection that speaks the replication protocol, without settings: it takes no statement with
 * parameters, so who opens it sets what he needs himself. */
bool pg_connect_replication(const struct database_config *db, const char *purpose, int interrupt_fd, PGconn **ret,
			    struct error *err);
void pg_closep(PGconn **conn);                  /* for _cleanup_; accepts NULL */

/* What only a reader's session wants besides: asynchronous commit, an end to sessions whose process froze, plans that
 * do not depend on statistics. One round trip, right after pg_connect. */
bool pg_apply_reader_settings(PGconn *conn, const struct database_config *db, struct error *err);

/* Host, port and database without user or secret: equal for two connections to the same database, and fit for a log. */
char *pg_identity(PGconn *conn);

/* True when something between us and the server (PgBouncer) answers for it and may share server connections among its
 * clients: the user did not say that it gives each client a session. */
bool pg_is_pooled(PGconn *conn, const struct database_config *db, bool *ret, struct error *err);

/* For what relies on state of its session (`who`, as in "<who> needs a session of its own"): ERROR_CONFIG when something
 * between us and the server (PgBouncer) answers for it, unless the user says that it gives each client a session. One that
 * shares server connections would let two workers hold "the same" lock, and nothing would show it. */
bool pg_require_session(PGconn *conn, const struct database_config *db, const char *who, struct error *err);

#endif
