/* The sink `nats`: publishes to streams of JetStream. An event is acknowledged when JetStream says that a stream has it.
 *
 * It does not claim to keep order by itself. JetStream could refuse a message behind one that failed only by the last
 * sequence of its subject, and an entity is seldom a subject. So the worker hands over the next event of an entity when the
 * last one is acknowledged; those of other entities are on their way meanwhile.
 *
 * What is sent again is stored once, as long as the stream remembers its Nats-Msg-Id. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sink/nats_check.h"
#include "sink/nats_courier.h"
#include "sink/nats_subject.h"
#include "sink/sink.h"

struct sink_target {
	const struct sink_config *config;
	struct nats_servers servers;
	struct breaker breaker;
};

struct sink {
	struct courier *courier;
};

static void nats_target_close(struct sink_target *t)
{
	if (!t)
		return;
	nats_servers_release(&t->servers);
	breaker_release(&t->breaker);
	free(t);
}

/* The options are built once for what they say of files that cannot be read. */
static bool nats_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err)
{
	struct sink_target *t = mem_new(struct sink_target);
	natsOptions *options;
	bool readable;

	t->config = config;
	breaker_init(&t->breaker);
	if (!nats_servers_read(config, &t->servers, err) || !nats_conf_build(config, &t->servers, 0, &options, err)) {
		nats_target_close(t);
		return false;
	}
	readable = nats_conf_identify(options, config, err);
	natsOptions_Destroy(options);
	if (!readable) {
		nats_target_close(t);
		return false;
	}
	*ret = t;
	return true;
}

static struct breaker *nats_breaker(struct sink_target *t)
{
	return &t->breaker;
}

static void nats_target_check(struct sink_target *t, const char *topic, struct finding_list *findings)
{
	nats_check(t->config, &t->servers, topic, findings);
}

static bool nats_open(struct sink_target *t, const struct sink_env *env, struct sink **ret, struct error *err _unused_)
{
	*ret = mem_new(struct sink);
	(*ret)->courier = courier_new(t->config, &t->servers, &t->breaker, env->outcomes);
	return true;
}

static void nats_close(struct sink *s)
{
	if (!s)
		return;
	courier_free(s->courier);
	free(s);
}

static uint32_t nats_submit(struct sink *s, struct event *const events[], uint32_t n)
{
	return courier_submit(s->courier, events, n, clock_ms());
}

static int nats_pollfd(const struct sink *s, short *ret_events _unused_, int64_t *ret_deadline_ms)
{
	*ret_deadline_ms = courier_deadline(s->courier, clock_ms());
	return -1;
}

static void nats_pump(struct sink *s, int64_t now_ms)
{
	courier_pump(s->courier, now_ms);
}

static void nats_recall(struct sink *s)
{
	courier_recall(s->courier);
}

extern const struct sink_driver sink_nats;
const struct sink_driver sink_nats = {
	.name = "nats",
	.summary = "NATS JetStream; acknowledged by the stream",
	.topic_fault = nats_subject_fault,
	.target_open = nats_target_open,
	.target_close = nats_target_close,
	.breaker = nats_breaker,
	.check = nats_target_check,
	.open = nats_open,
	.close = nats_close,
	.submit = nats_submit,
	.pollfd = nats_pollfd,
	.pump = nats_pump,
	.recall = nats_recall,
};
