/* The sink `redis`: each event becomes an entry of a Redis stream, whose key is the topic.
 *
 * An event is acknowledged when the transaction that holds its XADD has run, and, with `wait_replicas`, when so many
 * replicas have it. redis_batch.h says how order is kept, redis_writer.h what happens while the server is away. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/finding.h"
#include "base/mem.h"
#include "sink/redis_server.h"
#include "sink/redis_writer.h"
#include "sink/sink.h"

struct sink_target {
	struct redis_server server;
	struct breaker breaker;
};

struct sink {
	struct outcomes outcomes;
	struct redis_writer writer;
};

static bool redis_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err)
{
	_cleanup_(mem_freep) struct sink_target *t = mem_new(struct sink_target);

	/* A server that goes away while we write to it is an outage to report, not a reason to die. */
	signal(SIGPIPE, SIG_IGN);
	if (!redis_server_init(&t->server, config, err))
		return false;
	breaker_init(&t->breaker);
	*ret = TAKE_PTR(t);
	return true;
}

static void redis_target_close(struct sink_target *t)
{
	if (!t)
		return;
	redis_server_release(&t->server);
	breaker_release(&t->breaker);
	free(t);
}

static struct breaker *redis_breaker(struct sink_target *t)
{
	return &t->breaker;
}

/* A command that is queued is checked for permission, memory and role. There is no EXEC: the connection ends before. */
static bool try_xadd(struct redis_link *l, const struct redis_wait *wait, const char *topic, struct error *err)
{
	return REDIS_ASK(l, wait, NULL, err, "MULTI") && REDIS_ASK(l, wait, NULL, err, "XADD", topic, "*", "id", "");
}

/* XLEN fails on what is not a stream. Who may only write need not be allowed to ask. */
static void check_stream(struct redis_link *l, const struct redis_wait *wait, const char *topic,
			 struct finding_list *findings)
{
	struct error err;

	if ((!REDIS_ASK(l, wait, NULL, &err, "XLEN", topic) && err.kind != ERROR_AUTH) ||
	    !try_xadd(l, wait, topic, &err)) {
		error_prefix(&err, "stream %s", topic);
		finding_add_error(findings, &err);
	} else {
		finding_add(findings, FINDING_OK, NULL, "stream %s can be written", topic);
	}
}

static void check_replicas(struct redis_link *l, const struct redis_wait *wait, int64_t wanted,
			   struct finding_list *findings)
{
	_cleanup_(redis_reply_freep) redisReply *reply = NULL;
	struct error err;

	if (wanted == 0)
		return;
	if (!REDIS_ASK(l, wait, &reply, &err, "WAIT", "0", "1"))
		finding_add_error(findings, &err);
	else if (reply->integer < wanted)
		finding_add(findings, FINDING_FAIL, "start the replicas, or lower wait_replicas",
			    "%lld replicas are there, and wait_replicas is %" PRId64, reply->integer, wanted);
	else
		finding_add(findings, FINDING_OK, NULL, "%lld replicas are there", reply->integer);
}

static void redis_check(struct sink_target *t, const char *topic, struct finding_list *findings)
{
	_cleanup_(redis_link_freep) struct redis_link *l = NULL;
	const struct redis_config *c = t->server.config;
	struct redis_wait wait = { -1, clock_ms() + 2 * c->connect_timeout_ms };
	struct error err;

	if (!redis_server_connect(&t->server, -1, &l, &err)) {
		finding_add_error(findings, &err);
		return;
	}
	finding_add(findings, FINDING_OK, NULL, "Redis at %s answers", c->address);
	check_replicas(l, &wait, c->wait_replicas, findings);
	if (topic)
		check_stream(l, &wait, topic, findings);
}

static bool redis_open(struct sink_target *t, const struct sink_env *env, struct sink **ret,
		       struct error *err _unused_)
{
	struct sink *s = mem_new(struct sink);

	s->outcomes.box = env->outcomes;
	redis_writer_init(&s->writer, &t->server, &s->outcomes, &t->breaker);
	*ret = s;
	return true;
}

static void redis_close(struct sink *s)
{
	if (!s)
		return;
	redis_writer_release(&s->writer);
	free(s);
}

static uint32_t redis_submit(struct sink *s, struct event *const events[], uint32_t n)
{
	return outcomes_unread(&s->outcomes) ? 0 : redis_writer_submit(&s->writer, events, n, clock_ms());
}

static int redis_pollfd(const struct sink *s, short *ret_events, int64_t *ret_deadline_ms)
{
	return redis_writer_pollfd(&s->writer, ret_events, ret_deadline_ms);
}

static void redis_pump(struct sink *s, int64_t now_ms)
{
	redis_writer_pump(&s->writer, now_ms);
}

static void redis_recall(struct sink *s)
{
	redis_writer_recall(&s->writer);
}

extern const struct sink_driver sink_redis;
const struct sink_driver sink_redis = {
	.name = "redis",
	.summary = "Redis Streams: an entry for each event",
	.caps = SINK_KEEPS_ORDER,
	.target_open = redis_target_open,
	.target_close = redis_target_close,
	.breaker = redis_breaker,
	.check = redis_check,
	.open = redis_open,
	.close = redis_close,
	.submit = redis_submit,
	.pollfd = redis_pollfd,
	.pump = redis_pump,
	.recall = redis_recall,
};
