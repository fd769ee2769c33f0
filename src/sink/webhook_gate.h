/* Whether requests may go to an endpoint now: open, shut until some time, or shut for good. All workers share it.
 *
 * It shuts when the endpoint is away, refuses us, or asks us to wait: for as long as it says, else a little longer each time.
 * When that is over each worker tries one request, and the first that is delivered opens it. */
#ifndef POSTRIDER_SINK_WEBHOOK_GATE_H
#define POSTRIDER_SINK_WEBHOOK_GATE_H

#include "base/backoff.h"
#include "config/config.h"
#include "sink/breaker.h"

struct webhook_gate {
	const struct sink_config *config;
	struct breaker breaker;                 /* open while the gate is not */
	_Atomic int64_t shut_until_ms;          /* CLOCK_NEVER: for good */
	pthread_mutex_t lock;                   /* guards what follows, and writes of the above */
	struct backoff backoff;
};

void webhook_gate_init(struct webhook_gate *g, const struct sink_config *config);
void webhook_gate_release(struct webhook_gate *g);

/* How many of `wanted` requests of one worker may be under way. */
uint32_t webhook_gate_room(const struct webhook_gate *g, uint32_t wanted, int64_t now_ms);
int64_t webhook_gate_until(const struct webhook_gate *g);

/* `told_ms`: how long the endpoint asks us to wait; -1: it does not say. */
void webhook_gate_shut(struct webhook_gate *g, const struct error *why, int64_t told_ms, int64_t now_ms);
/* Until the process ends. Logged, once. */
void webhook_gate_shut_for_good(struct webhook_gate *g, const struct error *why);
/* Something was delivered. */
void webhook_gate_passed(struct webhook_gate *g, int64_t now_ms);

#endif
