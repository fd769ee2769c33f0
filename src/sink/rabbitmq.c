/* The sink `rabbitmq`: publishes to an exchange, `route.topic` being the routing key. An event is acknowledged when the server
 * confirms it, which for a persistent message in durable queues means that they have it on disk.
 *
 * Does not claim SINK_KEEPS_ORDER. A channel keeps the order of what it accepts, but it can refuse one message (nack, return)
 * and accept the next, which is on its way already. So the worker hands over the next row of an entity when the last is
 * confirmed; rows of other entities fill the pipe. */
#include <stdlib.h>

#include "base/finding.h"
#include "base/mem.h"
#include "sink/rabbitmq_link.h"
#include "sink/rabbitmq_message.h"
#include "sink/sink.h"

struct sink_target {
	const struct sink_config *config;
	struct rabbitmq_place place;
	struct breaker breaker;
};

struct sink {
	struct rabbitmq_link *link;
};

static void rabbitmq_target_close(struct sink_target *t)
{
	if (!t)
		return;
	rabbitmq_place_release(&t->place);
	breaker_release(&t->breaker);
	free(t);
}

static bool rabbitmq_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err)
{
	struct sink_target *t = mem_new(struct sink_target);

	t->config = config;
	breaker_init(&t->breaker);
	if (!rabbitmq_place_init(&t->place, &config->rabbitmq, config->where, err)) {
		rabbitmq_target_close(t);
		return false;
	}
	*ret = t;
	return true;
}

static struct breaker *rabbitmq_breaker(struct sink_target *t)
{
	return &t->breaker;
}

/* Which queues are bound to an exchange is not for clients to ask. Only the default exchange is plain: each queue is, by its
 * name. */
static bool look(amqp_connection_state_t conn, const struct rabbitmq_config *c, const char *topic, struct error *err)
{
	return rabbitmq_open_channel(conn, c->exchange, err) && (c->exchange[0] || !topic || rabbitmq_find_queue(conn, topic, err));
}

static void check_host(struct sink_target *t, uint32_t number, const char *topic, struct finding_list *findings)
{
	const struct rabbitmq_config *c = &t->config->rabbitmq;
	const struct rabbitmq_host *host = &t->place.hosts[number];
	amqp_connection_state_t conn;
	struct error err = { 0 };
	bool connected = rabbitmq_connect(&t->place, number, NULL, NULL, &conn, &err);

	if (connected && look(conn, c, topic, &err)) {
		finding_add(findings, FINDING_OK, NULL, "sink %s: RabbitMQ at %s:%d answers, and %s%s is there", t->config->name,
			    host->name, host->port, c->exchange[0] ? "exchange " : topic ? "queue " : "the default exchange",
			    c->exchange[0] ? c->exchange : topic ? topic : "");
	} else {
		error_prefix(&err, "sink %s", t->config->name);
		finding_add_error(findings, &err);
	}
	if (connected)
		rabbitmq_disconnect(conn, true);
}

static void rabbitmq_check(struct sink_target *t, const char *topic, struct finding_list *findings)
{
	for (uint32_t i = 0; i < t->place.n_hosts; i++)
		check_host(t, i, topic, findings);
}

static bool rabbitmq_open(struct sink_target *t, const struct sink_env *env, struct sink **ret, struct error *err)
{
	struct rabbitmq_link *link;

	if (!rabbitmq_link_open(&t->place, &t->breaker, env->outcomes, &link, err))
		return false;
	*ret = mem_new(struct sink);
	(*ret)->link = link;
	return true;
}

static void rabbitmq_close(struct sink *s)
{
	if (!s)
		return;
	rabbitmq_link_close(s->link);
	free(s);
}

static uint32_t rabbitmq_submit(struct sink *s, struct event *const events[], uint32_t n)
{
	return rabbitmq_link_submit(s->link, events, n);
}

static void rabbitmq_pump(struct sink *s, int64_t now_ms)
{
	rabbitmq_link_watch(s->link, now_ms);
}

static void rabbitmq_recall(struct sink *s)
{
	rabbitmq_link_recall(s->link);
}

extern const struct sink_driver sink_rabbitmq;
const struct sink_driver sink_rabbitmq = {
	.name = "rabbitmq",
	.summary = "RabbitMQ: publisher confirms, mandatory, persistent",
	.caps = 0,
	.topic_fault = rabbitmq_topic_fault,
	.target_open = rabbitmq_target_open,
	.target_close = rabbitmq_target_close,
	.breaker = rabbitmq_breaker,
	.check = rabbitmq_check,
	.open = rabbitmq_open,
	.close = rabbitmq_close,
	.submit = rabbitmq_submit,
	.pump = rabbitmq_pump,
	.recall = rabbitmq_recall,
};
