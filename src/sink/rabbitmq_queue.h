/* Events on their way from a worker to the thread that publishes them. Any of the two may call. */
#ifndef POSTRIDER_SINK_RABBITMQ_QUEUE_H
#define POSTRIDER_SINK_RABBITMQ_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "relay/event.h"
#include "sink/outcome.h"

struct rabbitmq_queue {
	pthread_mutex_t lock;           /* guards what follows */
	struct event *first, *last;     /* linked by `next` */
	uint32_t count;
};

/* Whether the first event may leave. It may be looked at only here: another thread may give it back to the worker. */
typedef bool rabbitmq_queue_test(const struct event *first, void *context);

void rabbitmq_queue_init(struct rabbitmq_queue *q);
void rabbitmq_queue_release(struct rabbitmq_queue *q);

/* Adds the first of `n` events as long as there are fewer than `limit`; returns how many. */
uint32_t rabbitmq_queue_put(struct rabbitmq_queue *q, struct event *const events[], uint32_t n, uint32_t limit);
bool rabbitmq_queue_has(struct rabbitmq_queue *q);
bool rabbitmq_queue_may_leave(struct rabbitmq_queue *q, rabbitmq_queue_test *test, void *context);
/* The first event; NULL when there is none, or it may not leave. Without a test it may. */
struct event *rabbitmq_queue_take(struct rabbitmq_queue *q, rabbitmq_queue_test *test, void *context);
/* All of them come back as lost. */
void rabbitmq_queue_drop(struct rabbitmq_queue *q, struct outcomes *outcomes, const char *why);

#endif
