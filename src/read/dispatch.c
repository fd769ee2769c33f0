#include "read/dispatch.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/exec.h"
#include "read/session.h"
#include "relay/bell.h"
#include "relay/field.h"

enum { ASK_FOR_LOCK_MS = 500, RECONNECT_FIRST_MS = 200, RECONNECT_MAX_MS = 5000, IDLE_MS = 1000, GATHER_MS = 500 };

enum { ST_LEAD = SETTLE_STATEMENTS, ST_PASS, ST_COUNT = ST_PASS + PASS_STATEMENTS_COUNT };

static const struct statement statements[ST_COUNT] = {
	SETTLE_PLAIN,
	[ST_LEAD] = { "postrider_lead", "become the active dispatcher",
		"SELECT pg_try_advisory_lock(hashtextextended('postrider.dispatcher', {oid}))" },
	PASS_STATEMENTS(ST_PASS, "o.{key} IS NOT NULL", "o.{key} IS NOT NULL AND o.{order} > s.after", "true", "o.{order}"),
};

/* --- channels --------------------------------------------------------------------------------------------------- */

/* With the lock held. */
static void answer_all(struct shared *d, enum channel_state which)
{
	for (uint32_t i = 0; i < d->n_channels; i++) {
		struct channel *c = &d->channels[i];

		if (c->state != which)
			continue;
		channel_serve(c);
		c->answer.exhausted &= !d->pass.under_way || d->state != DISPATCH_ACTIVE;
		c->answer.claim = d->term;
		c->state = CHANNEL_ANSWERED;
		channel_wake(c);
	}
}

static void lose_all(struct shared *d)
{
	pthread_mutex_lock(&d->lock);
	for (uint32_t i = 0; i < d->n_channels; i++) {
		struct channel *c = &d->channels[i];

		channel_empty(c);
		if (c->state == CHANNEL_CLOSED)
			continue;
		c->lost = true;
		channel_wake(c);
	}
	pthread_mutex_unlock(&d->lock);
}

static void set_state(struct shared *d, enum dispatch_state state, const struct error *why)
{
	pthread_mutex_lock(&d->lock);
	d->state = state;
	d->sent_ms = clock_ms();
	if (why)
		d->why_failed = *why;
	if (state == DISPATCH_ACTIVE)
		d->term++;
	pthread_cond_broadcast(&d->changed);
	pthread_mutex_unlock(&d->lock);
}

/* --- dealing ----------------------------------------------------------------------------------------------------- */

static uint32_t worker_of(const struct shared *d, const PGresult *res, int row)
{
	return (uint32_t)(hash_bytes(0, field_raw(res, row, FIELD_ENTITY)) % d->n_channels);
}

/* With the lock held. Takes over the rows of the answer. */
static void deal(struct shared *d, const struct answer *page)
{
	int n = PQntuples(page->rows);
	struct shared_rows *rows;
	struct helping *of[DISPATCH_WORKERS_MAX] = { NULL };

	if (n == 0) {
		PQclear(page->rows);
		return;
	}
	rows = mem_new(struct shared_rows);
	rows->rows = page->rows;
	atomic_init(&rows->users, 1);   /* we, until all is dealt */
	for (int row = 0; row < n; row++) {
		uint32_t w = worker_of(d, page->rows, row);

		/* Nobody is there who could publish it now, or he came when this was under way and rows before it had been
		 * passed over already. When a worker comes, reading begins again at the lowest row. */
		if (d->channels[w].state == CHANNEL_CLOSED || d->channels[w].from_round > d->round_number)
			continue;
		if (!of[w]) {
			of[w] = mem_new(struct helping);
			of[w]->rows = rows;
			of[w]->again = page->again;
			of[w]->round = d->round_number;
			of[w]->picks = mem_new_array(uint32_t, (size_t)n);
			atomic_fetch_add(&rows->users, 1);
		}
		of[w]->picks[of[w]->n_picks++] = (uint32_t)row;
	}
	for (uint32_t w = 0; w < d->n_channels; w++) {
		if (!of[w])
			continue;
		of[w]->n_retries = page->n_retries;
		of[w]->retries = mem_new_array(struct retry, page->n_retries);
		if (page->n_retries > 0)
			memcpy(of[w]->retries, page->retries, page->n_retries * sizeof(struct retry));
		channel_enqueue(&d->channels[w], of[w]);
	}
	shared_rows_release(rows);
}

/* --- a round: one trip to the database --------------------------------------------------------------------------- */

/* What to ask the pass for: as much as the hungriest worker wants. True when somebody waits for rows that are not here, or
 * there is a backlog and room to have some in stock. */
static bool wants_page(const struct shared *d, struct exchange *ret, uint32_t *ret_in_flight)
{
	/* A small stock: rows that a worker does not take at once have left the processor's cache when it does. */
	uint32_t stock = 0, limit = MAX((uint32_t)d->env.outbox->batch_max / 4, 1);
	bool asked = false, gathering = clock_ms() - d->active_since_ms < GATHER_MS;

	*ret = (struct exchange){ .want_bytes = (size_t)d->env.outbox->in_flight_bytes };
	*ret_in_flight = 0;
	for (uint32_t i = 0; i < d->n_channels; i++) {
		const struct channel *c = &d->channels[i];

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
	if (ret->want_rows > (uint32_t)d->env.outbox->batch_size || d->pass.under_way)
		ret->want_rows = (uint32_t)d->env.outbox->batch_max * 2;
	return ret->want_rows > 0 && stock < limit && (asked || d->pass.under_way);
}

static bool send_settles(struct shared *d, struct error *err)
{
	d->n_round = d->at_round = 0;
	for (uint32_t i = 0; i < d->n_channels; i++) {
		struct channel *c = &d->channels[i];

		if (c->state != CHANNEL_ASKED)
			continue;
		c->state = CHANNEL_SENT;
		c->answer = (struct answer){ .settled = true };
		if (!c->has_settle)
			continue;
		if (!settle_send(&c->settle, &d->pipeline, &c->exchange, NULL, err) || !pipeline_sync(&d->pipeline, err))
			return false;
		if (array_count(&c->settle.cleared) > 0)
			pass_restart(&d->pass);
		d->round[d->n_round++] = i;
	}
	return true;
}

/* With the lock held, so that workers cannot take back what is being read here. Nothing waits: what the socket does not
 * take at once is kept by libpq. */
static bool send_round(struct shared *d, struct error *err)
{
	struct exchange page;
	uint32_t in_flight;
	bool read = wants_page(d, &page, &in_flight);

	d->sending_ms = clock_ms();
	d->round_number++;
	if (d->begin_again)
		pass_restart(&d->pass);
	d->begin_again = false;
	if (!send_settles(d, err))
		return false;
	if (read && !pass_send(&d->pass, &d->pipeline, &page, in_flight, d->sending_ms, err))
		return false;
	return pipeline_sync(&d->pipeline, err) && pipeline_flush(&d->pipeline, err);
}

/* Takes over `res`. */
static bool take_result(struct shared *d, int statement, PGresult *res, struct answer *page, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *owned = res;

	if (d->at_round < d->n_round) {
		struct channel *c = &d->channels[d->round[d->at_round]];

		/* Each of their transactions ends with a sync; the last one is not theirs. */
		if (statement == PIPELINE_SYNC)
			d->at_round++;
		else if (settle_take(&c->settle, &d->pipeline, statement, res, &c->answer)) {
			page->settled &= c->answer.settled;
			return true;
		}
	}
	if (!pipeline_worked(&d->pipeline, statement, res, err))
		return false;
	if (pass_take(&d->pass, statement, res, page))
		owned = NULL;
	return true;
}

static void finish_round(struct shared *d, struct answer *page)
{
	for (uint32_t i = 0; i < d->n_round; i++) {
		struct channel *c = &d->channels[d->round[i]];

		if (c->state == CHANNEL_SENT && c->answer.settled)
			channel_note_settled(c, d->round_number);
	}
	if (page->rows) {
		d->id_type = PQftype(page->rows, FIELD_ID);
		deal(d, page);
	}
	d->sent_ms = d->sending_ms;
	answer_all(d, CHANNEL_SENT);
	/* Rows were dealt to workers that did not ask and may be asleep. */
	if (page->rows)
		for (uint32_t i = 0; i < d->n_channels; i++)
			if (d->channels[i].state == CHANNEL_IDLE && d->channels[i].queued > 0) {
				bell_ring_all(d->env.bell);
				break;
			}
}

static void wait_for(struct shared *d, bool for_database, int64_t ms)
{
	struct pollfd fds[2] = { { .fd = d->wake_fd, .events = POLLIN } };
	uint64_t ignored;

	if (for_database)
		fds[1].fd = pipeline_pollfd(&d->pipeline, &fds[1].events);
	poll(fds, for_database ? 2 : 1, (int)ms);
	if (fds[0].revents & POLLIN)
		ignored = (uint64_t)read(d->wake_fd, &ignored, sizeof(ignored));
}

static bool receive_round(struct shared *d, struct error *err)
{
	struct answer page = { .settled = true };
	bool ok = true;

	while (pipeline_busy(&d->pipeline) && ok) {
		PGresult *res;
		int statement;

		ok = pipeline_read(&d->pipeline, err);
		pthread_mutex_lock(&d->lock);
		while (ok && (ok = pipeline_next(&d->pipeline, &statement, &res, err)) && res)
			ok = take_result(d, statement, res, &page, err);
		pthread_mutex_unlock(&d->lock);
		if (ok && pipeline_busy(&d->pipeline))
			wait_for(d, true, IDLE_MS);
	}
	if (!ok) {
		PQclear(page.rows);
		return false;
	}
	pthread_mutex_lock(&d->lock);
	finish_round(d, &page);
	pthread_mutex_unlock(&d->lock);
	return true;
}

static bool anything_asked(const struct shared *d)
{
	for (uint32_t i = 0; i < d->n_channels; i++)
		if (d->channels[i].state == CHANNEL_ASKED)
			return true;
	return false;
}

/* --- active and standing by ---------------------------------------------------------------------------------------- */

/* Until asked to stop (true) or the session is lost (false). */
static bool lead(struct shared *d, struct error *err)
{
	const int64_t beat_ms = d->env.database->idle_session_timeout_ms / 3;

	pass_set_parts(&d->pass, (const int32_t[]){ 0 }, 1);
	if (!pass_open(&d->pass, &d->pipeline, err))
		return false;
	d->active_since_ms = clock_ms();
	set_state(d, DISPATCH_ACTIVE, NULL);
	bell_ring_all(d->env.bell);
	while (!atomic_load(&d->stopping)) {
		bool sent = false, ok = true;

		pthread_mutex_lock(&d->lock);
		/* Even with nothing to do now and then: it shows the server that we are not frozen. */
		if (anything_asked(d) || clock_ms() - d->sending_ms >= beat_ms) {
			ok = send_round(d, err);
			sent = true;
		}
		pthread_mutex_unlock(&d->lock);
		if (!ok || (sent && !receive_round(d, err)))
			return false;
		if (!sent) {
			wait_for(d, true, MIN(IDLE_MS, beat_ms));
			if (!pipeline_read(&d->pipeline, err))
				return false;
		}
	}
	return true;
}

static void answer_in_vain(struct shared *d)
{
	pthread_mutex_lock(&d->lock);
	for (uint32_t i = 0; i < d->n_channels; i++)
		if (d->channels[i].state == CHANNEL_ASKED)
			d->channels[i].answer = (struct answer){ .settled = true };
	answer_all(d, CHANNEL_ASKED);
	d->sent_ms = clock_ms();
	pthread_mutex_unlock(&d->lock);
}

/* True when we have the lock, or are asked to stop. */
static bool stand_by(struct shared *d, struct error *err)
{
	int64_t ask_at = 0;

	while (!atomic_load(&d->stopping)) {
		if (clock_ms() >= ask_at) {
			_cleanup_(pg_result_clearp) PGresult *res = NULL;

			if (!pipeline_run(&d->pipeline, ST_LEAD, NULL, 0, d->env.database->statement_timeout_ms, &res, err))
				return false;
			if (PQgetvalue(res, 0, 0)[0] == 't')
				return true;
			if (d->state != DISPATCH_STANDBY) {
				log_info("dispatcher.standby", F_STR("outbox", d->env.outbox->name));
				set_state(d, DISPATCH_STANDBY, NULL);
			}
			ask_at = clock_ms() + ASK_FOR_LOCK_MS;
		}
		answer_in_vain(d);
		wait_for(d, false, MAX(ask_at - clock_ms(), 0));
	}
	return true;
}

static bool serve_one_session(struct shared *d, struct error *err)
{
	bool was_standby;

	if (!session_open(&reader_dispatcher, &d->env, statements, ST_COUNT, &d->pipeline, &d->identity, err))
		return false;
	backoff_reset(&d->backoff);
	pass_init(&d->pass, &d->env, ST_PASS);
	if (!stand_by(d, err))
		return false;
	was_standby = d->state == DISPATCH_STANDBY;
	if (atomic_load(&d->stopping))
		return true;
	if (was_standby)
		log_info("dispatcher.active", F_STR("outbox", d->env.outbox->name));
	return lead(d, err);
}

static void end_session(struct shared *d)
{
	pipeline_close(&d->pipeline);   /* and with it the lock */
	pass_release(&d->pass);
	d->pass = (struct pass){ 0 };
	free(d->identity);
	d->identity = NULL;
}

void *dispatch_main(void *arg)
{
	struct shared *d = arg;

	backoff_init(&d->backoff, RECONNECT_FIRST_MS, RECONNECT_MAX_MS, random_seed());
	while (!atomic_load(&d->stopping)) {
		struct error err = { 0 };

		if (!serve_one_session(d, &err)) {
			set_state(d, DISPATCH_FAILED, &err);
			lose_all(d);
		}
		end_session(d);
		if (!atomic_load(&d->stopping)) {
			wait_for(d, false, backoff_next(&d->backoff));
			set_state(d, DISPATCH_CONNECTING, NULL);
		}
	}
	return NULL;
}
