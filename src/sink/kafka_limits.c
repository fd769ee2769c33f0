#include "sink/kafka_limits.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum {
	GOOD_MS = 500,                          /* an answer is good for so long */
	NO_ANSWER_GOOD_MS = 10 * 1000,          /* and so long one without a limit: no right to ask, no such topic yet */
	ASK_AGAIN_MS = 2000,                    /* a question without an answer is repeated after this */
	ANSWER_MS = 1000,                       /* a row waits so long for one; then what we remember decides */
};

void topic_limits_init(struct topic_limits *l)
{
	pthread_mutex_init(&l->lock, NULL);
	l->first = NULL;
}

void topic_limits_release(struct topic_limits *l)
{
	for (struct topic_limit *t = l->first, *next; t; t = next) {
		next = t->next;
		free(t->topic);
		free(t);
	}
	pthread_mutex_destroy(&l->lock);
}

struct topic_limit *topic_limit_of(struct topic_limits *l, const char *topic)
{
	struct topic_limit *t;

	pthread_mutex_lock(&l->lock);
	for (t = l->first; t && strcmp(t->topic, topic) != 0; t = t->next)
		;
	if (!t) {
		t = mem_new(struct topic_limit);
		t->topic = mem_strdup(topic);
		t->next = l->first;
		l->first = t;
	}
	pthread_mutex_unlock(&l->lock);
	return t;
}

static int64_t pause_before_question(const struct topic_limit *t, int64_t asked_at_ms)
{
	if (atomic_load(&t->answered_at_ms) < asked_at_ms)
		return ASK_AGAIN_MS;
	return atomic_load(&t->max_bytes) > 0 ? GOOD_MS : NO_ANSWER_GOOD_MS;
}

/* Not while brokers are away: until its time is up librdkafka connects again and again for such a question, without a pause. */
static void ask(struct topic_limit *t, rd_kafka_t *rk, const struct breaker *breaker, int64_t now_ms)
{
	int64_t asked = atomic_load(&t->asked_at_ms);
	rd_kafka_ConfigResource_t *resource;
	rd_kafka_AdminOptions_t *options;
	rd_kafka_queue_t *background;
	char reason[256];

	if (asked != 0 && now_ms - asked < pause_before_question(t, asked))
		return;
	if (breaker_is_open(breaker) || !atomic_compare_exchange_strong(&t->asked_at_ms, &asked, now_ms))
		return;
	resource = rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, t->topic);
	options = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
	background = rd_kafka_queue_get_background(rk);
	rd_kafka_AdminOptions_set_request_timeout(options, ANSWER_MS, reason, sizeof(reason));
	rd_kafka_AdminOptions_set_opaque(options, t);
	rd_kafka_DescribeConfigs(rk, &resource, 1, options, background);
	rd_kafka_queue_destroy(background);
	rd_kafka_AdminOptions_destroy(options);
	rd_kafka_ConfigResource_destroy(resource);
}

/* No answer, or no right to ask: then the broker has the last word. */
static void remember(struct topic_limit *t, rd_kafka_event_t *event)
{
	const rd_kafka_ConfigResource_t **resources;
	const rd_kafka_ConfigEntry_t **entries;
	size_t n = 0;

	if (rd_kafka_event_error(event))
		return;
	resources = rd_kafka_DescribeConfigs_result_resources(rd_kafka_event_DescribeConfigs_result(event), &n);
	if (n != 1 || rd_kafka_ConfigResource_error(resources[0]))
		return;
	entries = rd_kafka_ConfigResource_configs(resources[0], &n);
	for (size_t i = 0; i < n; i++)
		if (strcmp(rd_kafka_ConfigEntry_name(entries[i]), "max.message.bytes") == 0 &&
		    rd_kafka_ConfigEntry_value(entries[i]))
			atomic_store(&t->max_bytes, atoll(rd_kafka_ConfigEntry_value(entries[i])));
}

void topic_limit_answer(rd_kafka_event_t *event)
{
	struct topic_limit *t = rd_kafka_event_opaque(event);

	remember(t, event);
	atomic_store(&t->answered_at_ms, clock_ms());
}

/* The least that the message takes as a batch of its own, in the brokers' format. */
static size_t least_size(const struct event *ev)
{
	size_t bytes = 61 + 7 + ev->key.len + ev->payload.len;

	for (uint32_t i = 0; i < ev->n_headers; i++)
		bytes += 2 + ev->headers[i].name.len + ev->headers[i].value.len;
	return bytes;
}

enum topic_limit_answer topic_limit_look(struct topic_limit *t, rd_kafka_t *rk, const struct breaker *breaker,
					 const struct event *ev, int64_t now_ms)
{
	int64_t max_bytes = atomic_load_explicit(&t->max_bytes, memory_order_relaxed);
	int64_t answered = atomic_load(&t->answered_at_ms);

	if (max_bytes == 0)
		ask(t, rk, breaker, now_ms);
	if (max_bytes == 0 || least_size(ev) <= (size_t)max_bytes)
		return TOPIC_LIMIT_KEPT;
	if (answered != 0 && now_ms - answered < GOOD_MS)
		return TOPIC_LIMIT_EXCEEDED;
	ask(t, rk, breaker, now_ms);
	return now_ms - atomic_load(&t->asked_at_ms) < ANSWER_MS ? TOPIC_LIMIT_ASKED : TOPIC_LIMIT_EXCEEDED;
}
