#include "sink/dial.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/errand.h"
#include "base/mem.h"
#include "pg/conn.h"
#include "pg/exec.h"

struct dial {
	const struct store_kind *kind;
	const struct database_config *database;
	const char *table;
	struct errand errand;
	_Atomic int socket;             /* of the connection once there is one; -1 before. Open until the thread has ended */

	/* Written by the thread, read after it has ended. */
	bool connected;
	PGconn *conn;
	struct store *store;
	struct error why;
};

/* The acknowledgement is a promise, because the reader deletes the row after it: the commit must be on disk. And one
 * plan along the indexes, for a table whose statistics are always late. */
#define SESSION_SQL                                                     \
	"SELECT pg_catalog.set_config(name, value, false) FROM (VALUES" \
	" ('synchronous_commit', 'on'),"                                \
	" ('plan_cache_mode', 'force_generic_plan'),"                   \
	" ('enable_seqscan', 'off'),"                                   \
	" ('jit', 'off')) AS s(name, value)"

bool dial_connect(const struct store_kind *kind, const struct database_config *database, int interrupt_fd, PGconn **ret,
		  struct error *err)
{
	_cleanup_(mem_freep) char *who = mem_printf("the %s", kind->name);
	_cleanup_(pg_closep) PGconn *conn = NULL;

	if (!pg_connect(database, kind->name, interrupt_fd, &conn, err) ||
	    !pg_require_session(conn, database, who, err) ||
	    !pg_query(conn, "set up the session", SESSION_SQL, 0, NULL, NULL, err))
		return false;
	*ret = TAKE_PTR(conn);
	return true;
}

static bool prepare(PGconn *conn, const struct store *store, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = PQprepare(conn, DIAL_STATEMENT, store->append, 0, NULL);

	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		return pg_error(conn, res, "prepare to append events", err);
	return true;
}

static void run(void *dial)
{
	struct dial *d = dial;

	if (!dial_connect(d->kind, d->database, d->errand.interrupt_fd, &d->conn, &d->why))
		return;
	atomic_store(&d->socket, PQsocket(d->conn));
	/* Who cancels either sees the socket, or is seen here. */
	d->connected = !errand_is_interrupted(&d->errand) && d->kind->learn(d->conn, d->table, &d->store, &d->why) &&
		       prepare(d->conn, d->store, &d->why);
}

struct dial *dial_start(const struct store_kind *kind, const struct database_config *database, const char *table)
{
	struct dial *d = mem_new(struct dial);

	d->kind = kind;
	d->database = database;
	d->table = table;
	d->socket = -1;
	errand_start(&d->errand, run, d, &d->why);
	return d;
}

int dial_fd(const struct dial *d)
{
	return d->errand.over_fd;
}

bool dial_is_over(const struct dial *d)
{
	return errand_is_over(&d->errand);
}

bool dial_finish(struct dial *d, PGconn **ret_conn, struct store **ret_store, struct error *err)
{
	bool connected;

	errand_end(&d->errand);
	connected = d->connected;
	if (connected) {
		*ret_conn = d->conn;
		*ret_store = d->store;
	} else {
		*err = d->why;
		pg_closep(&d->conn);
		store_free(d->store);
	}
	free(d);
	return connected;
}

void dial_cancel(struct dial *d)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;
	_cleanup_(store_freep) struct store *store = NULL;
	struct error err;

	if (!d)
		return;
	errand_interrupt(&d->errand);
	/* Preparing waits for whoever locks the table. */
	if (atomic_load(&d->socket) >= 0)
		shutdown(atomic_load(&d->socket), SHUT_RDWR);
	dial_finish(d, &conn, &store, &err);
}
