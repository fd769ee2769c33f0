/* The sink `sqs`: each event becomes a message in a queue of Amazon SQS, whose name or URL is the topic.
 *
 * An event is acknowledged when SQS says that its entry of a batch is stored. sqs_sender.h says how requests are made,
 * sqs_message.h what a message looks like. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sink/sink.h"
#include "sink/sqs_check.h"
#include "sink/sqs_sender.h"

struct sink_target {
	struct sqs_service service;
	struct breaker breaker;
};

struct sink {
	struct outcomes outcomes;
	struct sqs_sender sender;
};

static bool sqs_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err)
{
	const struct sqs_config *c = &config->sqs;
	const char *region = aws_region(c->region);
	struct sink_target *t;

	if (!region) {
		error_set(err, ERROR_CONFIG, "%s: there is no region", config->where);
		return error_hint(err, "set region, or AWS_REGION; where endpoint leads elsewhere than to AWS, any name will do");
	}
	t = mem_new(struct sink_target);
	if (!aws_endpoint_read(c->endpoint, c->tls, "sqs", region, &t->service.endpoint, err)) {
		free(t);
		return error_prefix(err, "%s", config->where);
	}
	t->service.config = c;
	t->service.sources = (struct aws_sources){ c->access_key_id, c->secret_access_key_file, c->profile, region };
	breaker_init(&t->breaker);
	*ret = t;
	return true;
}

static void sqs_target_close(struct sink_target *t)
{
	if (!t)
		return;
	aws_endpoint_release(&t->service.endpoint);
	breaker_release(&t->breaker);
	free(t);
}

static struct breaker *sqs_breaker(struct sink_target *t)
{
	return &t->breaker;
}

static void sqs_target_check(struct sink_target *t, const char *topic, struct finding_list *findings)
{
	sqs_check(&t->service, topic, findings);
}

static bool sqs_open(struct sink_target *t, const struct sink_env *env, struct sink **ret, struct error *err)
{
	struct sink *s = mem_new(struct sink);

	s->outcomes.box = env->outcomes;
	if (!sqs_sender_init(&s->sender, &t->service, &s->outcomes, &t->breaker, err)) {
		free(s);
		return false;
	}
	*ret = s;
	return true;
}

static void sqs_close(struct sink *s)
{
	if (!s)
		return;
	sqs_sender_release(&s->sender);
	free(s);
}

static uint32_t sqs_submit(struct sink *s, struct event *const events[], uint32_t n)
{
	return sqs_sender_submit(&s->sender, events, n, clock_ms());
}

static int sqs_pollfd(const struct sink *s, short *ret_events, int64_t *ret_deadline_ms)
{
	return sqs_sender_pollfd(&s->sender, ret_events, ret_deadline_ms);
}

static void sqs_pump(struct sink *s, int64_t now_ms)
{
	sqs_sender_pump(&s->sender, now_ms);
}

static void sqs_recall(struct sink *s)
{
	sqs_sender_recall(&s->sender);
}

extern const struct sink_driver sink_sqs;
const struct sink_driver sink_sqs = {
	.name = "sqs",
	.summary = "Amazon SQS: a message for each event, in standard and FIFO queues",
	.topic_fault = sqs_queue_fault,
	.target_open = sqs_target_open,
	.target_close = sqs_target_close,
	.breaker = sqs_breaker,
	.check = sqs_target_check,
	.open = sqs_open,
	.close = sqs_close,
	.submit = sqs_submit,
	.pollfd = sqs_pollfd,
	.pump = sqs_pump,
	.recall = sqs_recall,
};
