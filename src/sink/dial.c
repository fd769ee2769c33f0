#include "sink/dial.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "pg/conn.h"
#include "pg/exec.h"

struct dial {
	const struct database_config *database;
	const char *table;
	pthread_t thread;
	bool started;
	int interrupt_fd, over_fd;      /* eventfds */
	_Atomic int socket;             /* of the connection once there is one; -1 before. Open until the thread was joined */

	/* Written by the thread, read after it was joined. */
	bool connected;
	PGconn *conn;
	struct event_store *store;
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

bool dial_connect(const struct database_config *database, int interrupt_fd, PGconn **ret, struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;

	if (!pg_connect(database, "event store", interrupt_fd, &conn, err) ||
	    !pg_require_session(conn, database, "the event store", err) ||
	    !pg_query(conn, "set up the session", SESSION_SQL, 0, NULL, NULL, err))
		return false;
	*ret = TAKE_PTR(conn);
	return true;
}

static bool prepare(PGconn *conn, const struct event_store *store, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = PQprepare(conn, DIAL_STATEMENT, store->insert, 0, NULL);

	if (PQresultStatus(res) != PGRES_COMMAND_OK)
		return pg_error(conn, res, "prepare to append events", err);
	return true;
}

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void *dial_run(void *arg)
{
	struct dial *d = arg;

	if (dial_connect(d->database, d->interrupt_fd, &d->conn, &d->why)) {
		atomic_store(&d->socket, PQsocket(d->conn));
		/* Who cancels either sees the socket, or is seen here. */
		d->connected = !is_readable(d->interrupt_fd) && event_store_learn(d->conn, d->table, &d->store, &d->why) &&
			       prepare(d->conn, d->store, &d->why);
	}
	eventfd_write(d->over_fd, 1);
	return NULL;
}

struct dial *dial_start(const struct database_config *database, const char *table)
{
	struct dial *d = mem_new(struct dial);
	int failure;

	d->database = database;
	d->table = table;
	d->socket = -1;
	d->interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->over_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->interrupt_fd < 0 || d->over_fd < 0)
		abort();        /* out of descriptors: nothing can run */
	failure = pthread_create(&d->thread, NULL, dial_run, d);
	if (failure) {
		error_set(&d->why, ERROR_TRANSPORT, "could not start a thread to connect with: %s", strerror(failure));
		eventfd_write(d->over_fd, 1);
	}
	d->started = failure == 0;
	return d;
}

int dial_fd(const struct dial *d)
{
	return d->over_fd;
}

bool dial_is_over(const struct dial *d)
{
	return is_readable(d->over_fd);
}

bool dial_finish(struct dial *d, PGconn **ret_conn, struct event_store **ret_store, struct error *err)
{
	bool connected;

	if (d->started)
		pthread_join(d->thread, NULL);
	connected = d->connected;
	if (connected) {
		*ret_conn = d->conn;
		*ret_store = d->store;
	} else {
		*err = d->why;
		pg_closep(&d->conn);
		event_store_free(d->store);
	}
	close(d->interrupt_fd);
	close(d->over_fd);
	free(d);
	return connected;
}

void dial_cancel(struct dial *d)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;
	_cleanup_(event_store_freep) struct event_store *store = NULL;
	struct error err;

	if (!d)
		return;
	eventfd_write(d->interrupt_fd, 1);
	/* Preparing waits for whoever locks the table. */
	if (atomic_load(&d->socket) >= 0)
		shutdown(atomic_load(&d->socket), SHUT_RDWR);
	dial_finish(d, &conn, &store, &err);
}
