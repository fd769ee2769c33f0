#include "read/pool.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "pg/exec.h"
#include "read/session.h"
#include "relay/bell.h"
#include "relay/field.h"

enum { ASK_FOR_LOCK_MS = 500, RECONNECT_FIRST_MS = 200, RECONNECT_MAX_MS = 5000, OPEN_PATIENCE_MS = 200 };

/* --- channels ----------------------------------------------------------------------------------------------------- */

bool pool_anything_asked(const struct pool *p)
{
	for (uint32_t i = 0; i < p->n_channels; i++)
		if (p->channels[i].state == CHANNEL_ASKED)
			return true;
	return false;
}

void pool_answer_one(struct pool *p, struct channel *c, bool more)
{
	channel_serve(c);
	c->answer.exhausted &= !more;
	c->answer.claim = p->term;
	c->state = CHANNEL_ANSWERED;
	channel_wake(c);
}

void pool_answer(struct pool *p, enum channel_state which, bool more)
{
	for (uint32_t i = 0; i < p->n_channels; i++)
		if (p->channels[i].state == which)
			pool_answer_one(p, &p->channels[i], more);
}

void pool_ring(struct pool *p)
{
	for (uint32_t i = 0; i < p->n_channels; i++)
		if (p->channels[i].state == CHANNEL_IDLE && p->channels[i].queued > 0)
			bell_ring_worker(p->env.bell, i);
}

static void lose_all(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; i < p->n_channels; i++) {
		struct channel *c = &p->channels[i];

		channel_empty(c);
		if (c->state == CHANNEL_CLOSED)
			continue;
		c->lost = true;
		channel_wake(c);
	}
	pthread_mutex_unlock(&p->lock);
}

static uint32_t worker_of(const struct pool *p, const PGresult *rows, int row)
{
	return (uint32_t)(hash_bytes(0, field_raw(rows, row, FIELD_ENTITY)) % p->n_channels);
}

struct shared_rows *pool_deal(struct pool *p, PGresult *rows, const bool *skips, bool again, const struct retry *retries,
			      uint32_t n_retries)
{
	int n = PQntuples(rows);
	struct shared_rows *shared = mem_new(struct shared_rows);
	struct helping *of[POOL_WORKERS_MAX] = { NULL };

	shared->rows = rows;
	atomic_init(&shared->users, 1);
	if (n > 0)
		p->id_type = PQftype(rows, FIELD_ID);
	for (int row = 0; row < n; row++) {
		uint32_t w = worker_of(p, rows, row);

		/* Nobody is there who could publish it now, or he came when this was under way and rows before it had been
		 * passed over already. When a worker comes, reading begins again at the lowest row. */
		if ((skips && skips[row]) || p->channels[w].state == CHANNEL_CLOSED || p->channels[w].from_round > p->round)
			continue;
		if (!of[w]) {
			of[w] = mem_new(struct helping);
			of[w]->rows = shared;
			of[w]->again = again;
			of[w]->round = p->round;
			of[w]->picks = mem_new_array(uint32_t, (size_t)n);
			atomic_fetch_add(&shared->users, 1);
		}
		of[w]->picks[of[w]->n_picks++] = (uint32_t)row;
	}
	for (uint32_t w = 0; w < p->n_channels; w++) {
		if (!of[w])
			continue;
		of[w]->n_retries = n_retries;
		of[w]->retries = mem_new_array(struct retry, n_retries);
		if (n_retries > 0)
			memcpy(of[w]->retries, retries, n_retries * sizeof(struct retry));
		channel_enqueue(&p->channels[w], of[w]);
	}
	return shared;
}

/* --- the leader's thread -------------------------------------------------------------------------------------------- */

static void set_state(struct pool *p, enum pool_state state, const struct error *why)
{
	pthread_mutex_lock(&p->lock);
	p->state = state;
	p->sent_ms = clock_ms();
	if (why)
		p->why_failed = *why;
	if (state == POOL_ACTIVE)
		p->term++;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

void pool_set_active(struct pool *p)
{
	bool was_standby = p->state == POOL_STANDBY;

	if (was_standby)
		log_info(p->leader->active_event, F_STR("outbox", p->env.outbox->name));
	set_state(p, POOL_ACTIVE, NULL);
	bell_ring_all(p->env.bell);
}

void pool_wait(struct pool *p, struct pollfd *fds, uint32_t n_fds, int64_t ms)
{
	uint64_t ignored;

	fds[0] = (struct pollfd){ .fd = p->wake_fd, .events = POLLIN };
	poll(fds, n_fds, (int)ms);
	if (fds[0].revents & POLLIN)
		ignored = (uint64_t)read(p->wake_fd, &ignored, sizeof(ignored));
}

static void answer_in_vain(struct pool *p)
{
	pthread_mutex_lock(&p->lock);
	for (uint32_t i = 0; i < p->n_channels; i++)
		if (p->channels[i].state == CHANNEL_ASKED)
			p->channels[i].answer = (struct answer){ .settled = true };
	pool_answer(p, CHANNEL_ASKED, false);
	p->sent_ms = clock_ms();
	pthread_mutex_unlock(&p->lock);
}

/* True when we have the lock, or are asked to stop. */
static bool stand_by(struct pool *p, struct error *err)
{
	int64_t ask_at = 0;

	while (!atomic_load(&p->stopping)) {
		if (clock_ms() >= ask_at) {
			_cleanup_(pg_result_clearp) PGresult *res = NULL;

			if (!pipeline_run(&p->pipeline, p->leader->lead, NULL, 0, p->database.statement_timeout_ms, &res, err))
				return false;
			if (PQgetvalue(res, 0, 0)[0] == 't')
				return true;
			if (p->state != POOL_STANDBY) {
				log_info(p->leader->standby_event, F_STR("outbox", p->env.outbox->name));
				set_state(p, POOL_STANDBY, NULL);
			}
			ask_at = clock_ms() + ASK_FOR_LOCK_MS;
		}
		answer_in_vain(p);
		pool_wait(p, (struct pollfd[1]){ 0 }, 1, MAX(ask_at - clock_ms(), 0));
	}
	return true;
}

static bool serve_one_session(struct pool *p, struct error *err)
{
	const struct pool_leader *l = p->leader;

	if (!session_open(l->driver, &p->env, l->statements, l->n_statements, &p->pipeline, &p->identity, err))
		return false;
	backoff_reset(&p->backoff);
	if (!stand_by(p, err))
		return false;
	return atomic_load(&p->stopping) || l->work(p, err);
}

static void end_session(struct pool *p)
{
	p->leader->ended(p);
	pipeline_close(&p->pipeline);   /* and with it the lock */
	free(p->identity);
	p->identity = NULL;
}

static void *leader_main(void *pool)
{
	struct pool *p = pool;

	backoff_init(&p->backoff, RECONNECT_FIRST_MS, RECONNECT_MAX_MS, random_seed());
	while (!atomic_load(&p->stopping)) {
		struct error err = { 0 };

		if (!serve_one_session(p, &err)) {
			set_state(p, p->replacement ? POOL_REPLACED : POOL_FAILED, &err);
			lose_all(p);
		}
		end_session(p);
		if (p->replacement)
			bell_set_deaf(p->env.bell, true);       /* we ring no more */
		/* In the other case the process ends, once a worker has asked for the reason. */
		if (p->replacement || (err.kind == ERROR_CONFIG && p->leader->driver->ends_when_refused))
			return NULL;
		if (!atomic_load(&p->stopping)) {
			pool_wait(p, (struct pollfd[1]){ 0 }, 1, backoff_next(&p->backoff));
			set_state(p, POOL_CONNECTING, NULL);
		}
	}
	return NULL;
}

void pool_start(struct pool *p, const struct pool_leader *leader, const struct reader_env *env)
{
	p->leader = leader;
	p->database = *env->database;
	p->env = *env;
	p->env.database = &p->database;
	p->n_channels = (uint32_t)env->outbox->workers;
	p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	p->env.interrupt_fd = p->wake_fd;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, NULL);
	for (uint32_t i = 0; i < p->n_channels; i++)
		channel_init(&p->channels[i]);
	if (p->wake_fd < 0 || pthread_create(&p->thread, NULL, leader_main, p) != 0)
		abort();        /* out of descriptors or threads at start */
}

static void nudge(struct pool *p)
{
	ssize_t ignored _unused_ = write(p->wake_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void pool_stop(struct pool *p)
{
	atomic_store(&p->stopping, true);
	nudge(p);
	pthread_join(p->thread, NULL);
	for (uint32_t i = 0; i < p->n_channels; i++)
		channel_release(&p->channels[i]);
	close(p->wake_fd);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->changed);
}

/* --- a worker's reader ------------------------------------------------------------------------------------------------ */

struct reader {
	struct pool *pool;
	struct channel *channel;
};

static void wait_a_little(struct pool *p)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += OPEN_PATIENCE_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	pthread_cond_timedwait(&p->changed, &p->lock, &until);
}

const struct reader_driver *pool_instead(const struct reader_env *env)
{
	struct pool *p = env->pool;
	const struct reader_driver *other;

	pthread_mutex_lock(&p->lock);
	other = p->state == POOL_REPLACED ? p->replacement : NULL;
	pthread_mutex_unlock(&p->lock);
	return other;
}

bool pool_open(const struct reader_env *env, struct reader **ret, struct error *err)
{
	struct pool *p = env->pool;
	struct channel *c = &p->channels[env->worker];
	bool ready;

	pthread_mutex_lock(&p->lock);
	if (p->state == POOL_CONNECTING)
		wait_a_little(p);
	ready = p->state == POOL_ACTIVE || p->state == POOL_STANDBY;
	if (ready) {
		c->state = CHANNEL_IDLE;
		c->lost = false;
		c->in_flight = 0;
		c->from_round = p->round + 1;
		p->newcomer = true;
	} else if (p->state == POOL_FAILED) {
		*err = p->why_failed;
	} else {
		error_set(err, ERROR_LOST, "the %s is still connecting", p->leader->driver->name);
	}
	pthread_mutex_unlock(&p->lock);
	if (!ready)
		return false;
	*ret = mem_new(struct reader);
	(*ret)->pool = p;
	(*ret)->channel = c;
	return true;
}

void pool_close(struct reader *r)
{
	pthread_mutex_lock(&r->pool->lock);
	r->channel->state = CHANNEL_CLOSED;
	channel_empty(r->channel);
	pthread_mutex_unlock(&r->pool->lock);
	free(r);
}

/* A sink's writes cannot ride in a transaction that belongs to another thread. */
const char *pool_identity(const struct reader *r _unused_)
{
	return NULL;
}

const char *pool_condition(const struct reader *r)
{
	bool standby;

	pthread_mutex_lock(&r->pool->lock);
	standby = r->pool->state == POOL_STANDBY;
	pthread_mutex_unlock(&r->pool->lock);
	return standby ? "standby" : NULL;
}

int64_t pool_holds_until(const struct reader *r)
{
	int64_t until;

	pthread_mutex_lock(&r->pool->lock);
	until = r->pool->sent_ms + r->pool->database.idle_session_timeout_ms;
	pthread_mutex_unlock(&r->pool->lock);
	return until;
}

bool pool_begin(struct reader *r, const struct exchange *x, struct error *err _unused_)
{
	struct channel *c = r->channel;

	pthread_mutex_lock(&r->pool->lock);
	c->exchange = *x;
	c->has_settle = x->n_done > 0 || x->n_holds > 0;
	c->in_flight = x->window->rows - x->window->orphans - x->n_done - x->n_holds;
	c->settle.id_type = r->pool->id_type;
	settle_collect(&c->settle, x);
	c->state = CHANNEL_ASKED;
	pthread_mutex_unlock(&r->pool->lock);
	nudge(r->pool);
	return true;
}

int pool_pollfd(const struct reader *r, short *ret_events)
{
	*ret_events = POLLIN;
	return r->channel->fd;
}

bool pool_receive(struct reader *r, bool *ret_complete, struct answer *ret, struct error *err)
{
	struct channel *c = r->channel;
	uint64_t ignored;
	bool lost;

	if (read(c->fd, &ignored, sizeof(ignored)) < 0) {
		*ret_complete = false;
		return true;
	}
	pthread_mutex_lock(&r->pool->lock);
	lost = c->lost;
	if (lost)
		*err = r->pool->why_failed;
	*ret_complete = !lost && c->state == CHANNEL_ANSWERED;
	if (*ret_complete) {
		*ret = c->answer;
		c->answer = (struct answer){ 0 };
		c->state = CHANNEL_IDLE;
	}
	pthread_mutex_unlock(&r->pool->lock);
	return !lost;
}
