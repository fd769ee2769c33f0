/* The sink `kafka`, for Kafka and whatever speaks its protocol. An event is acknowledged when all in-sync replicas have it.
 *
 * Two producers. The bulk one takes nearly everything. A row that was refused before, or travelled in a batch that was,
 * goes through a second one in batches of one, where a refusal names its row and disturbs nobody else. The window keeps
 * the rest of its entity back meanwhile, so the two never carry rows of one entity at the same time. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/finding.h"
#include "base/log.h"
#include "base/mem.h"
#include "sink/kafka_producer.h"
#include "sink/outcome.h"
#include "sink/sink.h"

enum { PROBE_MS = 5000, OPEN_AGAIN_MS = 10 * 1000 };

struct sink_target {
	const struct sink_config *config;
	struct topic_limits limits;
	struct producer *bulk;
	pthread_mutex_t careful_lock;
	_Atomic(struct producer *) careful;     /* made when it is first needed, under the lock */
	int64_t careful_at_ms;                  /* not tried again before this; guarded by the lock */
};

struct sink {
	struct sink_target *target;
	struct outcomes outcomes;
};

static void kafka_target_close(struct sink_target *t)
{
	if (!t)
		return;
	producer_close(t->bulk);
	producer_close(atomic_load(&t->careful));
	pthread_mutex_destroy(&t->careful_lock);
	topic_limits_release(&t->limits);
	free(t);
}

static bool kafka_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err)
{
	struct sink_target *t = mem_new(struct sink_target);

	t->config = config;
	pthread_mutex_init(&t->careful_lock, NULL);
	topic_limits_init(&t->limits);
	if (!producer_open(config, &t->limits, false, &t->bulk, err)) {
		kafka_target_close(t);
		return false;
	}
	*ret = t;
	return true;
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
	return true;
}

static void kafka_close(struct sink *s)
{
	free(s);
}

/* NULL when it cannot be made now: settings were good at the start, but a secret file may be gone. */
static struct producer *careful_producer(struct sink_target *t)
{
	struct producer *p;
	struct error err;

	pthread_mutex_lock(&t->careful_lock);
	p = atomic_load(&t->careful);
	if (!p && clock_ms() >= t->careful_at_ms) {
		if (producer_open(t->config, &t->limits, true, &p, &err)) {
			atomic_store(&t->careful, p);
		} else {
			log_error("kafka.unusable", F_STR("sink", t->config->name), F_ERROR(&err));
			t->careful_at_ms = clock_ms() + OPEN_AGAIN_MS;
		}
	}
	pthread_mutex_unlock(&t->careful_lock);
	return p;
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
		struct producer *p = events[taken]->alone ? careful_producer(s->target) : s->target->bulk;
		struct error err = { .kind = ERROR_NONE };
		uint32_t got = p ? producer_submit(p, events + taken, run, &err) : 0;

		taken += got;
		if (err.kind != ERROR_NONE)
			outcomes_fail(&s->outcomes, &events[taken++], 1, &err);
		else if (got < run)
			break;
	}
	return taken;
}

static void kafka_pump(struct sink *s, int64_t now_ms _unused_)
{
	struct producer *careful = atomic_load(&s->target->careful);

	producer_mend(s->target->bulk);
	if (careful)
		producer_mend(careful);
}

const struct sink_driver sink_kafka = {
	.name = "kafka",
	.summary = "Apache Kafka, Redpanda; acknowledged by all in-sync replicas",
	.caps = SINK_KEEPS_ORDER,
	.target_open = kafka_target_open,
	.target_close = kafka_target_close,
	.check = kafka_check,
	.open = kafka_open,
	.close = kafka_close,
	.submit = kafka_submit,
	.pump = kafka_pump,
};
