/* The reader `dispatcher`: one connection fetches and settles for all workers of a process, and only one process at a time
 * does. read/pool.h has the workers' side, and who is active; this file is what the active one does.
 *
 * It works in rounds, one trip to the database each: settles what each worker has delivered, in a transaction for each, and
 * reads the next page in order (read/pass.h). */
#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/exec.h"
#include "pg/schedule_check.h"
#include "read/pass.h"
#include "read/pool.h"

enum { IDLE_MS = 1000, GATHER_MS = 500 };

enum { ST_LEAD = SETTLE_STATEMENTS, ST_PASS, ST_COUNT = ST_PASS + PASS_STATEMENTS_COUNT };

static const struct statement statements[ST_COUNT] = {
	SETTLE_PLAIN,
	[ST_LEAD] = POOL_LEAD("dispatcher"),
	PASS_STATEMENTS(ST_PASS, "o.{key} IS NOT NULL AND {at_once_in_order}",
			"o.{key} IS NOT NULL AND o.{order} > s.after AND {at_once_in_order}", "true", "o.{order}",
			"o.{key} IS NOT NULL", "o.{scheduled}"),
};

struct dispatcher {
	struct pool pool;
	struct pass pass;
	uint32_t round[POOL_WORKERS_MAX];       /* channels with a settle in the round under way, in order */
	uint32_t n_round, at_round;
	int64_t sending_ms;
	int64_t active_since_ms;
};

static struct dispatcher *dispatcher_of(struct pool *p)
{
	return (struct dispatcher *)p;
}

/* --- sending a round ------------------------------------------------------------------------------------------------ */

/* What to ask the pass for: as much as the hungriest worker wants. True when somebody waits for rows that are not here, or
 * there is a backlog and room to have some in stock. */
static bool wants_page(const struct dispatcher *d, struct exchange *ret, uint32_t *ret_in_flight)
{
	const struct outbox_config *outbox = d->pool.env.outbox;
	/* A small stock: rows that a worker does not take at once have left the processor's cache when it does. */
	uint32_t stock = 0, limit = MAX((uint32_t)outbox->batch_max / 4, 1);
	bool asked = false, gathering = clock_ms() - d->active_since_ms < GATHER_MS;

	*ret = (struct exchange){ .want_bytes = (size_t)outbox->in_flight_bytes };
	*ret_in_flight = 0;
	for (uint32_t i = 0; i < d->pool.n_channels; i++) {
		const struct channel *c = &d->pool.channels[i];

		/* Workers come one after the other; what is read for those who are not there yet is read in vain. */
		if (c->state == CHANNEL_CLOSED && gathering)
			return false;
		stock = MAX(stock, c->queued);
		*ret_in_flight += c->in_flight + c->queued;
		if (c->state != CHANNEL_ASKED || c->exchange.want_rows == 0)
			continue;
		ret->want_rows = MAX(ret->want_rows, c->exchange.want_rows);
		asked |= c->queued == 0;
	}
	if (ret->want_rows > (uint32_t)outbox->batch_size || pass_has_more(&d->pass))
		ret->want_rows = (uint32_t)outbox->batch_max * 2;
	return ret->want_rows > 0 && stock < limit && (asked || pass_has_more(&d->pass));
}

static bool send_settles(struct dispatcher *d, struct error *err)
{
	struct pool *p = &d->pool;

	d->n_round = d->at_round = 0;
	for (uint32_t i = 0; i < p->n_channels; i++) {
		struct channel *c = &p->channels[i];

		if (c->state != CHANNEL_ASKED)
			continue;
		c->state = CHANNEL_SENT;
		c->answer = (struct answer){ .settled = true };
		if (!c->has_settle)
			continue;
		if (!settle_send(&c->settle, &p->pipeline, &c->exchange, NULL, err) || !pipeline_sync(&p->pipeline, err))
			return false;
		if (array_count(&c->settle.cleared) > 0)
			pass_restart(&d->pass);
		d->round[d->n_round++] = i;
	}
	return true;
}

/* With the lock held, so that workers cannot take back what is being read here. Nothing waits: what the socket does not
 * take at once is kept by libpq. */
static bool send_round(struct dispatcher *d, struct error *err)
{
	struct pool *p = &d->pool;
	struct exchange page;
	uint32_t in_flight;
	bool read = wants_page(d, &page, &in_flight);

	d->sending_ms = clock_ms();
	p->round++;
	if (p->newcomer)
		pass_restart(&d->pass);
	p->newcomer = false;
	if (!send_settles(d, err))
		return false;
	if (read && !pass_send(&d->pass, &p->pipeline, &page, in_flight, d->sending_ms, err))
		return false;
	return pipeline_sync(&p->pipeline, err) && pipeline_flush(&p->pipeline, err);
}

/* --- receiving it ----------------------------------------------------------------------------------------------------- */

/* Takes over `res`. */
static bool take_result(struct dispatcher *d, int statement, PGresult *res, struct answer *page, struct error *err)
{
	struct pool *p = &d->pool;
	_cleanup_(pg_result_clearp) PGresult *owned = res;

	if (d->at_round < d->n_round) {
		struct channel *c = &p->channels[d->round[d->at_round]];

		/* Each of their transactions ends with a sync; the last one is not theirs. */
		if (statement == PIPELINE_SYNC)
			d->at_round++;
		else if (settle_take(&c->settle, &p->pipeline, statement, res, &c->answer)) {
			page->settled &= c->answer.settled;
			return true;
		}
	}
	if (!pipeline_worked(&p->pipeline, statement, res, err))
		return false;
	if (pass_take(&d->pass, statement, res, page))
		owned = NULL;
	return true;
}

/* The workers watch the clock. */
static void tell_when_due(struct pool *p, const struct answer *page)
{
	for (uint32_t i = 0; i < p->n_channels; i++)
		if (p->channels[i].state == CHANNEL_SENT)
			p->channels[i].answer.due_in_ms = page->due_in_ms;
}

static void finish_round(struct dispatcher *d, struct answer *page)
{
	struct pool *p = &d->pool;

	for (uint32_t i = 0; i < d->n_round; i++) {
		struct channel *c = &p->channels[d->round[i]];

		if (c->state == CHANNEL_SENT && c->answer.settled)
			channel_note_settled(c, p->round);
	}
	if (page->rows)
		shared_rows_release(pool_deal(p, page->rows, NULL, page->again, page->retries, page->n_retries));
	p->sent_ms = d->sending_ms;
	tell_when_due(p, page);
	pool_answer(p, CHANNEL_SENT, pass_has_more(&d->pass));
	if (page->rows)
		pool_ring(p);
}

static void wait_for_database(struct pool *p, int64_t ms)
{
	struct pollfd fds[2] = { 0 };

	fds[1].fd = pipeline_pollfd(&p->pipeline, &fds[1].events);
	pool_wait(p, fds, 2, ms);
}

static bool receive_round(struct dispatcher *d, struct error *err)
{
	struct pool *p = &d->pool;
	struct answer page = { .settled = true };
	bool ok = true;

	while (pipeline_busy(&p->pipeline) && ok) {
		PGresult *res;
		int statement;

		ok = pipeline_read(&p->pipeline, err);
		pthread_mutex_lock(&p->lock);
		while (ok && (ok = pipeline_next(&p->pipeline, &statement, &res, err)) && res)
			ok = take_result(d, statement, res, &page, err);
		pthread_mutex_unlock(&p->lock);
		if (ok && pipeline_busy(&p->pipeline))
			wait_for_database(p, IDLE_MS);
	}
	if (!ok) {
		PQclear(page.rows);
		return false;
	}
	pthread_mutex_lock(&p->lock);
	finish_round(d, &page);
	pthread_mutex_unlock(&p->lock);
	return true;
}

/* --- leading -------------------------------------------------------------------------------------------------- */

static bool dispatcher_work(struct pool *p, struct error *err)
{
	struct dispatcher *d = dispatcher_of(p);
	const int64_t beat_ms = p->database.idle_session_timeout_ms / 3;

	pass_init(&d->pass, &p->env, ST_PASS);
	pass_set_parts(&d->pass, (const int32_t[]){ 0 }, 1);
	if (!pass_open(&d->pass, &p->pipeline, err))
		return false;
	d->active_since_ms = clock_ms();
	pool_set_active(p);
	while (!atomic_load(&p->stopping)) {
		bool sent = false, ok = true;

		pthread_mutex_lock(&p->lock);
		/* Even with nothing to do now and then: it shows the server that we are not frozen. */
		if (pool_anything_asked(p) || clock_ms() - d->sending_ms >= beat_ms) {
			ok = send_round(d, err);
			sent = true;
		}
		pthread_mutex_unlock(&p->lock);
		if (!ok || (sent && !receive_round(d, err)))
			return false;
		if (!sent) {
			wait_for_database(p, MIN(IDLE_MS, beat_ms));
			if (!pipeline_read(&p->pipeline, err))
				return false;
		}
	}
	return true;
}

static void dispatcher_ended(struct pool *p)
{
	struct dispatcher *d = dispatcher_of(p);

	pass_release(&d->pass);
	d->pass = (struct pass){ 0 };
}

extern const struct reader_driver reader_dispatcher;

static const struct pool_leader leader = {
	.driver = &reader_dispatcher,
	.statements = statements,
	.n_statements = ST_COUNT,
	.lead = ST_LEAD,
	.standby_event = "dispatcher.standby",
	.active_event = "dispatcher.active",
	.work = dispatcher_work,
	.ended = dispatcher_ended,
};

static struct pool *dispatcher_share(const struct reader_env *env)
{
	struct dispatcher *d = mem_new(struct dispatcher);

	pool_start(&d->pool, &leader, env);
	return &d->pool;
}

static void dispatcher_unshare(struct pool *p)
{
	pool_stop(p);
	free(dispatcher_of(p));
}

static char *dispatcher_install_sql(const struct outbox_config *o, const char *table, const char *role _unused_)
{
	return schedule_index_sql(o, table);
}

const struct reader_driver reader_dispatcher = {
	.name = "dispatcher",
	.install_sql = dispatcher_install_sql,
	.check = schedule_check_order,
	.summary = "one connection fetches for a pool of workers; other processes stand by",
	.needs_session = true,
	.divides = true,
	.reads_ahead = true,
	.reads_apart = true,
	.share = dispatcher_share,
	.unshare = dispatcher_unshare,
	.open = pool_open,
	.close = pool_close,
	.identity = pool_identity,
	.condition = pool_condition,
	.holds_until = pool_holds_until,
	.begin = pool_begin,
	.pollfd = pool_pollfd,
	.receive = pool_receive,
};
