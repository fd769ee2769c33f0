#include "sink/kafka_producer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sink/kafka_errors.h"
#include "sink/kafka_handle.h"
#include "sink/kafka_health.h"

enum { MAKE_AGAIN_MS = 10 * 1000 };

struct producer {
	struct handle_env env;

	/* Read-held while producing, write-held while handles and topics come and go. Nobody waits with it. */
	pthread_rwlock_t lock;
	struct handle *handle;                  /* NULL: to be made when there is something to submit */
	int64_t make_at_ms;                     /* not before this: the last time it could not be done */
	bool told;                              /* the log knows that the handle has stopped */
	_Atomic int64_t asked_at_ms;            /* whether brokers are there */

	pthread_t undertaker;                   /* ends the last handle, */
	bool burying;                           /* if there was one. Both guarded by undertaker_lock */
	pthread_mutex_t undertaker_lock;
};

/* --- handles --------------------------------------------------------------------------------------------------- */

bool producer_open(const struct sink_config *sink, struct topic_limits *limits, struct breaker *breaker, bool one_by_one,
		   struct producer **ret, struct error *err)
{
	struct producer *p = mem_new(struct producer);

	p->env.sink = sink;
	p->env.limits = limits;
	p->env.one_by_one = one_by_one;
	kafka_health_init(&p->env.health, sink, breaker);
	gate_keeper_init(&p->env.keeper);
	pthread_rwlock_init(&p->lock, NULL);
	pthread_mutex_init(&p->undertaker_lock, NULL);
	/* One shows that the settings are good; the other is seldom needed. */
	if (!one_by_one && !handle_open(&p->env, &p->handle, err)) {
		producer_close(p);
		return false;
	}
	*ret = p;
	return true;
}

void producer_close(struct producer *p)
{
	if (!p)
		return;
	handle_free(p->handle);
	if (p->burying)
		pthread_join(p->undertaker, NULL);
	pthread_rwlock_destroy(&p->lock);
	pthread_mutex_destroy(&p->undertaker_lock);
	kafka_health_release(&p->env.health);
	gate_keeper_release(&p->env.keeper);
	free(p);
}

/* Called and returns with the lock read-held; in between it is write-held. */
static void make_missing_handle(struct producer *p)
{
	struct error err;

	pthread_rwlock_unlock(&p->lock);
	pthread_rwlock_wrlock(&p->lock);
	if (!p->handle && clock_ms() >= p->make_at_ms && !handle_open(&p->env, &p->handle, &err)) {
		/* Settings were good at the start; a secret file may be gone now. */
		log_error("kafka.unusable", F_STR("sink", p->env.sink->name), F_ERROR(&err));
		p->make_at_ms = clock_ms() + MAKE_AGAIN_MS;
	}
	pthread_rwlock_unlock(&p->lock);
	pthread_rwlock_rdlock(&p->lock);
}

static void *bury_main(void *handle)
{
	handle_free(handle);
	return NULL;
}

/* librdkafka joins its threads, and one of them may be resolving a name: not a worker's time. */
static void bury(struct producer *p, struct handle *h)
{
	pthread_mutex_lock(&p->undertaker_lock);
	if (p->burying)
		pthread_join(p->undertaker, NULL);
	p->burying = pthread_create(&p->undertaker, NULL, bury_main, h) == 0;
	if (!p->burying)
		handle_free(h);
	pthread_mutex_unlock(&p->undertaker_lock);
}

/* --- mending --------------------------------------------------------------------------------------------------- */

void producer_recall(struct producer *p)
{
	uint32_t rows;

	pthread_rwlock_rdlock(&p->lock);
	rows = p->handle ? handle_outstanding(p->handle) : 0;
	/* When several workers lose their claims at once, the first stops it for all of them. */
	if (rows > 0 && handle_stop(p->handle))
		log_info("kafka.recalled", F_STR("sink", p->env.sink->name), F_INT("rows", rows),
			 F_STR("meaning", "what has not left is dropped; what is still ours is sent again, in order"));
	pthread_rwlock_unlock(&p->lock);
}

bool producer_mends(struct producer *p)
{
	bool mends;

	pthread_rwlock_rdlock(&p->lock);
	mends = p->handle && handle_is_stopped(p->handle);
	pthread_rwlock_unlock(&p->lock);
	return mends;
}

static void tell(struct producer *p)
{
	char reason[512] = "";

	if (p->told)
		return;
	p->told = true;
	if (!handle_has_failed(p->handle, reason, sizeof(reason)))
		return;
	log_warn("kafka.replaced", F_STR("sink", p->env.sink->name), F_STR("reason", reason),
		 F_STR("meaning", "rows on their way are sent again, in order"));
}

void producer_mend(struct producer *p, int64_t now_ms)
{
	struct handle *drained = NULL;

	if (!producer_mends(p))
		return;
	pthread_rwlock_wrlock(&p->lock);
	if (p->handle && handle_is_stopped(p->handle)) {
		tell(p);
		if (handle_drain(p->handle, now_ms)) {
			drained = TAKE_PTR(p->handle);
			p->told = false;
		}
	}
	pthread_rwlock_unlock(&p->lock);
	if (drained)
		bury(p, drained);
}

/* --- rows that wait ---------------------------------------------------------------------------------------------- */

void producer_user_open(struct producer_user *user, struct producer *p, struct outcomes *outcomes)
{
	*user = (struct producer_user){ .outcomes = outcomes, .waiter.box = outcomes->box };
	gate_keeper_enlist(&p->env.keeper, &user->waiter);
}

void producer_user_close(struct producer_user *user, struct producer *p)
{
	gate_keeper_dismiss(&p->env.keeper, &user->waiter);
	producer_user_drop(user, "the sink was closed before the row could be sent");
}

/* A chain of events behind those that wait. */
static void keep(struct producer_user *user, struct event *first, struct event *last)
{
	last->next = NULL;
	if (user->last)
		user->last->next = first;
	else
		user->first = first;
	user->last = last;
}

void producer_user_drop(struct producer_user *user, const char *why)
{
	struct event *ev = user->first, *next;
	struct error lost;

	error_set(&lost, ERROR_LOST, "%s", why);
	user->first = user->last = NULL;
	for (; ev; ev = next) {
		next = ev->next;
		outcomes_fail(user->outcomes, &ev, 1, &lost);
	}
}

/* --- producing -------------------------------------------------------------------------------------------------- */

/* Called and returns with the lock read-held; in between it is write-held, so the handle may be another one after. */
static void add_topic(struct producer *p, struct slice name)
{
	pthread_rwlock_unlock(&p->lock);
	pthread_rwlock_wrlock(&p->lock);
	if (p->handle && !handle_knows_topic(p->handle, name))
		handle_add_topic(p->handle, name);
	pthread_rwlock_unlock(&p->lock);
	pthread_rwlock_rdlock(&p->lock);
}

/* False while the worker may not know of a failure yet. Failures of others only look like that: an empty mailbox, or one
 * look into it, settles the matter. */
static bool is_up_to_date(struct producer *p, struct producer_user *user)
{
	uint32_t failures = atomic_load(&p->env.failures);

	if (failures != user->failures)
		outcomes_failed_elsewhere(user->outcomes);
	user->failures = failures;
	return !outcomes_unread(user->outcomes);
}

static enum handle_answer take(struct producer *p, struct producer_user *user, struct gate_pass *pass, uint32_t number,
			       struct event *ev, struct error *err)
{
	if (p->handle && !handle_knows_topic(p->handle, ev->topic))
		add_topic(p, ev->topic);
	/* Each time: the lock may have been let go, and a new handle accepts what must wait: for a failure that lies in the
	 * mailbox, or behind a row that the old one held back in this pass. */
	if (!p->handle || handle_number(p->handle) != number || !is_up_to_date(p, user))
		return HANDLE_NOT_NOW;
	return handle_take(p->handle, pass, ev, err);
}

/* Takes the event, or keeps it waiting: true. */
static bool take_or_keep(struct producer *p, struct producer_user *user, struct gate_pass *pass, uint32_t number,
			 struct event *ev, struct error *err)
{
	enum handle_answer answer = take(p, user, pass, number, ev, err);

	user->asking = answer == HANDLE_IS_ASKING;
	if (answer == HANDLE_HOLDS_BACK)
		keep(user, ev, ev);
	/* Of what is just not the time for, the reason is nobody's business. */
	if (answer != HANDLE_REFUSED)
		err->kind = ERROR_NONE;
	return answer == HANDLE_TOOK || answer == HANDLE_HOLDS_BACK;
}

/* Those that wait go first, in their order. False when one of them stands in the way of all others. */
static bool serve_waiting(struct producer *p, struct producer_user *user, struct gate_pass *pass, uint32_t number)
{
	struct event *ev = user->first, *last = user->last, *next;
	struct error err = { 0 };

	user->first = user->last = NULL;
	for (; ev; ev = next) {
		next = ev->next;
		if (take_or_keep(p, user, pass, number, ev, &err))
			continue;
		if (err.kind != ERROR_NONE) {
			outcomes_fail(user->outcomes, &ev, 1, &err);
			ev = next;
		}
		if (ev)
			keep(user, ev, last);
		/* Some may be of the same entity. */
		if (err.kind != ERROR_NONE)
			producer_user_drop(user, "not sent: an earlier row was refused");
		return false;
	}
	return true;
}

/* A row that failed may be an earlier one of the same entity. Its failure was counted before its gate was opened, so none
 * of those that wait can have gone before we come here. */
static void drop_after_failure(struct producer *p, struct producer_user *user)
{
	uint32_t failures = atomic_load(&p->env.failures);

	if (user->first && failures != user->failures_seen)
		producer_user_drop(user, "not sent: an earlier row failed");
	user->failures_seen = failures;
}

/* To be woken when a gate has changed; what has changed since the pass began wakes us at once. */
static void await(struct producer *p, struct producer_user *user, const struct gate_pass *pass)
{
	atomic_store(&user->waiter.waits, user->first || user->asking);
	if (user->first && atomic_load(&p->env.keeper.changes) != pass->changes)
		mailbox_wake(user->waiter.box);
}

uint32_t producer_submit(struct producer *p, struct producer_user *user, struct event *const events[], uint32_t n,
			 struct error *err)
{
	struct gate_pass pass;
	uint32_t taken = 0, number;

	err->kind = ERROR_NONE;
	pthread_rwlock_rdlock(&p->lock);
	if (!p->handle)
		make_missing_handle(p);
	gate_pass_begin(&pass, &p->env.keeper, clock_ms());
	number = p->handle ? handle_number(p->handle) : 0;
	drop_after_failure(p, user);
	if (serve_waiting(p, user, &pass, number))
		while (taken < n && take_or_keep(p, user, &pass, number, events[taken], err))
			taken++;
	pthread_rwlock_unlock(&p->lock);
	await(p, user, &pass);
	return taken;
}

/* --- asking ------------------------------------------------------------------------------------------------------ */

void producer_ask(struct producer *p)
{
	int64_t now = clock_ms(), asked = atomic_load(&p->asked_at_ms);

	if (now - asked < PRODUCER_ASKS_EVERY_MS || !atomic_compare_exchange_strong(&p->asked_at_ms, &asked, now))
		return;
	pthread_rwlock_rdlock(&p->lock);
	if (p->handle && !handle_is_stopped(p->handle))
		handle_ask(p->handle);
	pthread_rwlock_unlock(&p->lock);
}

bool producer_probe(struct producer *p, const char *topic, int timeout_ms, int *ret_partitions, struct error *err)
{
	const struct rd_kafka_metadata *metadata = NULL;
	rd_kafka_t *rk = handle_client(p->handle);
	rd_kafka_topic_t *handle = topic ? rd_kafka_topic_new(rk, topic, NULL) : NULL;
	rd_kafka_resp_err_t code = rd_kafka_metadata(rk, 0, handle, &metadata, timeout_ms);

	if (handle)
		rd_kafka_topic_destroy(handle);
	if (code) {
		/* What went wrong on the way says more than that there was no answer. */
		*err = kafka_health_reason(&p->env.health);
		if (err->kind == ERROR_NONE)
			kafka_error_set(err, code, NULL);
		return error_prefix(err, "could not reach the brokers %s", p->env.sink->kafka.brokers);
	}
	*ret_partitions = 0;
	if (topic) {
		code = metadata->topics[0].err;
		*ret_partitions = metadata->topics[0].partition_cnt;
	}
	rd_kafka_metadata_destroy(metadata);
	if (code) {
		kafka_error_set(err, code, NULL);
		return error_prefix(err, "topic %s", topic);
	}
	return true;
}
