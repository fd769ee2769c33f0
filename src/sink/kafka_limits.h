/* What each topic takes at most in one message, as far as the brokers have told.
 *
 * A row that its topic does not take is better refused here: at the broker it would take its whole batch with it, and the
 * producer. Shared by the producers of a target and kept when one is replaced. Any thread may call. */
#ifndef POSTRIDER_SINK_KAFKA_LIMITS_H
#define POSTRIDER_SINK_KAFKA_LIMITS_H

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "relay/event.h"
#include "sink/breaker.h"

struct topic_limit {
	char *topic;
	_Atomic int64_t max_bytes;              /* max.message.bytes; 0: not known */
	_Atomic int64_t asked_at_ms, answered_at_ms; /* 0: never */
	struct topic_limit *next;
};

struct topic_limits {
	pthread_mutex_t lock;                   /* guards the list; what it holds stays until the end */
	struct topic_limit *first;
};

void topic_limits_init(struct topic_limits *l);
void topic_limits_release(struct topic_limits *l);

/* The limit of a topic, to be remembered by the caller. */
struct topic_limit *topic_limit_of(struct topic_limits *l, const char *topic);
/* On the producer's background thread, with the answer to a question of topic_limit_look. */
void topic_limit_answer(rd_kafka_event_t *event);

enum topic_limit_answer {
	TOPIC_LIMIT_KEPT,                       /* as far as we know */
	TOPIC_LIMIT_EXCEEDED,                   /* certainly */
	TOPIC_LIMIT_ASKED,                      /* by what we remember it is exceeded; whether that is still so, we asked */
};

/* Asks the brokers when the limit is not known, or is exceeded by what we remember, unless that was just done. */
enum topic_limit_answer topic_limit_look(struct topic_limit *t, rd_kafka_t *rk, const struct breaker *breaker,
					 const struct event *ev, int64_t now_ms);

#endif
