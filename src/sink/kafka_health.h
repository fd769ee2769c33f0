/* What the brokers say about themselves: for the log, for `check`, and for the target's breaker. One per producer; it outlives
 * the librdkafka clients that speak to it, from threads of their own. */
#ifndef POSTRIDER_SINK_KAFKA_HEALTH_H
#define POSTRIDER_SINK_KAFKA_HEALTH_H

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "sink/breaker.h"

struct kafka_health {
	const struct sink_config *sink;
	struct breaker *breaker;
	pthread_mutex_t lock;                   /* guards what follows */
	int64_t complained_at_ms;               /* of a refusal; 0: never */
	struct error reason;                    /* the last error that brokers or TLS gave */
};

void kafka_health_init(struct kafka_health *h, const struct sink_config *sink, struct breaker *breaker);
void kafka_health_release(struct kafka_health *h);

/* An error event, and the news that brokers have answered. */
void kafka_health_error(struct kafka_health *h, rd_kafka_resp_err_t code, const char *text);
void kafka_health_answered(struct kafka_health *h);

/* The last reason; kind ERROR_NONE when there was none. */
struct error kafka_health_reason(struct kafka_health *h);

#endif
