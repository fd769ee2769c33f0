#include "relay/replayer.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"
#include "base/macros.h"
#include "relay/route.h"
#include "relay/supervisor.h"
#include "relay/worker.h"

enum { TICK_MS = 100 };

struct replayer {
	const struct replayer_env *env;
	struct replay *replay;
	struct node node;
	struct outbox outbox;
	struct worker *worker;
	sigset_t signals;
	bool interrupted;
	bool stopping;                  /* the worker was asked to end */
};

void replayer_settings(const struct outbox_config *outbox, const char *topic, struct outbox_config *ret)
{
	*ret = *outbox;
	ret->workers = 1;
	ret->settle = SETTLE_BATCHES;
	/* What is refused is told, and nothing else: the row was published once, and is in nobody's way. */
	ret->failure.max_retries = 0;
	ret->failure.then = REFUSED_SKIP;
	ret->failure.topics = (struct config_map){ 0 };
	ret->failure.dead_letter_topic = (char *)(uintptr_t)"";
	if (topic)
		ret->route.topic = (char *)(uintptr_t)topic;
}

static void block_signals(struct replayer *r)
{
	sigemptyset(&r->signals);
	sigaddset(&r->signals, SIGTERM);
	sigaddset(&r->signals, SIGINT);
	sigaddset(&r->signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &r->signals, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static bool prepare(struct replayer *r, struct error *err)
{
	const struct replayer_env *env = r->env;
	struct outbox *o = &r->outbox;

	if (!outbox_prepare(o, env->database, &r->node, env->outbox, &reader_replay, err))
		return false;
	route_mark_replay(o->route, env->time, env->topic_for_all);
	o->table = r->replay->history->table;
	o->replay = r->replay;
	/* Nobody rings, and nothing comes that would be worth looking for. */
	bell_set_deaf(&o->bell, false);
	r->worker = worker_new(o);
	return worker_start(r->worker, err);
}

static void stop(struct replayer *r, int64_t deadline_ms)
{
	r->stopping = true;
	worker_drain(r->worker, deadline_ms);
}

/* The second signal does not want to wait for what is on its way. */
static void take_signal(struct replayer *r)
{
	stop(r, clock_ms() + (r->interrupted ? 0 : r->env->stop_timeout_ms));
	r->interrupted = true;
}

static void watch(struct replayer *r)
{
	const struct timespec tick = { .tv_nsec = TICK_MS * 1000000L };

	while (!worker_ended(r->worker)) {
		if (sigtimedwait(&r->signals, NULL, &tick) > 0)
			take_signal(r);
		if (!r->stopping && (atomic_load(&r->replay->finished) || atomic_load(&r->replay->stopped)))
			stop(r, clock_ms() + r->env->stop_timeout_ms);
		r->env->tell(r->env->arg, r->stopping && !atomic_load(&r->replay->finished));
	}
}

static enum replay_end judge(const struct replayer *r, struct error *err)
{
	if (worker_broken(r->worker, err))
		return REPLAY_FAILED;
	if (atomic_load(&r->replay->finished))
		return REPLAY_COMPLETE;
	if (!atomic_load(&r->replay->stopped))
		return REPLAY_INTERRUPTED;
	*err = r->replay->why_stopped;
	return REPLAY_FAILED;
}

enum replay_end replayer_run(const struct replayer_env *env, struct replay *replay, struct error *err)
{
	struct replayer r = { .env = env, .replay = replay, .node = { .name = env->node } };
	struct worker_totals totals = { 0 };
	enum replay_end end = REPLAY_FAILED;

	block_signals(&r);
	if (prepare(&r, err)) {
		watch(&r);
		worker_join(r.worker, &totals);
		end = judge(&r, err);
	}
	r.outbox.table = NULL;          /* the history's */
	outbox_release(&r.outbox);
	worker_free(r.worker);
	return end;
}
