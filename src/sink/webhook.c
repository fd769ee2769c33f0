/* The sink `webhook`: each event is a POST, with the headers and signatures of Standard Webhooks. It is acknowledged by an
 * answer of 2xx.
 *
 * It does not claim to keep order by itself: of requests that are under way together, any may fail, and arrive first. So the
 * worker hands over the next event of an entity when the last one is answered; those of others are under way meanwhile. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sink/outcome.h"
#include "sink/sink.h"
#include "sink/webhook_answer.h"
#include "sink/webhook_conf.h"
#include "sink/webhook_gate.h"
#include "sink/webhook_request.h"

struct sink_target {
	const struct sink_config *config;
	struct webhook_gate gate;
	bool by_topic;
	_Atomic uint32_t n_sinks;       /* among which `concurrency` is divided */
	_Atomic uint32_t under_way;     /* requests of all of them */
};

/* A request under way. */
struct flight {
	struct sink *sink;
	struct event *event;            /* NULL: this one is free */
	struct flight *next;            /* free one */
};

struct sink {
	struct sink_target *target;
	struct outcomes outcomes;
	struct http *http;
	struct webhook_keys keys;
	struct webhook_request request;
	struct flight *flights, *free;
	int64_t wake_at_ms;             /* there is something to send, and the gate is shut until then */
};

/* --- the target ------------------------------------------------------------------------------------------------- */

static void webhook_target_close(struct sink_target *t)
{
	if (!t)
		return;
	webhook_gate_release(&t->gate);
	free(t);
}

static bool webhook_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err)
{
	struct sink_target *t;

	if (!webhook_conf_check(config, err))
		return false;
	t = mem_new(struct sink_target);
	t->config = config;
	t->by_topic = strstr(config->webhook.url, WEBHOOK_TOPIC) != NULL;
	webhook_gate_init(&t->gate, config);
	*ret = t;
	return true;
}

static struct breaker *webhook_breaker(struct sink_target *t)
{
	return &t->gate.breaker;
}

static void webhook_target_check(struct sink_target *t, const char *topic _unused_, struct finding_list *findings)
{
	webhook_check(t->config, findings);
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

/* A row is not to blame for an endpoint that is gone: it waits with the others. */
static void fail(struct sink *s, struct event *ev, struct webhook_meaning *m)
{
	struct webhook_gate *gate = &s->target->gate;

	if (m->concern == WEBHOOK_GONE) {
		webhook_gate_shut_for_good(gate, &m->why);
		m->why.kind = ERROR_TRANSPORT;
	} else if (m->concern == WEBHOOK_ENDPOINT && m->why.kind != ERROR_LOST) {
		webhook_gate_shut(gate, &m->why, m->told_ms, clock_ms());
	}
	outcomes_fail(&s->outcomes, &ev, 1, &m->why);
}

static void on_done(void *tag, const struct http_answer *answer)
{
	struct flight *f = tag;
	struct sink *s = f->sink;
	struct event *ev = TAKE_PTR(f->event);
	struct webhook_meaning m =
		webhook_answer_meaning(answer, s->target->config->webhook.url, s->target->by_topic, time(NULL));

	f->next = s->free;
	s->free = f;
	atomic_fetch_sub(&s->target->under_way, 1);
	if (m.why.kind != ERROR_NONE) {
		fail(s, ev, &m);
		return;
	}
	webhook_gate_passed(&s->target->gate, clock_ms());
	outcomes_deliver(&s->outcomes, &ev, 1);
}

/* --- the sink --------------------------------------------------------------------------------------------------- */

static void webhook_close(struct sink *s)
{
	struct error err;

	if (!s)
		return;
	atomic_fetch_sub(&s->target->under_way, http_under_way(s->http));
	atomic_fetch_sub(&s->target->n_sinks, 1);
	http_free(s->http);
	error_set(&err, ERROR_LOST, "the sink was closed before the endpoint answered");
	for (int64_t i = 0; i < s->target->config->webhook.concurrency; i++)
		if (s->flights[i].event)
			outcomes_fail(&s->outcomes, &s->flights[i].event, 1, &err);
	webhook_request_release(&s->request);
	webhook_keys_release(&s->keys);
	free(s->flights);
	free(s);
}

static bool webhook_open(struct sink_target *t, const struct sink_env *env, struct sink **ret, struct error *err)
{
	const struct webhook_config *c = &t->config->webhook;
	struct http_options options = webhook_conf_http(t->config);
	struct http *http;
	struct sink *s;

	if (!http_new(&options, on_done, &http, err))
		return false;
	s = mem_new(struct sink);
	s->target = t;
	s->http = http;
	s->wake_at_ms = CLOCK_NEVER;
	s->outcomes.box = env->outcomes;
	webhook_keys_init(&s->keys, c);
	webhook_request_init(&s->request);
	s->flights = mem_new_array(struct flight, (size_t)c->concurrency);
	for (int64_t i = 0; i < c->concurrency; i++) {
		s->flights[i] = (struct flight){ .sink = s, .next = s->free };
		s->free = &s->flights[i];
	}
	atomic_fetch_add(&t->n_sinks, 1);
	*ret = s;
	return true;
}

/* What cannot be sent at all is not taken for a failure of the endpoint. */
static void start(struct sink *s, struct event *ev)
{
	struct flight *f = s->free;
	struct http_request request;
	struct error err;

	if (!webhook_request_build(&s->request, &s->target->config->webhook, &s->keys, ev, time(NULL), &request, &err) ||
	    !http_start(s->http, &request, f, &err)) {
		outcomes_fail(&s->outcomes, &ev, 1, &err);
		return;
	}
	s->free = f->next;
	f->event = ev;
	atomic_fetch_add(&s->target->under_way, 1);
}

/* How many requests of one worker may be under way: its share of all, as far as others leave it. One always, because its
 * answer is what wakes the worker for the next. */
static uint32_t limit(const struct sink *s)
{
	const struct sink_target *t = s->target;
	uint32_t all = (uint32_t)t->config->webhook.concurrency, others = atomic_load(&t->under_way) - http_under_way(s->http);
	uint32_t share = all / MAX(atomic_load(&t->n_sinks), 1);

	return MAX(MIN(share, all > others ? all - others : 0), 1);
}

static uint32_t room(const struct sink *s, int64_t now_ms)
{
	uint32_t may = webhook_gate_room(&s->target->gate, limit(s), now_ms), busy = http_under_way(s->http);

	return may > busy ? may - busy : 0;
}

static uint32_t webhook_submit(struct sink *s, struct event *const events[], uint32_t n)
{
	int64_t now_ms = clock_ms();
	uint32_t taken = MIN(n, room(s, now_ms));
	struct error err;

	if (taken == 0) {
		s->wake_at_ms = http_under_way(s->http) > 0 ? CLOCK_NEVER : webhook_gate_until(&s->target->gate);
		return 0;
	}
	if (!webhook_keys_look(&s->keys, now_ms, &err)) {
		webhook_gate_shut(&s->target->gate, &err, -1, now_ms);
		outcomes_fail(&s->outcomes, events, 1, &err);
		return 1;
	}
	for (uint32_t i = 0; i < taken; i++)
		start(s, events[i]);
	return taken;
}

static int webhook_pollfd(const struct sink *s, short *ret_events, int64_t *ret_deadline_ms)
{
	int fd = http_pollfd(s->http, ret_events, ret_deadline_ms);

	*ret_deadline_ms = MIN(*ret_deadline_ms, s->wake_at_ms);
	return fd;
}

static void webhook_pump(struct sink *s, int64_t now_ms)
{
	if (now_ms >= s->wake_at_ms)
		s->wake_at_ms = CLOCK_NEVER;
	http_pump(s->http, now_ms);
}

static void webhook_recall(struct sink *s)
{
	http_recall(s->http);
}

extern const struct sink_driver sink_webhook;
const struct sink_driver sink_webhook = {
	.name = "webhook",
	.summary = "HTTP requests, signed as Standard Webhooks; acknowledged by 2xx",
	.target_open = webhook_target_open,
	.target_close = webhook_target_close,
	.breaker = webhook_breaker,
	.check = webhook_target_check,
	.open = webhook_open,
	.close = webhook_close,
	.submit = webhook_submit,
	.pollfd = webhook_pollfd,
	.pump = webhook_pump,
	.recall = webhook_recall,
};
