/* The sink `kafka`, for Kafka and whatever speaks its protocol. An event is acknowledged when all in-sync replicas have it.
 *
 * Two producers. The bulk one takes nearly everything. A row that was refused before, or travelled in a batch that was,
 * goes through a second one in batches of one, where a refusal names its row and disturbs nobody else. The window keeps
 * the rest of its entity back meanwhile, so the two never carry rows of one entity at the same time. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/finding.h"
#include "base/mem.h"
#include "sink/breaker.h"
#include "sink/kafka_producer.h"
#include "sink/kafka_topic.h"
#include "sink/outcome.h"
#include "sink/sink.h"

enum {
	PROBE_MS = 5000,
	MEND_EVERY_MS = 5,
	ANSWER_EVERY_MS = 100,
};

struct sink_target {
	const struct sink_config *config;
	struct topic_limits limits;
	struct breaker breaker;
	struct producer *bulk, *careful;
};

struct sink {
	struct sink_target *target;
	struct outcomes outcomes;
	struct producer_user bulk, careful;
};

static void kafka_target_close(struct sink_target *t)
{
	if (!t)
		return;
	producer_close(t->bulk);
	producer_close(t->careful);
	topic_limits_release(&t->limits);
	breaker_release(&t->breaker);
	free(t);
}

static bool kafka_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err)
{
	struct sink_target *t = mem_new(struct sink_target);

	t->config = config;
	topic_limits_init(&t->limits);
	breaker_init(&t->breaker);
	if (!producer_open(config, &t->limits, &t->breaker, false, &t->bulk, err) ||
	    !producer_open(config, &t->limits, &t->breaker, true, &t->careful, err)) {
		kafka_target_close(t);
		return false;
	}
	*ret = t;
	return true;
}

static struct breaker *kafka_breaker(struct sink_target *t)
{
	return &t->breaker;
}

static void kafka_check(struct sink_target *t, const char *topic, struct finding_list *findings)
{
	struct error err = { 0 };
	int partitions;

	if (!producer_probe(t->bulk, topic, PROBE_MS, &partitions, &err)) {
		error_prefix(&err, "sink %s", t->config->name);
		finding_add_error(findings, &err);
		return;
	}
	if (topic)
		finding_add(findings, FINDING_OK, NULL, "sink %s: brokers answer, topic %s has %d partitions",
			    t->config->name, topic, partitions);
	else
		finding_add(findings, FINDING_OK, NULL, "sink %s: brokers answer; the topic differs by row and was not looked at",
			    t->config->name);
}

static bool kafka_open(struct sink_target *t, const struct sink_env *env, struct sink **ret, struct error *err _unused_)
{
	*ret = mem_new(struct sink);
	(*ret)->target = t;
	(*ret)->outcomes.box = env->outcomes;
	producer_user_open(&(*ret)->bulk, t->bulk, &(*ret)->outcomes);
	producer_user_open(&(*ret)->careful, t->careful, &(*ret)->outcomes);
	return true;
}

static void kafka_close(struct sink *s)
{
	if (!s)
		return;
	producer_user_close(&s->bulk, s->target->bulk);
	producer_user_close(&s->careful, s->target->careful);
	free(s);
}

/* The first events that go the same way. */
static uint32_t run_of(struct event *const events[], uint32_t n)
{
	uint32_t run = 1;

	while (run < n && events[run]->alone == events[0]->alone)
		run++;
	return run;
}

static uint32_t kafka_submit(struct sink *s, struct event *const events[], uint32_t n)
{
	uint32_t taken = 0;

	while (taken < n && !outcomes_unread(&s->outcomes)) {
		uint32_t run = run_of(events + taken, n - taken);
		bool alone = events[taken]->alone;
		struct error err;
		uint32_t got = producer_submit(alone ? s->target->careful : s->target->bulk, alone ? &s->careful : &s->bulk,
					       events + taken, run, &err);

		taken += got;
		if (err.kind != ERROR_NONE)
			outcomes_fail(&s->outcomes, &events[taken++], 1, &err);
		else if (got < run)
			break;
	}
	return taken;
}

/* While a producer is being replaced it takes nothing, and a worker without rows there is told by nobody when it does. An
 * answer of the brokers wakes the worker, but it may not come. */
static int kafka_pollfd(const struct sink *s, short *ret_events _unused_, int64_t *ret_deadline_ms)
{
	bool mends = producer_mends(s->target->bulk) || producer_mends(s->target->careful);

	*ret_deadline_ms = CLOCK_NEVER;
	if (mends)
		*ret_deadline_ms = clock_ms() + MEND_EVERY_MS;
	else if (s->bulk.asking || s->careful.asking)
		*ret_deadline_ms = clock_ms() + ANSWER_EVERY_MS;
	else if (breaker_is_open(&s->target->breaker))
		*ret_deadline_ms = clock_ms() + PRODUCER_ASKS_EVERY_MS;
	return -1;
}

static void kafka_pump(struct sink *s, int64_t now_ms)
{
	struct error none;

	producer_mend(s->target->bulk, now_ms);
	producer_mend(s->target->careful, now_ms);
	if (breaker_is_open(&s->target->breaker))
		producer_ask(s->target->bulk);
	/* Only the bulk one keeps rows waiting. */
	if (s->bulk.first)
		producer_submit(s->target->bulk, &s->bulk, NULL, 0, &none);
}

static void kafka_recall(struct sink *s)
{
	producer_user_drop(&s->bulk, "not sent: the claim on its entity is gone");
	producer_recall(s->target->bulk);
	producer_recall(s->target->careful);
}

const struct sink_driver sink_kafka = {
	.name = "kafka",
	.summary = "Apache Kafka, Redpanda; acknowledged by all in-sync replicas",
	.caps = SINK_KEEPS_ORDER,
	.topic_fault = kafka_topic_fault,
	.target_open = kafka_target_open,
	.target_close = kafka_target_close,
	.breaker = kafka_breaker,
	.check = kafka_check,
	.open = kafka_open,
	.close = kafka_close,
	.submit = kafka_submit,
	.pollfd = kafka_pollfd,
	.pump = kafka_pump,
	.recall = kafka_recall,
};
