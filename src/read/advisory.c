/* The reader `advisory`: a 64-bit advisory lock per entity, held by the session from claim to settle.
 *
 * The order of steps is the whole safety of it:
 *   lock, then read      Rows are read by a later statement than the one that locked, so with a newer snapshot: whatever
 *                        the last holder deleted before it unlocked is seen as deleted.
 *   delete, then unlock  The delete has committed before the lock goes.
 *   never twice          A session's own lock is no obstacle to it, so entities in the window are left out by name.
 *   all or nothing       When the session ends the server drops its locks, so nothing that was claimed is ours any more.
 *
 * One exchange is one round trip of two transactions:
 *   1. settle   the rider's writes, holds, cleared retries, DELETE; and a session variable takes the exchange's number,
 *               which a rolled back transaction does not do
 *   2. claim    unlock (only if 1 committed), lock candidates and remember them in a session variable, read their rows
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/conn.h"
#include "pg/exec.h"
#include "read/advisory_sql.h"
#include "read/reader.h"
#include "read/sql.h"
#include "relay/field.h"

enum { PARAMS_MAX = 8 };
#define PARAM_CEILING ((size_t)256 << 20)

extern const struct reader_driver reader_advisory;

/* What the results of an exchange are, in order. */
enum step { STEP_SETTLE, STEP_SETTLE_SYNC, STEP_UNLOCK, STEP_CLAIM, STEP_READ, STEP_CLAIM_SYNC };

struct reader {
	PGconn *conn;
	const struct reader_env *env;
	char *identity;
	int backend_pid;
	uint32_t id_type;               /* of ids as they are read */

	bool has_hand;                  /* we walk, and others of this process wait for it */
	bool crowded;                   /* the last walk met mostly entities of others: start somewhere else */
	double rows_per_entity;         /* lately: how many entities it takes to fill a claim */
	bool large_rows;                /* some row is too large for its page, so claims must be limited by bytes */

	uint64_t number;                /* of the exchange */
	enum step steps[8];
	uint32_t n_steps, step;
	bool settle_by_key;             /* some rows were no longer where they had been read */
	uint32_t settle_results;        /* results that belong to STEP_SETTLE and have not come */
	bool busy;
	struct answer answer;
	PGresult *claimed;              /* the entities that were locked */
	struct retry retries[ENTITIES_MAX];

	/* Parameters that are arrays, kept for their memory. */
	struct buf addresses, entities, ids, cleared, held, releasing;
	struct buf idle;                /* locked entities that had no row for us: unlocked by the next exchange */
};

/* --- opening -------------------------------------------------------------------------------------------------- */

static bool prepare(struct reader *r, struct error *err)
{
	int outbox = 0;

	if (!table_number(r->conn, r->env->table, &outbox, err))
		return false;
	for (int i = 0; i < ST_COUNT; i++) {
		_cleanup_(mem_freep) char *sql = sql_for_table(advisory_statements[i].sql, r->env->table, outbox);
		_cleanup_(pg_result_clearp) PGresult *res = PQprepare(r->conn, advisory_statements[i].name, sql, 0, NULL);

		if (PQresultStatus(res) != PGRES_COMMAND_OK)
			return pg_error(r->conn, res, advisory_statements[i].doing, err);
	}
	return true;
}

static void pass_hand(struct reader *r)
{
	if (r->has_hand)
		hand_pass(r->env->hand);
	r->has_hand = false;
}

static void advisory_close(struct reader *r)
{
	if (!r)
		return;
	pg_closep(&r->conn);    /* with the session go its locks */
	PQclear(r->answer.rows);
	buf_release(&r->addresses);
	buf_release(&r->entities);
	buf_release(&r->ids);
	buf_release(&r->cleared);
	buf_release(&r->held);
	buf_release(&r->releasing);
	buf_release(&r->idle);
	PQclear(r->claimed);
	pass_hand(r);
	free(r->identity);
	free(r);
}

static bool advisory_open(const struct reader_env *env, struct reader **ret, struct error *err)
{
	struct reader *r = mem_new(struct reader);

	r->env = env;
	r->rows_per_entity = 1;
	r->crowded = true;              /* workers that start together had better not start at the same place */
	r->large_rows = true;           /* until a claim has shown otherwise */
	buf_init(&r->addresses, PARAM_CEILING);
	buf_init(&r->entities, PARAM_CEILING);
	buf_init(&r->ids, PARAM_CEILING);
	buf_init(&r->cleared, PARAM_CEILING);
	buf_init(&r->held, PARAM_CEILING);
	buf_init(&r->releasing, PARAM_CEILING);
	buf_init(&r->idle, PARAM_CEILING);
	if (!pg_connect(env->database, env->purpose, env->interrupt_fd, &r->conn, err) ||
	    !pg_apply_reader_settings(r->conn, env->database, err) ||
	    !reader_check_session(&reader_advisory, r->conn, env->database, err) || !prepare(r, err)) {
		advisory_close(r);
		return false;
	}
	r->identity = pg_identity(r->conn);
	array_begin(&r->idle, TYPE_TEXT);
	if (PQsetnonblocking(r->conn, 1) != 0 || PQenterPipelineMode(r->conn) != 1) {
		pg_error(r->conn, NULL, "start pipelining", err);
		advisory_close(r);
		return false;
	}
	*ret = r;
	return true;
}

static const char *advisory_identity(const struct reader *r)
{
	return r->identity;
}

/* --- sending -------------------------------------------------------------------------------------------------- */

struct param {
	const char *value;              /* NULL is SQL's */
	size_t len;
	bool binary;
};

static struct param text_param(const char *text)
{
	return (struct param){ text, text ? strlen(text) : 0, false };
}

/* Text in binary form is its bytes, and need not end in a NUL. */
static struct param slice_param(struct slice s)
{
	return (struct param){ s.ptr, s.len, true };
}

static struct param array_param(const struct buf *array)
{
	return (struct param){ array->data, array->len, true };
}

static bool send_prepared(struct reader *r, enum advisory_statement_number st, const struct param *params, int n,
			  bool binary_result, struct error *err)
{
	const char *values[PARAMS_MAX];
	int lengths[PARAMS_MAX], formats[PARAMS_MAX];

	for (int i = 0; i < n; i++) {
		values[i] = params[i].value;
		lengths[i] = (int)params[i].len;
		formats[i] = params[i].binary;
	}
	if (PQsendQueryPrepared(r->conn, advisory_statements[st].name, n, values, lengths, formats, binary_result) != 1)
		return pg_error(r->conn, NULL, advisory_statements[st].doing, err);
	return true;
}

static void expect(struct reader *r, enum step step)
{
	r->steps[r->n_steps++] = step;
}

static bool send_sync(struct reader *r, enum step step, struct error *err)
{
	expect(r, step);
	if (PQpipelineSync(r->conn) != 1)
		return pg_error(r->conn, NULL, "send", err);
	return true;
}

static bool send_holds(struct reader *r, const struct exchange *x, const char *number, struct error *err)
{
	for (uint32_t i = 0; i < x->n_holds; i++) {
		const struct event *ev = x->holds[i].event;
		_cleanup_(mem_freep) char *attempts = mem_printf("%u", x->holds[i].attempts);
		_cleanup_(mem_freep) char *delay = mem_printf("%lld", (long long)x->holds[i].delay_ms);
		const struct param params[] = {
			slice_param(ev->entity),
			slice_param(ev->id),
			text_param(attempts),
			text_param(error_kind_name(ev->failure->kind)),
			text_param(ev->failure->message),
			text_param(delay),
			text_param(number),
		};

		if (!send_prepared(r, ST_HOLD, params, ARRAY_SIZE(params), false, err))
			return false;
		r->settle_results++;
	}
	return true;
}

/* Fills the parameters that come from delivered rows: their ids and where to find them, entities whose claim ends with
 * them, and entities whose earlier failures are over. */
static void collect_done(struct reader *r, const struct exchange *x)
{
	array_begin(&r->addresses, TYPE_TID);
	array_begin(&r->entities, TYPE_TEXT);
	array_begin(&r->ids, r->id_type);
	array_begin(&r->cleared, TYPE_TEXT);
	array_begin(&r->releasing, TYPE_TEXT);
	for (uint32_t i = 0; i < x->n_done; i++) {
		const struct event *ev = x->done[i];

		if (r->settle_by_key)
			array_add(&r->entities, ev->entity);
		else
			array_add(&r->addresses, ev->address);
		array_add(&r->ids, ev->raw_id);
		if (!window_ends_lane(ev))
			continue;
		array_add(&r->releasing, ev->entity);
		if (ev->retried)
			array_add(&r->cleared, ev->entity);
	}
	for (uint32_t i = 0; i < x->n_holds; i++)
		array_add(&r->releasing, x->holds[i].event->entity);
}

static bool send_delete(struct reader *r, uint32_t n, const char *number, struct error *err)
{
	_cleanup_(mem_freep) char *count = mem_printf("%u", n);
	const struct param by_address[] = { array_param(&r->addresses), array_param(&r->ids), text_param(number),
					    text_param(count) };
	const struct param by_key[] = { array_param(&r->entities), array_param(&r->ids), text_param(number) };
	bool by_key_now = r->settle_by_key;

	r->settle_by_key = false;
	r->settle_results++;
	return by_key_now ? send_prepared(r, ST_SETTLE_BY_KEY, by_key, ARRAY_SIZE(by_key), false, err) :
			    send_prepared(r, ST_SETTLE, by_address, ARRAY_SIZE(by_address), false, err);
}

static bool send_settle(struct reader *r, const struct exchange *x, const char *number, struct error *err)
{
	uint32_t results = 0;

	r->settle_results = 0;
	if (x->rider.driver && x->n_done > 0 &&
	    !x->rider.driver->ride(x->rider.sink, r->conn, x->done, x->n_done, &results, err))
		return false;
	r->settle_results += results;
	if (array_count(&r->cleared) > 0) {
		if (!send_prepared(r, ST_CLEAR, (const struct param[]){ array_param(&r->cleared) }, 1, false, err))
			return false;
		r->settle_results++;
	}
	if (!send_holds(r, x, number, err))
		return false;
	if (x->n_done > 0 && !send_delete(r, x->n_done, number, err))
		return false;
	expect(r, STEP_SETTLE);
	return send_sync(r, STEP_SETTLE_SYNC, err);
}

static void add_held(void *arg, struct slice entity)
{
	array_add(arg, entity);
}

/* How many entities to lock for that many rows. Locking too many costs unlocking them; too few, another trip. */
static uint32_t entities_for(const struct reader *r, uint32_t rows)
{
	double n = (double)rows / r->rows_per_entity + 1;

	return n < ENTITIES_MAX ? (uint32_t)n : ENTITIES_MAX;
}

static bool send_claim(struct reader *r, const struct exchange *x, const char *number, struct error *err)
{
	_cleanup_(mem_freep) char *hand = hand_at(r->env->hand);
	_cleanup_(mem_freep) char *entities = mem_printf("%u", entities_for(r, x->want_rows));
	_cleanup_(mem_freep) char *rows = mem_printf("%u", x->want_rows);
	_cleanup_(mem_freep) char *bytes = mem_printf("%zu", x->want_bytes);
	_cleanup_(mem_freep) char *per_entity = mem_printf("%lld", (long long)r->env->outbox->entity_max_rows);

	array_begin(&r->held, TYPE_TEXT);
	window_each_lane(x->window, add_held, &r->held);        /* not those that are being released: see $4 */
	if (!send_prepared(r, ST_CLAIM,
			   (const struct param[]){ text_param(hand), text_param(entities), array_param(&r->held),
						   array_param(&r->releasing), text_param(number),
						   text_param(r->crowded ? "true" : "false") },
			   6, false, err) ||
	    !send_prepared(r, r->large_rows ? ST_READ_LARGE : ST_READ,
			   (const struct param[]){ text_param(rows), text_param(per_entity), text_param(bytes) },
			   r->large_rows ? 3 : 2, true, err))
		return false;
	expect(r, STEP_CLAIM);
	expect(r, STEP_READ);
	return true;
}

static bool advisory_begin(struct reader *r, const struct exchange *x, struct error *err)
{
	_cleanup_(mem_freep) char *number = mem_printf("%llu", (unsigned long long)++r->number);

	r->n_steps = r->step = 0;
	r->has_hand = x->has_hand;
	r->answer = (struct answer){ .settled = true };
	collect_done(r, x);
	if ((x->n_done > 0 || x->n_holds > 0) && !send_settle(r, x, number, err))
		return false;
	if (array_count(&r->releasing) + array_count(&r->idle) > 0) {
		if (!send_prepared(r, ST_UNLOCK,
				   (const struct param[]){ array_param(&r->releasing), text_param(number),
							   array_param(&r->idle) },
				   3, false, err))
			return false;
		expect(r, STEP_UNLOCK);
	}
	array_begin(&r->idle, TYPE_TEXT);
	if (x->want_rows > 0 && !send_claim(r, x, number, err))
		return false;
	/* Even with nothing to do this is worth sending: it shows the server that we are not frozen. */
	if (!send_sync(r, STEP_CLAIM_SYNC, err))
		return false;
	if (PQflush(r->conn) < 0)
		return pg_error(r->conn, NULL, "send", err);
	r->busy = true;
	return true;
}

/* --- receiving ------------------------------------------------------------------------------------------------ */

static int advisory_pollfd(const struct reader *r, short *ret_events)
{
	*ret_events = POLLIN;
	/* Not all of a large exchange may have fitted into the socket. */
	if (r->busy && PQflush(r->conn) > 0)
		*ret_events |= POLLOUT;
	return PQsocket(r->conn);
}

/* Entities that were locked and have no row in this claim are given back. Each row says which entity it is of, counted
 * from 1 in the order of the claim; results may come in any order. */
static void find_idle(struct reader *r)
{
	bool served[ENTITIES_MAX] = { false };
	int n_rows = PQntuples(r->answer.rows), n_served = 0, number_field = PQnfields(r->answer.rows) - 2;

	for (int row = 0; row < n_rows; row++) {
		uint32_t number;

		memcpy(&number, PQgetvalue(r->answer.rows, row, number_field), sizeof(number));
		number = ntohl(number) - 1;
		n_served += !served[number];
		served[number] = true;
	}
	for (int i = 0; i < PQntuples(r->claimed); i++)
		if (!PQgetisnull(r->claimed, i, CLAIM_ENTITY) && !served[atoi(PQgetvalue(r->claimed, i, CLAIM_NUMBER)) - 1])
			array_add(&r->idle, field_raw(r->claimed, i, CLAIM_ENTITY));
	if (n_served > 0)
		r->rows_per_entity = 0.5 * r->rows_per_entity + 0.5 * (double)n_rows / n_served;
	/* They may have rows that did not fit into this claim. */
	if (array_count(&r->idle) > 0)
		r->answer.exhausted = false;
}

static void note_retries(struct reader *r)
{
	r->answer.retries = r->retries;
	for (int i = 0; i < PQntuples(r->claimed); i++) {
		if (PQgetisnull(r->claimed, i, CLAIM_ROW_ID))
			continue;
		r->retries[r->answer.n_retries++] = (struct retry){
			.entity = field_raw(r->claimed, i, CLAIM_ENTITY),
			.row_id = field_raw(r->claimed, i, CLAIM_ROW_ID),
			.attempts = (uint32_t)strtoul(PQgetvalue(r->claimed, i, CLAIM_ATTEMPTS), NULL, 10),
		};
	}
}

static bool take_claim(struct reader *r, PGresult *res, struct error *err)
{
	int pid = atoi(PQgetvalue(res, 0, CLAIM_PID));

	PQclear(r->claimed);
	r->claimed = res;
	if (r->backend_pid != 0 && pid != r->backend_pid) {
		error_set(err, ERROR_CONFIG, "the session changed under its locks: a pooler shares server connections");
		return error_hint(err, "connect to the server directly, or put the pooler into session mode");
	}
	r->backend_pid = pid;
	hand_move(r->env->hand, PQgetisnull(res, 0, CLAIM_HAND) ? NULL : PQgetvalue(res, 0, CLAIM_HAND), r->has_hand);
	pass_hand(r);
	r->answer.exhausted = PQgetvalue(res, 0, CLAIM_EXHAUSTED)[0] == 't';
	r->crowded = atoi(PQgetvalue(res, 0, CLAIM_LOOKED)) > 2 * PQntuples(res) + 10;
	/* Each partition has a TOAST table of its own: too many to ask. */
	r->large_rows = r->env->table->partitioned || atoll(PQgetvalue(res, 0, CLAIM_TOAST)) > 0;
	note_retries(r);
	return true;
}

/* A settle that failed leaves everything as it was: nothing deleted, nothing unlocked. One that did not find all rows
 * deleted those that it found, and unlocked nothing; it is repeated in another way. */
static void take_settle(struct reader *r, const PGresult *res)
{
	ExecStatusType status = PQresultStatus(res);

	if (status == PGRES_FATAL_ERROR && r->answer.settled) {
		pg_error(r->conn, res, advisory_statements[ST_SETTLE].doing, &r->answer.settle_error);
		r->answer.settled = false;
	}
	/* Of all that may be in this transaction only the DELETE, which is the last, says true or false. */
	if (status == PGRES_TUPLES_OK && r->settle_results == 1 && PQftype(res, 0) == TYPE_BOOL &&
	    PQgetvalue(res, 0, 0)[0] == 'f') {
		r->answer.settled = false;
		r->settle_by_key = true;
	}
}

static const enum advisory_statement_number claim_statements[] = {
	[STEP_UNLOCK] = ST_UNLOCK,
	[STEP_CLAIM] = ST_CLAIM,
	[STEP_READ] = ST_READ,
};

/* Takes over `res`. */
static bool take_result(struct reader *r, PGresult *res, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *owned = res;
	ExecStatusType status = PQresultStatus(res);
	enum step step = r->steps[r->step];

	if (step == STEP_SETTLE) {
		take_settle(r, res);
		if (--r->settle_results == 0)
			r->step++;
		return true;
	}
	if (step == STEP_SETTLE_SYNC || step == STEP_CLAIM_SYNC) {
		if (status != PGRES_PIPELINE_SYNC)
			return pg_error(r->conn, res, "settle and claim", err);
		r->step++;
		return true;
	}
	if (status != PGRES_TUPLES_OK)
		return pg_error(r->conn, res, advisory_statements[claim_statements[step]].doing, err);
	r->step++;
	if (step == STEP_CLAIM)
		return take_claim(r, TAKE_PTR(owned), err);
	if (step == STEP_READ) {
		r->answer.rows = TAKE_PTR(owned);
		r->id_type = PQftype(r->answer.rows, FIELD_ID);
		find_idle(r);
	}
	return true;
}

static bool advisory_receive(struct reader *r, bool *ret_complete, struct answer *ret, struct error *err)
{
	*ret_complete = false;
	if (PQconsumeInput(r->conn) != 1)
		return pg_error(r->conn, NULL, "hear from the server", err);
	if (PQflush(r->conn) < 0)
		return pg_error(r->conn, NULL, "send", err);
	while (r->busy && !PQisBusy(r->conn)) {
		PGresult *res = PQgetResult(r->conn);

		/* NULL ends the results of one statement; a lost connection ends them all. */
		if (!res) {
			if (PQstatus(r->conn) == CONNECTION_BAD)
				return pg_error(r->conn, NULL, "hear from the server", err);
			continue;
		}
		if (!take_result(r, res, err))
			return false;
		if (r->step == r->n_steps) {
			r->busy = false;
			*ret = r->answer;
			r->answer = (struct answer){ 0 };
			*ret_complete = true;
		}
	}
	return true;
}

const struct reader_driver reader_advisory = {
	.name = "advisory",
	.summary = "an advisory lock per entity; claims write nothing",
	.needs_session = true,
	.entities_max = 2 * ENTITIES_MAX,
	.open = advisory_open,
	.close = advisory_close,
	.identity = advisory_identity,
	.begin = advisory_begin,
	.pollfd = advisory_pollfd,
	.receive = advisory_receive,
};
