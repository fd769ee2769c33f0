#include "sink/kafka_producer.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "relay/mailbox.h"
#include "sink/kafka_conf.h"
#include "sink/kafka_errors.h"

enum { REPORT_CHUNK = 512, PURGE_MS = 5000, COMPLAINT_EVERY_MS = 60 * 1000, MAKE_AGAIN_MS = 10 * 1000 };

struct topic {
	char *name;
	size_t len;
	rd_kafka_topic_t *handle;
	struct topic_limit *limit;
};

struct producer {
	const struct sink_config *sink;
	struct topic_limits *limits;
	bool one_by_one;

	/* Read-held while producing, write-held while handles come and go. */
	pthread_rwlock_t lock;
	rd_kafka_t *rk;                         /* NULL: to be made when there is something to submit */
	int64_t make_at_ms;                     /* not before this: the last time it could not be done */
	struct topic *topics;
	size_t n_topics;
	bool compresses;                        /* then sizes mean nothing before the broker has them */

	_Atomic bool failed;                    /* fatal: to be replaced */
	_Atomic uint32_t outstanding;

	/* What the log has been told. Background thread only, except `unreachable`. */
	_Atomic bool unreachable;
	int64_t complained_at_ms;
	pthread_mutex_t reason_lock;
	struct error reason;                    /* the last error that brokers or TLS gave; guarded by reason_lock */
};

/* --- on librdkafka's background thread ------------------------------------------------------------------------- */

static struct error *failure_of(const struct producer *p, struct event *ev, const rd_kafka_message_t *m)
{
	struct error *failure = mem_new(struct error);

	kafka_error_set(failure, m->err, NULL);  /* rd_kafka_message_errstr would be the payload here */
	/* The broker refused a batch, not a message: only alone will it show which one is meant. */
	if (failure->kind == ERROR_REJECTED && !p->one_by_one) {
		ev->alone = true;
		failure->kind = ERROR_LOST;
	}
	return failure;
}

/* Reports of one worker's rows usually come together, so they are posted together. */
static void on_reports(struct producer *p, rd_kafka_event_t *event)
{
	const rd_kafka_message_t *messages[REPORT_CHUNK];
	size_t n;

	while ((n = rd_kafka_event_message_array(event, messages, REPORT_CHUNK)) > 0) {
		struct event *newest = NULL, *oldest = NULL;
		struct mailbox *to = NULL;
		uint32_t delivered = 0;

		for (size_t i = 0; i < n; i++) {
			struct event *ev = messages[i]->_private;

			delivered += messages[i]->err == RD_KAFKA_RESP_ERR_NO_ERROR;
			if (messages[i]->err)
				ev->failure = failure_of(p, ev, messages[i]);
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
		atomic_fetch_sub(&p->outstanding, (uint32_t)n);
		if (delivered > 0 && atomic_exchange(&p->unreachable, false))
			log_info("kafka.back", F_STR("sink", p->sink->name));
	}
}

static void on_error(struct producer *p, rd_kafka_event_t *event)
{
	rd_kafka_resp_err_t code = rd_kafka_event_error(event);
	struct error err;

	if (code == RD_KAFKA_RESP_ERR__FATAL || rd_kafka_event_error_is_fatal(event))
		atomic_store(&p->failed, true);
	kafka_error_set(&err, code, rd_kafka_event_error_string(event));
	pthread_mutex_lock(&p->reason_lock);
	if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
		p->reason = err;
	pthread_mutex_unlock(&p->reason_lock);
	if (err.kind == ERROR_AUTH) {
		if (p->complained_at_ms == 0 || clock_ms() - p->complained_at_ms >= COMPLAINT_EVERY_MS)
			log_error("kafka.refused", F_STR("sink", p->sink->name), F_ERROR(&err));
		p->complained_at_ms = clock_ms();
	} else if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
		if (!atomic_exchange(&p->unreachable, true))
			log_warn("kafka.unreachable", F_STR("sink", p->sink->name), F_STR("brokers", p->sink->kafka.brokers),
				 F_STR("meanwhile", "rows wait, in order"));
	} else {
		log_debug("kafka.error", F_STR("sink", p->sink->name), F_ERROR(&err));
	}
}

static void on_event(rd_kafka_t *rk _unused_, rd_kafka_event_t *event, void *opaque)
{
	switch (rd_kafka_event_type(event)) {
	case RD_KAFKA_EVENT_DR:
		on_reports(opaque, event);
		break;
	case RD_KAFKA_EVENT_ERROR:
		on_error(opaque, event);
		break;
	case RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT:
		topic_limit_answer(event);
		break;
	}
	rd_kafka_event_destroy(event);
}

static void on_log(const rd_kafka_t *rk _unused_, int level _unused_, const char *facility, const char *text)
{
	log_debug("kafka.log", F_STR("facility", facility), F_STR("text", text));
}

/* --- handles --------------------------------------------------------------------------------------------------- */

static bool make_handle(struct producer *p, struct error *err)
{
	rd_kafka_conf_t *conf;
	rd_kafka_queue_t *main_queue, *background;
	char reason[512];

	if (!kafka_conf_build(p->sink, p->one_by_one, &conf, err))
		return false;
	p->compresses = kafka_conf_compresses(conf);
	rd_kafka_conf_set_opaque(conf, p);
	rd_kafka_conf_set_log_cb(conf, on_log);
	rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR);
	rd_kafka_conf_set_background_event_cb(conf, on_event);
	p->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
	if (!p->rk) {
		rd_kafka_conf_destroy(conf);
		return error_set(err, ERROR_CONFIG, "%s: %s", p->sink->where, reason);
	}
	main_queue = rd_kafka_queue_get_main(p->rk);
	background = rd_kafka_queue_get_background(p->rk);
	rd_kafka_queue_forward(main_queue, background);
	rd_kafka_queue_destroy(main_queue);
	rd_kafka_queue_destroy(background);
	return true;
}

/* What is outstanding comes back first: nobody else would ever say what became of it, and its payload is borrowed. */
static void destroy_handle(struct producer *p)
{
	int64_t deadline = clock_ms() + PURGE_MS;

	if (!p->rk)
		return;
	rd_kafka_purge(p->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
	while (atomic_load(&p->outstanding) > 0 && clock_ms() < deadline)
		poll(NULL, 0, 1);
	for (size_t i = 0; i < p->n_topics; i++) {
		rd_kafka_topic_destroy(p->topics[i].handle);
		free(p->topics[i].name);
	}
	p->n_topics = 0;
	rd_kafka_destroy(p->rk);
	p->rk = NULL;
}

bool producer_open(const struct sink_config *sink, struct topic_limits *limits, bool one_by_one, struct producer **ret,
		   struct error *err)
{
	struct producer *p = mem_new(struct producer);

	p->sink = sink;
	p->limits = limits;
	p->one_by_one = one_by_one;
	pthread_rwlock_init(&p->lock, NULL);
	pthread_mutex_init(&p->reason_lock, NULL);
	/* One shows that the settings are good; the other is seldom needed. */
	if (!one_by_one && !make_handle(p, err)) {
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
	destroy_handle(p);
	pthread_rwlock_destroy(&p->lock);
	pthread_mutex_destroy(&p->reason_lock);
	free(p->topics);
	free(p);
}

void producer_mend(struct producer *p)
{
	char reason[512] = "";

	if (!atomic_load(&p->failed))
		return;
	pthread_rwlock_wrlock(&p->lock);
	if (atomic_load(&p->failed)) {
		rd_kafka_fatal_error(p->rk, reason, sizeof(reason));
		log_warn("kafka.replaced", F_STR("sink", p->sink->name), F_STR("reason", reason),
			 F_STR("meaning", "rows on their way are sent again, in order"));
		destroy_handle(p);
		atomic_store(&p->failed, false);
	}
	pthread_rwlock_unlock(&p->lock);
}

/* Called and returns with the lock read-held; in between it is write-held. */
static void make_missing_handle(struct producer *p)
{
	struct error err;

	pthread_rwlock_unlock(&p->lock);
	pthread_rwlock_wrlock(&p->lock);
	if (!p->rk && clock_ms() >= p->make_at_ms && !make_handle(p, &err)) {
		/* Settings were good at the start; a secret file may be gone now. */
		log_error("kafka.unusable", F_STR("sink", p->sink->name), F_ERROR(&err));
		p->make_at_ms = clock_ms() + MAKE_AGAIN_MS;
	}
	pthread_rwlock_unlock(&p->lock);
	pthread_rwlock_rdlock(&p->lock);
}

/* --- producing -------------------------------------------------------------------------------------------------- */

static const struct topic *find_topic(const struct producer *p, struct slice name)
{
	for (size_t i = 0; i < p->n_topics; i++)
		if (slice_equal(name, (struct slice){ p->topics[i].name, p->topics[i].len }))
			return &p->topics[i];
	return NULL;
}

/* Called and returns with the lock read-held; in between it is write-held, so the producer may be another one after. */
static void add_topic(struct producer *p, struct slice name)
{
	pthread_rwlock_unlock(&p->lock);
	pthread_rwlock_wrlock(&p->lock);
	if (p->rk && !find_topic(p, name)) {
		struct topic t = { .name = mem_strndup(name.ptr, name.len), .len = name.len };

		t.handle = rd_kafka_topic_new(p->rk, t.name, NULL);
		if (t.handle) {
			t.limit = topic_limit_of(p->limits, t.name);
			topic_limit_ask(t.limit, p->rk);
			p->topics = mem_resize(p->topics, (p->n_topics + 1) * sizeof(*p->topics));
			p->topics[p->n_topics++] = t;
		} else {
			free(t.name);
		}
	}
	pthread_rwlock_unlock(&p->lock);
	pthread_rwlock_rdlock(&p->lock);
}

static rd_kafka_headers_t *headers_of(const struct event *ev)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(ev->n_headers);

	for (uint32_t i = 0; i < ev->n_headers; i++)
		rd_kafka_header_add(headers, ev->headers[i].name.ptr, (ssize_t)ev->headers[i].name.len,
				    ev->headers[i].value.ptr, (ssize_t)ev->headers[i].value.len);
	return headers;
}

static rd_kafka_resp_err_t produce(struct producer *p, rd_kafka_topic_t *topic, struct event *ev)
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

	atomic_fetch_add_explicit(&p->outstanding, 1, memory_order_relaxed);
	error = rd_kafka_produceva(p->rk, parts, ARRAY_SIZE(parts));
	if (error) {
		code = rd_kafka_error_code(error);
		rd_kafka_error_destroy(error);
		rd_kafka_headers_destroy(headers);
		atomic_fetch_sub_explicit(&p->outstanding, 1, memory_order_relaxed);
	}
	return code;
}

/* True when librdkafka has the event. Otherwise it has not: because of what `err` says when its kind is set, or because
 * this is not the time. */
static bool take(struct producer *p, struct event *ev, struct error *err)
{
	const struct topic *topic = find_topic(p, ev->topic);
	rd_kafka_resp_err_t code;

	if (!topic) {
		add_topic(p, ev->topic);
		topic = find_topic(p, ev->topic);
	}
	if (!p->rk || atomic_load_explicit(&p->failed, memory_order_relaxed))
		return false;
	if (!topic)
		code = RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION;
	else if (!p->compresses && topic_limit_exceeded(topic->limit, p->rk, ev))
		code = RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
	else
		code = produce(p, topic->handle, ev);
	if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
		return true;
	if (code == RD_KAFKA_RESP_ERR__FATAL)
		atomic_store(&p->failed, true);
	if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL || kafka_error_kind(code) == ERROR_TRANSPORT ||
	    kafka_error_kind(code) == ERROR_LOST)
		return false;
	return kafka_error_set(err, code, NULL);
}

uint32_t producer_submit(struct producer *p, struct event *const events[], uint32_t n, struct error *err)
{
	uint32_t taken = 0;

	err->kind = ERROR_NONE;
	pthread_rwlock_rdlock(&p->lock);
	if (!p->rk)
		make_missing_handle(p);
	while (taken < n && take(p, events[taken], err))
		taken++;
	pthread_rwlock_unlock(&p->lock);
	return taken;
}

/* --- asking ------------------------------------------------------------------------------------------------------ */

bool producer_probe(struct producer *p, const char *topic, int timeout_ms, int *ret_partitions, struct error *err)
{
	const struct rd_kafka_metadata *metadata = NULL;
	rd_kafka_topic_t *handle = topic ? rd_kafka_topic_new(p->rk, topic, NULL) : NULL;
	rd_kafka_resp_err_t code = rd_kafka_metadata(p->rk, 0, handle, &metadata, timeout_ms);

	if (handle)
		rd_kafka_topic_destroy(handle);
	if (code) {
		/* What went wrong on the way says more than that there was no answer. */
		pthread_mutex_lock(&p->reason_lock);
		*err = p->reason;
		pthread_mutex_unlock(&p->reason_lock);
		if (err->kind == ERROR_NONE)
			kafka_error_set(err, code, NULL);
		return error_prefix(err, "could not reach the brokers %s", p->sink->kafka.brokers);
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
