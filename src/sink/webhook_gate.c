#include "sink/webhook_gate.h"

#include "base/clock.h"
#include "base/log.h"

enum { RETRY_FIRST_MS = 200, RETRY_MAX_MS = 10000 };

void webhook_gate_init(struct webhook_gate *g, const struct sink_config *config)
{
	*g = (struct webhook_gate){ .config = config };
	breaker_init(&g->breaker);
	pthread_mutex_init(&g->lock, NULL);
	backoff_init(&g->backoff, RETRY_FIRST_MS, RETRY_MAX_MS, random_seed());
}

void webhook_gate_release(struct webhook_gate *g)
{
	breaker_release(&g->breaker);
	pthread_mutex_destroy(&g->lock);
}

int64_t webhook_gate_until(const struct webhook_gate *g)
{
	return atomic_load(&g->shut_until_ms);
}

uint32_t webhook_gate_room(const struct webhook_gate *g, uint32_t wanted, int64_t now_ms)
{
	if (now_ms < webhook_gate_until(g))
		return 0;
	return breaker_is_open(&g->breaker) ? MIN(wanted, 1) : wanted;
}

/* Many requests may fail at once: that is one failure. */
void webhook_gate_shut(struct webhook_gate *g, const struct error *why, int64_t told_ms, int64_t now_ms)
{
	int64_t until;

	pthread_mutex_lock(&g->lock);
	until = webhook_gate_until(g);
	if (until != CLOCK_NEVER) {
		if (now_ms >= until)
			until = now_ms + backoff_next(&g->backoff);
		if (told_ms >= 0)
			until = MAX(until, now_ms + MIN(told_ms, g->config->webhook.max_retry_after_ms));
		atomic_store(&g->shut_until_ms, until);
		breaker_open(&g->breaker, why);
	}
	pthread_mutex_unlock(&g->lock);
}

void webhook_gate_shut_for_good(struct webhook_gate *g, const struct error *why)
{
	bool first;

	pthread_mutex_lock(&g->lock);
	first = atomic_exchange(&g->shut_until_ms, CLOCK_NEVER) != CLOCK_NEVER;
	breaker_open(&g->breaker, why);
	pthread_mutex_unlock(&g->lock);
	if (first)
		log_error("webhook.gone", F_STR("sink", g->config->name), F_ERROR(why),
			  F_STR("meaning", "nothing more is sent there, and its rows wait in the outbox"));
}

/* An answer that comes late says nothing of what the endpoint asked for meanwhile. */
void webhook_gate_passed(struct webhook_gate *g, int64_t now_ms)
{
	if (!breaker_is_open(&g->breaker) || now_ms < webhook_gate_until(g))
		return;
	pthread_mutex_lock(&g->lock);
	if (now_ms >= webhook_gate_until(g)) {
		backoff_reset(&g->backoff);
		breaker_close(&g->breaker);
	}
	pthread_mutex_unlock(&g->lock);
}
