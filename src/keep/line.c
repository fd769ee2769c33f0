#include "keep/line.h"

#include <poll.h>

#include "base/clock.h"
#include "pg/conn.h"
#include "pg/exec.h"

enum { STOP_PATIENCE_MS = 1000 };       /* a stop does not wait longer for the database */

bool line_open(struct line *l, const struct database_config *database, const char *purpose, struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;
	bool shared;

	if (l->conn)
		return true;
	if (!pg_connect(database, purpose, l->stop_fd, &conn, err) || !pg_apply_reader_settings(conn, database, err) ||
	    !pg_is_pooled(conn, database, &shared, err))
		return false;
	if (PQsetnonblocking(conn, 1) != 0)
		return pg_error(conn, NULL, "set up the connection", err);
	l->conn = TAKE_PTR(conn);
	l->pooled = database->pooler == DATABASE_POOLER_SESSION;
	l->hears = !shared;
	return true;
}

void line_close(struct line *l)
{
	pg_closep(&l->conn);
}

bool line_stopping(const struct line *l)
{
	struct pollfd p = { .fd = l->stop_fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* Waits for the answer until the deadline, or for a little more once asked to stop. */
static bool await(struct line *l, int64_t deadline_ms, const char *doing, struct error *err)
{
	bool told = false;

	for (;;) {
		int unsent = PQflush(l->conn);
		struct pollfd fds[] = {
			{ .fd = PQsocket(l->conn), .events = unsent > 0 ? POLLIN | POLLOUT : POLLIN },
			{ .fd = told ? -1 : l->stop_fd, .events = POLLIN },
		};
		int64_t now = clock_ms();

		if (unsent < 0 || PQconsumeInput(l->conn) != 1)
			return pg_error(l->conn, NULL, doing, err);
		if (!PQisBusy(l->conn))
			return true;
		if (now >= deadline_ms)
			return error_set(err, ERROR_TRANSPORT, "could not %s: no answer in time", doing);
		poll(fds, ARRAY_SIZE(fds), (int)(deadline_ms - now));
		if (!told && fds[1].revents) {
			told = true;
			deadline_ms = MIN(deadline_ms, clock_ms() + STOP_PATIENCE_MS);
		}
	}
}

bool line_ask(struct line *l, const char *doing, const char *sql, int n_params, const char *const *params,
	      PGresult **ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	ExecStatusType status;

	if (PQsendQueryParams(l->conn, sql, n_params, NULL, params, NULL, NULL, 0) != 1)
		return pg_error(l->conn, NULL, doing, err);
	if (!await(l, clock_ms() + l->patience_ms, doing, err))
		return false;
	res = PQgetResult(l->conn);
	/* NULL ends the statement; it has arrived with the result, or follows at once. */
	if (res && !await(l, clock_ms() + l->patience_ms, doing, err))
		return false;
	PQclear(res ? PQgetResult(l->conn) : NULL);
	status = PQresultStatus(res);
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		return pg_error(l->conn, res, doing, err);
	if (ret)
		*ret = TAKE_PTR(res);
	return true;
}

const char *line_own_pid(const struct line *l, struct number *to)
{
	return l->pooled ? NULL : number(to, PQbackendPID(l->conn));
}
