/* What the brokers say about themselves, for the log and for `check`. One per producer; it outlives the librdkafka clients
 * that speak to it, from threads of their own. */
#ifndef POSTRIDER_SINK_KAFKA_HEALTH_H
#define POSTRIDER_SINK_KAFKA_HEALTH_H

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"

struct kafka_health {
	const struct sink_config *sink;
	_Atomic bool unreachable;               /* and the log says so */
	pthread_mutex_t lock;                   /* guards what follows */
	int64_t complained_at_ms;               /* of a refusal; 0: never */
	struct error reason;                    /* the last error that brokers or TLS gave */
};

void kafka_health_init(struct kafka_health *h, const struct sink_config *sink);
void kafka_health_release(struct kafka_health *h);

/* An error event, and the news that a message has arrived. */
void kafka_health_error(struct kafka_health *h, rd_kafka_resp_err_t code, const char *text);
void kafka_health_delivered(struct kafka_health *h);

/* The last reason; kind ERROR_NONE when there was none. */
struct error kafka_health_reason(struct kafka_health *h);

#endif
