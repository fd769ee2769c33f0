#include "sink/kafka_handle.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "relay/mailbox.h"
#include "sink/kafka_conf.h"
#include "sink/kafka_errors.h"

enum {
	REPORT_CHUNK = 512,
	PURGE_MS = 5000,                        /* the longest that freeing waits for outcomes */
	GRACE_MS = 1000,                        /* for answers to what is on the wire when it stops */
	PURGE_EVERY_MS = 10,
};

/* Its own fatal errors never have this code. */
#define STOP_CODE RD_KAFKA_RESP_ERR__PURGE_QUEUE

struct topic {
	char *name;
	size_t len;
	rd_kafka_topic_t *handle;
	struct topic_limit *limit;
	struct gate *gate;                      /* NULL: rows travel alone anyhow */
};

struct handle {
	struct handle_env *env;
	rd_kafka_t *rk;
	struct topic *topics;
	size_t n_topics;
	uint32_t number;
	const struct kafka_partitioner *partitioner;
	bool compresses;                        /* then sizes mean nothing before the broker has them */

	_Atomic bool stopped;
	_Atomic uint32_t outstanding;
	_Atomic int64_t draining_since_ms, purged_at_ms; /* 0: not yet */
};

/* --- on librdkafka's background thread ------------------------------------------------------------------------- */

static struct error *failure_of(const struct handle *h, struct event *ev, const rd_kafka_message_t *m)
{
	struct error *failure = mem_new(struct error);

	kafka_error_set(failure, m->err, NULL);  /* rd_kafka_message_errstr would be the payload here */
	/* The broker refused a batch, not a message: only alone will it show which one is meant. */
	if (failure->kind == ERROR_REJECTED && !h->env->one_by_one) {
		ev->alone = true;
		failure->kind = ERROR_LOST;
	}
	return failure;
}

/* Reports of one worker's rows usually come together, so they are posted together. Returns how many were delivered. */
static size_t post_outcomes(const struct handle *h, const rd_kafka_message_t *const messages[], size_t n)
{
	struct event *newest = NULL, *oldest = NULL;
	struct mailbox *to = NULL;
	size_t delivered = 0;

	for (size_t i = 0; i < n; i++) {
		struct event *ev = messages[i]->_private;

		delivered += messages[i]->err == RD_KAFKA_RESP_ERR_NO_ERROR;
		if (messages[i]->err)
			ev->failure = failure_of(h, ev, messages[i]);
		if (to && to != ev->outcomes) {
			mailbox_post_chain(to, newest, oldest);
			newest = NULL;
		}
		to = ev->outcomes;
		if (!newest)
			oldest = ev;
		ev->next = newest;
		newest = ev;
	}
	mailbox_post_chain(to, newest, oldest);
	return delivered;
}

/* Rows of a batch come one after the other. */
static bool is_like(const rd_kafka_message_t *m, const rd_kafka_message_t *before)
{
	return m->rkt == before->rkt && m->partition == before->partition && !m->err && !before->err;
}

/* After the outcomes are posted and counted: whoever is let through now must be able to know of a failure. */
static void tell_gates(const struct handle *h, const rd_kafka_message_t *const messages[], size_t n)
{
	int64_t now_ms = clock_ms();

	for (size_t i = 0; i < n && !h->env->one_by_one; i++) {
		const rd_kafka_message_t *m = messages[i];
		struct gate *gate = rd_kafka_topic_opaque(m->rkt);

		if (i == 0 || !is_like(m, messages[i - 1]) || gate_is_busy(gate))
			gate_report(gate, m->partition, m->_private, m->err == RD_KAFKA_RESP_ERR_NO_ERROR, now_ms);
	}
}

static void on_reports(struct handle *h, rd_kafka_event_t *event)
{
	const rd_kafka_message_t *messages[REPORT_CHUNK];
	size_t n;

	while ((n = rd_kafka_event_message_array(event, messages, REPORT_CHUNK)) > 0) {
		size_t delivered = post_outcomes(h, messages, n);

		if (delivered < n)
			atomic_fetch_add(&h->env->failures, 1);
		tell_gates(h, messages, n);
		atomic_fetch_sub(&h->outstanding, (uint32_t)n);
		if (delivered > 0)
			kafka_health_answered(&h->env->health);
	}
}

static void on_error(struct handle *h, rd_kafka_event_t *event)
{
	rd_kafka_resp_err_t code = rd_kafka_event_error(event);

	if (code == RD_KAFKA_RESP_ERR__FATAL || rd_kafka_event_error_is_fatal(event))
		atomic_store(&h->stopped, true);
	/* A broker that its cluster has shut out for a moment answers that there are no brokers. librdkafka then forgets
	 * all of them, and may cancel its own return to the first ones: it would never connect again. */
	if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
		rd_kafka_brokers_add(h->rk, h->env->sink->kafka.brokers);
	kafka_health_error(&h->env->health, code, rd_kafka_event_error_string(event));
}

static void on_event(rd_kafka_t *rk _unused_, rd_kafka_event_t *event, void *opaque)
{
	struct handle *h = opaque;

	switch (rd_kafka_event_type(event)) {
	case RD_KAFKA_EVENT_DR:
		on_reports(h, event);
		break;
	case RD_KAFKA_EVENT_ERROR:
		on_error(h, event);
		break;
	case RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT:
		topic_limit_answer(event);
		gate_keeper_call(&h->env->keeper);
		break;
	}
	rd_kafka_event_destroy(event);
}

static void on_log(const rd_kafka_t *rk _unused_, int level _unused_, const char *facility, const char *text)
{
	log_debug("kafka.log", F_STR("facility", facility), F_STR("text", text));
}

/* --- beginning and end ----------------------------------------------------------------------------------------- */

bool handle_open(struct handle_env *env, struct handle **ret, struct error *err)
{
	rd_kafka_queue_t *main_queue, *background;
	rd_kafka_conf_t *conf;
	struct handle *h;
	char reason[512];

	if (!kafka_conf_build(env->sink, env->one_by_one, &conf, err))
		return false;
	h = mem_new(struct handle);
	h->env = env;
	h->number = atomic_fetch_add(&env->handles, 1) + 1;
	h->partitioner = kafka_conf_partitioner(conf);
	h->compresses = kafka_conf_compresses(conf);
	rd_kafka_conf_set_opaque(conf, h);
	rd_kafka_conf_set_log_cb(conf, on_log);
	rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR);
	rd_kafka_conf_set_background_event_cb(conf, on_event);
	h->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
	if (!h->rk) {
		rd_kafka_conf_destroy(conf);
		free(h);
		return error_set(err, ERROR_CONFIG, "%s: %s", env->sink->where, reason);
	}
	main_queue = rd_kafka_queue_get_main(h->rk);
	background = rd_kafka_queue_get_background(h->rk);
	rd_kafka_queue_forward(main_queue, background);
	rd_kafka_queue_destroy(main_queue);
	rd_kafka_queue_destroy(background);
	*ret = h;
	return true;
}

/* What is outstanding comes back first: nobody else would ever say what became of it, and its payload is borrowed. */
void handle_free(struct handle *h)
{
	int64_t deadline = clock_ms() + PURGE_MS;

	if (!h)
		return;
	if (atomic_load(&h->outstanding) > 0)
		rd_kafka_purge(h->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
	while (atomic_load(&h->outstanding) > 0 && clock_ms() < deadline)
		poll(NULL, 0, 1);
	for (size_t i = 0; i < h->n_topics; i++) {
		rd_kafka_topic_destroy(h->topics[i].handle);
		free(h->topics[i].name);
	}
	rd_kafka_destroy(h->rk);
	for (size_t i = 0; i < h->n_topics; i++)
		gate_free(h->topics[i].gate);
	free(h->topics);
	free(h);
}

rd_kafka_t *handle_client(const struct handle *h)
{
	return h->rk;
}

uint32_t handle_number(const struct handle *h)
{
	return h->number;
}

uint32_t handle_outstanding(const struct handle *h)
{
	return atomic_load(&h->outstanding);
}

bool handle_is_stopped(const struct handle *h)
{
	return atomic_load(&h->stopped);
}

/* Purging alone would not do. Queued messages are numbered already, and one that is submitted after the purge would be
 * sent with a gap before it, which the broker refuses, or accepts when it knows no number yet; either way it arrives, and
 * ahead of the purged ones, which are sent again. A fatal error is what makes librdkafka build no further request. It
 * also purges the queues, and leaves what is on the wire alone. The call that raises one was made for tests, but does
 * the same as its own errors do. */
bool handle_stop(struct handle *h)
{
	if (atomic_exchange(&h->stopped, true))
		return false;
	return rd_kafka_test_fatal_error(h->rk, STOP_CODE, "stopped") == RD_KAFKA_RESP_ERR_NO_ERROR;
}

bool handle_has_failed(const struct handle *h, char *ret_reason, size_t size)
{
	return rd_kafka_fatal_error(h->rk, ret_reason, size) != STOP_CODE;
}

/* A request that fails on the wire puts its messages back into the queue, and one that was being submitted got there
 * after the purge. They are not sent any more, but nobody else would give them back. */
bool handle_drain(struct handle *h, int64_t now_ms)
{
	int flags = RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_NON_BLOCKING;
	int64_t since = 0, purged_at = atomic_load(&h->purged_at_ms);

	if (atomic_load(&h->outstanding) == 0)
		return true;
	if (atomic_compare_exchange_strong(&h->draining_since_ms, &since, now_ms))
		since = now_ms;
	if (now_ms - purged_at < PURGE_EVERY_MS || !atomic_compare_exchange_strong(&h->purged_at_ms, &purged_at, now_ms))
		return false;
	if (now_ms - since >= GRACE_MS)
		flags |= RD_KAFKA_PURGE_F_INFLIGHT;
	rd_kafka_purge(h->rk, flags);
	return false;
}

/* Without a broker that is connected librdkafka says so at once, and connects to one. With one it sends the question, and the
 * answer is not worth waiting for. An admin request would wait for its broker in a loop that keeps two threads busy. */
void handle_ask(struct handle *h)
{
	const struct rd_kafka_metadata *metadata;
	rd_kafka_resp_err_t code = rd_kafka_metadata(h->rk, 0, NULL, &metadata, 0);

	if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
		rd_kafka_metadata_destroy(metadata);
	if (code != RD_KAFKA_RESP_ERR__TRANSPORT)
		kafka_health_answered(&h->env->health);
}

/* --- topics ------------------------------------------------------------------------------------------------------ */

static const struct topic *find_topic(const struct handle *h, struct slice name)
{
	for (size_t i = 0; i < h->n_topics; i++)
		if (slice_equal(name, (struct slice){ h->topics[i].name, h->topics[i].len }))
			return &h->topics[i];
	return NULL;
}

bool handle_knows_topic(const struct handle *h, struct slice name)
{
	return find_topic(h, name) != NULL;
}

static rd_kafka_topic_t *new_topic(const struct handle *h, const struct topic *t)
{
	rd_kafka_topic_conf_t *conf = rd_kafka_default_topic_conf_dup(h->rk);

	if (t->gate)
		gate_install(t->gate, conf);
	return rd_kafka_topic_new(h->rk, t->name, conf);
}

void handle_add_topic(struct handle *h, struct slice name)
{
	struct topic t = { .name = mem_strndup(name.ptr, name.len), .len = name.len };

	if (!h->env->one_by_one)
		t.gate = gate_new(&h->env->keeper, h->partitioner);
	t.handle = new_topic(h, &t);
	if (!t.handle) {
		gate_free(t.gate);
		free(t.name);
		return;
	}
	t.limit = topic_limit_of(h->env->limits, t.name);
	h->topics = mem_resize(h->topics, (h->n_topics + 1) * sizeof(*h->topics));
	h->topics[h->n_topics++] = t;
}

/* --- producing -------------------------------------------------------------------------------------------------- */

static rd_kafka_headers_t *headers_of(const struct event *ev)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(ev->n_headers);

	for (uint32_t i = 0; i < ev->n_headers; i++)
		rd_kafka_header_add(headers, ev->headers[i].name.ptr, (ssize_t)ev->headers[i].name.len,
				    ev->headers[i].value.ptr, (ssize_t)ev->headers[i].value.len);
	return headers;
}

static rd_kafka_resp_err_t produce(struct handle *h, rd_kafka_topic_t *topic, struct event *ev)
{
	rd_kafka_headers_t *headers = headers_of(ev);
	rd_kafka_vu_t parts[] = {
		{ .vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic },
		{ .vtype = RD_KAFKA_VTYPE_KEY, .u.mem = { (void *)ev->key.ptr, ev->key.len } },
		/* Borrowed, not copied: the row lives until its outcome. */
		{ .vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = { (void *)ev->payload.ptr, ev->payload.len } },
		{ .vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = ev },
		{ .vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers },
	};
	rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;
	rd_kafka_error_t *error;

	atomic_fetch_add_explicit(&h->outstanding, 1, memory_order_relaxed);
	error = rd_kafka_produceva(h->rk, parts, ARRAY_SIZE(parts));
	if (error) {
		/* The code is that of the reason, not ERR__FATAL. */
		code = rd_kafka_error_code(error);
		if (rd_kafka_error_is_fatal(error))
			atomic_store(&h->stopped, true);
		rd_kafka_error_destroy(error);
		rd_kafka_headers_destroy(headers);
		atomic_fetch_sub_explicit(&h->outstanding, 1, memory_order_relaxed);
	}
	return code;
}

static bool may_pass(enum error_kind kind)
{
	return kind == ERROR_TRANSPORT || kind == ERROR_THROTTLED || kind == ERROR_LOST;
}

/* Through the gate, if there is one. */
static enum handle_answer offer(struct handle *h, const struct topic *topic, struct gate_pass *pass, struct event *ev,
				struct error *err)
{
	rd_kafka_resp_err_t code;

	if (topic->gate && !gate_enter(topic->gate, pass, ev))
		return HANDLE_HOLDS_BACK;
	code = produce(h, topic->handle, ev);
	if (topic->gate)
		gate_leave(topic->gate, pass, ev, code == RD_KAFKA_RESP_ERR_NO_ERROR);
	if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
		return HANDLE_TOOK;
	if (topic->gate && pass->refused)
		return HANDLE_HOLDS_BACK;
	kafka_error_set(err, code, NULL);
	return may_pass(err->kind) ? HANDLE_NOT_NOW : HANDLE_REFUSED;
}

static enum handle_answer refuse(rd_kafka_resp_err_t code, struct error *err)
{
	kafka_error_set(err, code, NULL);
	return HANDLE_REFUSED;
}

static enum handle_answer look_and_offer(struct handle *h, struct gate_pass *pass, struct event *ev, struct error *err)
{
	const struct topic *topic = find_topic(h, ev->topic);
	enum topic_limit_answer fits = TOPIC_LIMIT_KEPT;

	if (atomic_load_explicit(&h->stopped, memory_order_relaxed))
		return HANDLE_NOT_NOW;
	if (!topic)
		return refuse(RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, err);
	if (!h->compresses)
		fits = topic_limit_look(topic->limit, h->rk, h->env->health.breaker, ev, pass->now_ms);
	if (fits == TOPIC_LIMIT_EXCEEDED)
		return refuse(RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, err);
	return fits == TOPIC_LIMIT_KEPT ? offer(h, topic, pass, ev, err) : HANDLE_IS_ASKING;
}

enum handle_answer handle_take(struct handle *h, struct gate_pass *pass, struct event *ev, struct error *err)
{
	enum handle_answer answer = look_and_offer(h, pass, ev, err);

	/* While brokers are away no row is blamed for anything. */
	if (answer == HANDLE_REFUSED && breaker_is_open(h->env->health.breaker))
		return HANDLE_NOT_NOW;
	return answer;
}
