/* The reader `dispatcher`: one connection fetches and settles for all workers of a process, and only one process at a time
 * does. This file is the workers' side; read/dispatch.h says how the other one works. */
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "pg/array.h"
#include "read/dispatch.h"

enum { OPEN_PATIENCE_MS = 200 };

struct reader {
	struct shared *d;
	struct channel *channel;
};

/* --- what workers share ------------------------------------------------------------------------------------------ */

static struct shared *dispatcher_share(const struct reader_env *env)
{
	struct shared *d = mem_new(struct shared);

	d->env = *env;
	d->n_channels = (uint32_t)env->outbox->workers;
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->changed, NULL);
	for (uint32_t i = 0; i < d->n_channels; i++)
		channel_init(&d->channels[i]);
	d->env.interrupt_fd = d->wake_fd;
	if (d->wake_fd < 0 || pthread_create(&d->thread, NULL, dispatch_main, d) != 0)
		abort();        /* out of descriptors or threads at start */
	return d;
}

static void nudge(struct shared *d)
{
	ssize_t ignored _unused_ = write(d->wake_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

static void dispatcher_unshare(struct shared *d)
{
	atomic_store(&d->stopping, true);
	nudge(d);
	pthread_join(d->thread, NULL);
	for (uint32_t i = 0; i < d->n_channels; i++)
		channel_release(&d->channels[i]);
	close(d->wake_fd);
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->changed);
	free(d);
}

/* --- a worker's reader -------------------------------------------------------------------------------------------- */

static void wait_a_little(struct shared *d)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += OPEN_PATIENCE_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	pthread_cond_timedwait(&d->changed, &d->lock, &until);
}

static bool dispatcher_open(const struct reader_env *env, struct reader **ret, struct error *err)
{
	struct shared *d = env->shared;
	struct channel *c = &d->channels[env->worker];
	bool ready;

	pthread_mutex_lock(&d->lock);
	if (d->state == DISPATCH_CONNECTING)
		wait_a_little(d);
	ready = d->state == DISPATCH_ACTIVE || d->state == DISPATCH_STANDBY;
	if (ready) {
		c->state = CHANNEL_IDLE;
		c->lost = false;
		c->in_flight = 0;
		d->begin_again = true;
		c->from_round = d->round_number + 1;
	} else if (d->state == DISPATCH_FAILED) {
		*err = d->why_failed;
	} else {
		error_set(err, ERROR_LOST, "the dispatcher is still connecting");
	}
	pthread_mutex_unlock(&d->lock);
	if (!ready)
		return false;
	*ret = mem_new(struct reader);
	(*ret)->d = d;
	(*ret)->channel = c;
	return true;
}

static void dispatcher_close(struct reader *r)
{
	pthread_mutex_lock(&r->d->lock);
	r->channel->state = CHANNEL_CLOSED;
	channel_empty(r->channel);
	pthread_mutex_unlock(&r->d->lock);
	free(r);
}

/* A sink's writes cannot ride in a transaction that belongs to another thread. */
static const char *dispatcher_identity(const struct reader *r _unused_)
{
	return NULL;
}

static const char *dispatcher_condition(const struct reader *r)
{
	bool standby;

	pthread_mutex_lock(&r->d->lock);
	standby = r->d->state == DISPATCH_STANDBY;
	pthread_mutex_unlock(&r->d->lock);
	return standby ? "standby" : NULL;
}

static int64_t dispatcher_holds_until(const struct reader *r)
{
	int64_t until;

	pthread_mutex_lock(&r->d->lock);
	until = r->d->sent_ms + r->d->env.database->idle_session_timeout_ms;
	pthread_mutex_unlock(&r->d->lock);
	return until;
}

static bool dispatcher_begin(struct reader *r, const struct exchange *x, struct error *err _unused_)
{
	struct channel *c = r->channel;

	pthread_mutex_lock(&r->d->lock);
	c->exchange = *x;
	c->has_settle = x->n_done > 0 || x->n_holds > 0;
	c->in_flight = x->window->rows - x->window->orphans - x->n_done - x->n_holds;
	c->settle.id_type = r->d->id_type;
	settle_collect(&c->settle, x);
	c->state = CHANNEL_ASKED;
	pthread_mutex_unlock(&r->d->lock);
	nudge(r->d);
	return true;
}

static int dispatcher_pollfd(const struct reader *r, short *ret_events)
{
	*ret_events = POLLIN;
	return r->channel->fd;
}

static bool dispatcher_receive(struct reader *r, bool *ret_complete, struct answer *ret, struct error *err)
{
	struct channel *c = r->channel;
	uint64_t ignored;
	bool lost;

	if (read(c->fd, &ignored, sizeof(ignored)) < 0) {
		*ret_complete = false;
		return true;
	}
	pthread_mutex_lock(&r->d->lock);
	lost = c->lost;
	if (lost)
		*err = r->d->why_failed;
	*ret_complete = !lost && c->state == CHANNEL_ANSWERED;
	if (*ret_complete) {
		*ret = c->answer;
		c->answer = (struct answer){ 0 };
		c->state = CHANNEL_IDLE;
	}
	pthread_mutex_unlock(&r->d->lock);
	return !lost;
}

const struct reader_driver reader_dispatcher = {
	.name = "dispatcher",
	.summary = "one connection fetches for a pool of workers; other processes stand by",
	.needs_session = true,
	.divides = true,
	.reads_ahead = true,
	.share = dispatcher_share,
	.unshare = dispatcher_unshare,
	.open = dispatcher_open,
	.close = dispatcher_close,
	.identity = dispatcher_identity,
	.condition = dispatcher_condition,
	.holds_until = dispatcher_holds_until,
	.begin = dispatcher_begin,
	.pollfd = dispatcher_pollfd,
	.receive = dispatcher_receive,
};
