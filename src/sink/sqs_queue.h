/* The queues that rows of one worker go to: what they are called, where they are, and which rows wait for them. */
#ifndef POSTRIDER_SINK_SQS_QUEUE_H
#define POSTRIDER_SINK_SQS_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "relay/event.h"

struct sqs_queue {
	char *topic;                    /* its name or URL, as the row has it */
	size_t topic_len;
	char *url;                      /* NULL: to be asked for */
	bool fifo;
	bool asking;                    /* for its URL */
	uint32_t under_way;             /* requests */

	struct event **waiting;
	uint32_t n_waiting, room;
};

struct sqs_queues {
	struct sqs_queue **items;
	uint32_t count, room;
	uint32_t n_waiting;             /* in all of them */
};

/* What can never be a queue; NULL: nothing is wrong with it. */
const char *sqs_queue_fault(struct slice topic);

/* The queue of a topic, made when it is not known yet. It is valid until the next call: those that nothing waits for are
 * forgotten when there are too many. */
struct sqs_queue *sqs_queues_find(struct sqs_queues *q, struct slice topic);
void sqs_queues_release(struct sqs_queues *q);          /* nothing may wait */

void sqs_queue_push(struct sqs_queues *q, struct sqs_queue *queue, struct event *ev);
/* Puts these in front of all others, in their order. */
void sqs_queue_push_front(struct sqs_queues *q, struct sqs_queue *queue, struct event *const events[], uint32_t n);
/* Takes the first n away. */
void sqs_queue_drop(struct sqs_queues *q, struct sqs_queue *queue, uint32_t n);
/* The URL of a queue by its name may have become another one. */
void sqs_queue_forget_url(struct sqs_queue *queue);

static inline struct slice sqs_queue_topic(const struct sqs_queue *queue)
{
	return (struct slice){ queue->topic, queue->topic_len };
}

#endif
