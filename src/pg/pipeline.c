#include "pg/pipeline.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/mem.h"
#include "pg/conn.h"
#include "pg/exec.h"

enum { PARAMS_MAX = 16 };

struct statement_name {
	char text[64];
};

static struct statement_name untimed_name(const struct statement *s)
{
	struct statement_name name;

	snprintf(name.text, sizeof(name.text), "%s_untimed", s->name);
	return name;
}

static bool prepare(struct pipeline *p, const char *name, const char *sql, const char *doing, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = PQprepare(p->conn, name, sql, 0, NULL);

	return PQresultStatus(res) == PGRES_COMMAND_OK || pg_error(p->conn, res, doing, err);
}

static bool has_untimed(const struct pipeline *p, int statement)
{
	return p->untimed_sql && p->untimed_sql[statement];
}

static bool prepare_all(struct pipeline *p, struct error *err)
{
	for (int i = 0; i < p->n_statements; i++) {
		const struct statement *s = &p->statements[i];

		if (!prepare(p, s->name, p->sql[i], s->doing, err))
			return false;
		if (has_untimed(p, i) && !prepare(p, untimed_name(s).text, p->untimed_sql[i], s->doing, err))
			return false;
	}
	return true;
}

bool pipeline_open(struct pipeline *p, PGconn *conn, const struct statement *statements, char **sql, char **untimed_sql, int n,
		   bool prepare, struct error *err)
{
	*p = (struct pipeline){
		.conn = conn,
		.statements = statements,
		.sql = sql,
		.untimed_sql = untimed_sql,
		.n_statements = n,
		.prepared = prepare,
	};
	if (prepare && !prepare_all(p, err))
		return false;
	if (PQsetnonblocking(conn, 1) != 0 || PQenterPipelineMode(conn) != 1)
		return pg_error(conn, NULL, "start pipelining", err);
	return true;
}

void pipeline_close(struct pipeline *p)
{
	pg_closep(&p->conn);
	for (int i = 0; i < p->n_statements; i++) {
		free(p->sql[i]);
		if (p->untimed_sql)
			free(p->untimed_sql[i]);
	}
	free(p->sql);
	free(p->untimed_sql);
	free(p->expected);
	*p = (struct pipeline){ 0 };
}

struct param text_param(const char *text)
{
	return (struct param){ text, text ? strlen(text) : 0, false };
}

struct param slice_param(struct slice s)
{
	return (struct param){ s.ptr, s.len, true };
}

struct param array_param(const struct buf *array)
{
	return (struct param){ array->data, array->len, true };
}

static void expect(struct pipeline *p, int what)
{
	/* All that was expected has come: begin again at the front. */
	if (p->at == p->n_expected)
		p->at = p->n_expected = 0;
	p->expected = mem_one_more(p->expected, p->n_expected, &p->room, sizeof(*p->expected));
	p->expected[p->n_expected++] = what;
}

bool pipeline_send(struct pipeline *p, int statement, const struct param *params, int n, bool binary_result,
		   struct error *err)
{
	const char *values[PARAMS_MAX];
	int lengths[PARAMS_MAX], formats[PARAMS_MAX], sent;
	bool untimed = p->untimed && has_untimed(p, statement);
	const struct statement *s = &p->statements[statement];

	assert(n <= PARAMS_MAX);
	for (int i = 0; i < n; i++) {
		values[i] = params[i].value;
		lengths[i] = (int)params[i].len;
		formats[i] = params[i].binary;
	}
	if (p->prepared)
		sent = PQsendQueryPrepared(p->conn, untimed ? untimed_name(s).text : s->name, n, values, lengths, formats,
					   binary_result);
	else
		sent = PQsendQueryParams(p->conn, untimed ? p->untimed_sql[statement] : p->sql[statement], n, NULL, values, lengths,
					 formats, binary_result);
	if (sent != 1)
		return pg_error(p->conn, NULL, s->doing, err);
	expect(p, statement);
	return true;
}

void pipeline_expect_guests(struct pipeline *p, uint32_t results)
{
	while (results-- > 0)
		expect(p, PIPELINE_GUEST);
}

bool pipeline_sync(struct pipeline *p, struct error *err)
{
	if (PQpipelineSync(p->conn) != 1)
		return pg_error(p->conn, NULL, "send", err);
	expect(p, PIPELINE_SYNC);
	return true;
}

bool pipeline_flush(struct pipeline *p, struct error *err)
{
	if (PQflush(p->conn) < 0)
		return pg_error(p->conn, NULL, "send", err);
	return true;
}

bool pipeline_busy(const struct pipeline *p)
{
	return p->at < p->n_expected;
}

int pipeline_pollfd(const struct pipeline *p, short *ret_events)
{
	*ret_events = POLLIN;
	if (pipeline_busy(p) && PQflush(p->conn) > 0)
		*ret_events |= POLLOUT;
	return PQsocket(p->conn);
}

bool pipeline_read(struct pipeline *p, struct error *err)
{
	if (PQconsumeInput(p->conn) != 1)
		return pg_error(p->conn, NULL, "hear from the server", err);
	return pipeline_flush(p, err);
}

bool pipeline_next(struct pipeline *p, int *ret_statement, PGresult **ret, struct error *err)
{
	*ret = NULL;
	while (pipeline_busy(p) && !PQisBusy(p->conn)) {
		*ret = PQgetResult(p->conn);
		/* NULL ends the results of one statement; a lost connection ends them all. */
		if (*ret) {
			*ret_statement = p->expected[p->at++];
			return true;
		}
		if (PQstatus(p->conn) == CONNECTION_BAD)
			return pg_error(p->conn, NULL, "hear from the server", err);
	}
	return true;
}

bool pipeline_worked(const struct pipeline *p, int statement, const PGresult *res, struct error *err)
{
	ExecStatusType status = PQresultStatus(res);

	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_PIPELINE_SYNC)
		return true;
	return pg_error(p->conn, res, statement >= 0 ? p->statements[statement].doing : "settle and claim", err);
}

bool pipeline_receive(struct pipeline *p, pipeline_taker *take, void *arg, bool *ret_complete, struct error *err)
{
	bool busy = pipeline_busy(p);
	PGresult *res;
	int statement;

	*ret_complete = false;
	if (!pipeline_read(p, err))
		return false;
	do {
		if (!pipeline_next(p, &statement, &res, err) || (res && !take(arg, statement, res, err)))
			return false;
	} while (res);
	*ret_complete = busy && !pipeline_busy(p);
	return true;
}

bool pipeline_wait(struct pipeline *p, int64_t timeout_ms, pipeline_taker *take, void *arg, struct error *err)
{
	int64_t deadline = clock_ms() + timeout_ms;
	bool complete = !pipeline_busy(p);

	while (!complete) {
		struct pollfd fd = { 0 };

		if (!pipeline_receive(p, take, arg, &complete, err))
			return false;
		if (complete)
			return true;
		if (clock_ms() >= deadline)
			return error_set(err, ERROR_TRANSPORT, "the database did not answer in %lld ms", (long long)timeout_ms);
		fd.fd = pipeline_pollfd(p, &fd.events);
		poll(&fd, 1, (int)MAX(deadline - clock_ms(), 0));
	}
	return true;
}

struct first_result {
	struct pipeline *pipeline;
	PGresult *res;
};

static bool keep_first(void *arg, int statement, PGresult *res, struct error *err)
{
	struct first_result *first = arg;
	_cleanup_(pg_result_clearp) PGresult *owned = res;

	if (!pipeline_worked(first->pipeline, statement, res, err))
		return false;
	if (!first->res)
		first->res = TAKE_PTR(owned);
	return true;
}

bool pipeline_run(struct pipeline *p, int statement, const struct param *params, int n, int64_t timeout_ms, PGresult **ret,
		  struct error *err)
{
	struct first_result first = { .pipeline = p };

	if (!pipeline_send(p, statement, params, n, false, err) || !pipeline_sync(p, err) ||
	    !pipeline_wait(p, timeout_ms, keep_first, &first, err)) {
		PQclear(first.res);
		return false;
	}
	*ret = first.res;
	return true;
}
