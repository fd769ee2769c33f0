#include "read/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/mem.h"
#include "pg/exec.h"
#include "read/session.h"

#define SECOND_US INT64_C(1000000)
#define LANES_CEILING ((size_t)64 << 20)

enum { MISSING_LOOK_MS = 20 };

enum { ST_SETTINGS, ST_FIRST, ST_NEXT, STATEMENTS };

static const struct statement statements[STATEMENTS] = {
	[ST_SETTINGS] = SESSION_SETTINGS,
	/* Made for each history: history_page_sql. */
	[ST_FIRST] = { "postrider_replay_first", "read rows", "" },
	[ST_NEXT] = { "postrider_replay_next", "read rows", "" },
};

struct reader {
	const struct reader_env *env;
	struct replay *replay;
	struct pipeline pipeline;
	struct answer answer;
};

/* --- the replay ----------------------------------------------------------------------------------------------- */

void replay_init(struct replay *r, const struct history *history)
{
	*r = (struct replay){ .history = history };
	trail_init(&r->trail);
	buf_init(&r->refused_lanes, LANES_CEILING);
	buf_add_str(&r->refused_lanes, "{}");
}

void replay_release(struct replay *r)
{
	for (uint32_t i = 0; i < r->n_refusals; i++) {
		free(r->refusals[i].id);
		free(r->refusals[i].entity);
		free(r->refusals[i].why);
	}
	free(r->refusals);
	trail_release(&r->trail);
	buf_release(&r->refused_lanes);
}

/* A tenth of a second's worth at a time: no trip for each row, and no burst after a pause. */
static int64_t burst(const struct replay *r)
{
	return MAX(r->rate / 10, 1);
}

static int64_t time_of(const struct replay *r, int64_t rows)
{
	return (rows * SECOND_US + r->rate - 1) / r->rate;
}

uint32_t replay_grant(struct replay *r, uint32_t want, int64_t now_us, int64_t *ret_wait_ms)
{
	int64_t enough = MIN(burst(r), (int64_t)want), saved;

	*ret_wait_ms = 0;
	if (r->rate == 0)
		return want;
	/* The first row has to wait for its time, too: so N rows never take less than N times that. */
	if (r->free_at_us == 0)
		r->free_at_us = now_us;
	r->free_at_us = MAX(r->free_at_us, now_us - time_of(r, burst(r)));
	saved = (now_us - r->free_at_us) * r->rate / SECOND_US;
	if (saved >= enough)
		return (uint32_t)MIN(saved, (int64_t)want);
	*ret_wait_ms = (r->free_at_us + time_of(r, enough) - now_us) / 1000 + 1;
	return 0;
}

void replay_spend(struct replay *r, uint32_t rows)
{
	if (r->rate > 0)
		r->free_at_us += time_of(r, rows);
}

/* --- opening -------------------------------------------------------------------------------------------------- */

static bool replay_keeps_order(const struct outbox_config *settings)
{
	return reader_keeps_order(reader_driver_find(settings->reader), settings);
}

static void replay_close(struct reader *r)
{
	if (!r)
		return;
	pipeline_close(&r->pipeline);
	PQclear(r->answer.rows);
	free(r);
}

static char **make_statements(const struct history *h)
{
	char **sql = mem_new_array(char *, STATEMENTS);

	sql[ST_SETTINGS] = mem_strdup(statements[ST_SETTINGS].sql);
	sql[ST_FIRST] = history_page_sql(h, false);
	sql[ST_NEXT] = history_page_sql(h, true);
	return sql;
}

/* History is large, keeps still and has statistics that are true: a plan for the values at hand is worth its price. And
 * should we ever try to write, the server refuses. */
static bool set_up(PGconn *conn, bool pooled, struct error *err)
{
	return pooled || pg_script(conn, "set up the session",
				   "SET plan_cache_mode = force_custom_plan; SET default_transaction_read_only = on", err);
}

static bool replay_open(const struct reader_env *env, struct reader **ret, struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;
	struct reader *r;
	bool pooled;

	if (!pg_connect(env->database, "replay", env->interrupt_fd, &conn, err) ||
	    !pg_is_pooled(conn, env->database, &pooled, err) || !set_up(conn, pooled, err))
		return false;
	r = mem_new(struct reader);
	r->env = env;
	r->replay = env->replay;
	if (!pipeline_open(&r->pipeline, TAKE_PTR(conn), statements, make_statements(env->replay->history), NULL, STATEMENTS,
			   !pooled, err)) {
		replay_close(r);
		return false;
	}
	*ret = r;
	return true;
}

/* There is no settling transaction to ride in: a store in the same database takes its rows as any other. */
static const char *replay_identity(const struct reader *r _unused_)
{
	return NULL;
}

/* --- what became of rows -------------------------------------------------------------------------------------- */

static uint64_t number_of(const struct event *ev)
{
	return ev->batch->claim + (uint64_t)(ev - ev->batch->events);
}

static void stop(struct replay *r, const struct error *why)
{
	if (atomic_load(&r->stopped))
		return;
	r->why_stopped = *why;
	atomic_store(&r->stopped, true);
}

static char *text_of(struct slice s)
{
	return mem_strndup(s.ptr ? s.ptr : "", s.len);
}

static void remember_lane(struct replay *r, struct slice lane)
{
	r->refused_lanes.data[--r->refused_lanes.len] = '\0';   /* the brace */
	if (r->refused_lanes.len > 1)
		buf_add_char(&r->refused_lanes, ',');
	buf_add_array_element(&r->refused_lanes, lane.ptr ? lane : SLICE_LITERAL(""));
	buf_add_char(&r->refused_lanes, '}');
}

static void stop_for_too_many(struct replay *r)
{
	struct error why = { 0 };

	error_set(&why, ERROR_REJECTED, "%d rows were refused, the last one because: %s", REPLAY_REFUSED_MAX,
		  r->refusals[r->n_refusals - 1].why);
	stop(r, &why);
}

static void refuse(struct replay *r, const struct event *ev)
{
	r->refusals = mem_one_more(r->refusals, r->n_refusals, &r->refusals_room, sizeof(*r->refusals));
	r->refusals[r->n_refusals++] = (struct refusal){
		text_of(ev->id), text_of(ev->entity), mem_strdup(ev->failure->message) };
	atomic_fetch_add(&r->refused, 1);
	remember_lane(r, ev->lane_key);
	trail_give_up(&r->trail, ev->lane_key);
	if (r->n_refusals == REPLAY_REFUSED_MAX)
		stop_for_too_many(r);
}

/* Who is refused himself need not try the other rows. What is not sent stays unfinished, so that a stop says where. */
static void take_hold(struct replay *r, const struct event *ev)
{
	if (ev->failure->kind == ERROR_AUTH)
		stop(r, ev->failure);
	else if (!atomic_load(&r->stopped))
		refuse(r, ev);
}

static void note_finished(struct replay *r)
{
	if (r->at_end && r->trail.open == 0)
		atomic_store(&r->finished, true);
}

/* The sinks have them: there is nothing to wait for. */
static void take_outcomes(struct replay *r, const struct exchange *x)
{
	for (uint32_t i = 0; i < x->n_done; i++)
		trail_finish(&r->trail, number_of(x->done[i]));
	atomic_fetch_add(&r->published, x->n_done);
	for (uint32_t i = 0; i < x->n_holds; i++)
		take_hold(r, x->holds[i].event);
	note_finished(r);
}

/* --- reading -------------------------------------------------------------------------------------------------- */

/* What is not finished will be read again. */
static void read_again(struct replay *r)
{
	atomic_fetch_sub(&r->read, r->trail.open);
	trail_rewind(&r->trail);
	r->at_end = false;
}

/* Rows that were read, are not finished, and are not in the window: lost with the connection, or left out because they
 * stood behind one that is being refused. The latter are given up when it is; if it is not after all, they are missing,
 * and nothing behind them may be read before they are. So whoever misses rows waits until the window is empty and then
 * reads again. */
static bool misses_rows(struct replay *r, const struct exchange *x)
{
	uint32_t here = x->window->rows - x->window->orphans - x->n_done - x->n_holds;

	if (r->trail.open > here && here == 0)
		read_again(r);
	return r->trail.open > here;
}

static uint32_t rows_left(const struct replay *r, uint32_t want)
{
	int64_t left = r->limit - (int64_t)atomic_load(&r->read);

	return r->limit == 0 ? want : (uint32_t)MIN((int64_t)want, MAX(left, 0));
}

static bool send_page(struct reader *r, uint32_t rows, size_t bytes, struct error *err)
{
	const struct history *h = r->replay->history;
	const struct trail_row *last = trail_last(&r->replay->trail);
	_cleanup_(mem_freep) char *rows_text = mem_printf("%u", rows), *bytes_text = mem_printf("%zu", bytes);
	struct param params[HISTORY_PARAMS_MAX + HISTORY_PAGE_PARAMS];
	int n = 0;

	for (; n < h->n_params; n++)
		params[n] = text_param(h->params[n]);
	params[n++] = text_param(rows_text);
	params[n++] = text_param(bytes_text);
	params[n++] = text_param(buf_str(&r->replay->refused_lanes));
	params[n++] = text_param(buf_str(&r->replay->trail.ahead));
	if (last)
		params[n++] = text_param(last->id);
	if (last && !h->ordered_by_id)
		params[n++] = text_param(last->order);
	return session_send_settings(&r->pipeline, ST_SETTINGS, r->env->database, err) &&
	       pipeline_send(&r->pipeline, last ? ST_NEXT : ST_FIRST, params, n, true, err);
}

static bool send_claim(struct reader *r, const struct exchange *x, struct error *err)
{
	struct replay *rp = r->replay;
	uint32_t rows;

	if (misses_rows(rp, x)) {
		r->answer.exhausted = true;
		r->answer.look_again_ms = MISSING_LOOK_MS;
		return true;
	}
	rows = rows_left(rp, x->want_rows);
	rp->at_end |= rows == 0;
	note_finished(rp);
	rows = rp->at_end ? 0 : replay_grant(rp, rows, clock_us(), &r->answer.look_again_ms);
	r->answer.exhausted = rows == 0;
	return rows == 0 || send_page(r, rows, x->want_bytes, err);
}

static bool replay_begin(struct reader *r, const struct exchange *x, struct error *err)
{
	r->answer = (struct answer){ .settled = true };
	take_outcomes(r->replay, x);
	if (x->want_rows > 0 && !send_claim(r, x, err))
		return false;
	/* Even when there is nothing to read: the answer comes with what this brings back. */
	return pipeline_sync(&r->pipeline, err) && pipeline_flush(&r->pipeline, err);
}

static int replay_pollfd(const struct reader *r, short *ret_events)
{
	return pipeline_pollfd(&r->pipeline, ret_events);
}

static const char *own_field(const PGresult *res, int row, int from_end)
{
	return PQgetvalue(res, row, PQnfields(res) - from_end);
}

static void take_page(struct reader *r, PGresult *res)
{
	struct replay *rp = r->replay;
	int n = PQntuples(res);

	for (int row = 0; row < n; row++) {
		uint64_t number = trail_add(&rp->trail, own_field(res, row, HISTORY_FIELD_ORDER),
					    own_field(res, row, HISTORY_FIELD_ID), own_field(res, row, HISTORY_FIELD_LANE));

		if (row == 0)
			r->answer.claim = number;
	}
	replay_spend(rp, (uint32_t)n);
	atomic_fetch_add(&rp->read, (uint64_t)n);
	r->answer.rows = res;
	r->answer.looked = (uint32_t)n;
	/* A page with less than was asked for may have been cut by its bytes. */
	if (n > 0)
		return;
	rp->at_end = r->answer.exhausted = true;
	note_finished(rp);
}

/* Takes over `res`. */
static bool take_result(void *reader, int statement, PGresult *res, struct error *err)
{
	struct reader *r = reader;
	_cleanup_(pg_result_clearp) PGresult *owned = res;

	if (!pipeline_worked(&r->pipeline, statement, res, err))
		return false;
	if (statement == ST_FIRST || statement == ST_NEXT)
		take_page(r, TAKE_PTR(owned));
	return true;
}

static bool replay_receive(struct reader *r, bool *ret_complete, struct answer *ret, struct error *err)
{
	if (!pipeline_receive(&r->pipeline, take_result, r, ret_complete, err))
		return false;
	if (*ret_complete) {
		*ret = r->answer;
		r->answer = (struct answer){ 0 };
	}
	return true;
}

const struct reader_driver reader_replay = {
	.name = "replay",
	.summary = "rows that were published before",
	.reads_ahead = true,
	.takes_nameless = true,
	.keeps_order = replay_keeps_order,
	.open = replay_open,
	.close = replay_close,
	.identity = replay_identity,
	.begin = replay_begin,
	.pollfd = replay_pollfd,
	.receive = replay_receive,
};
