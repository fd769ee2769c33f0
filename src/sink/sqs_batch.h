/* The body of one request: up to ten events of one queue, or the question where a queue is. */
#ifndef POSTRIDER_SINK_SQS_BATCH_H
#define POSTRIDER_SINK_SQS_BATCH_H

#include "base/buf.h"
#include "sink/outcome.h"
#include "sink/sqs_answer.h"
#include "sink/sqs_queue.h"

struct sqs_batch {
	struct event *events[SQS_BATCH_MAX];    /* by the number of their entries */
	uint32_t count;
	struct buf body;
};

void sqs_batch_init(struct sqs_batch *b);
void sqs_batch_release(struct sqs_batch *b);
void sqs_batch_clear(struct sqs_batch *b);

/* Takes events from the front of the queue, as many as fit: all entries together may count for `max_bytes`. An event that is
 * larger by itself fails as ERROR_REJECTED. One that is to travel alone does. The batch may stay empty. */
void sqs_batch_fill(struct sqs_batch *b, struct sqs_queues *queues, struct sqs_queue *queue, size_t max_bytes,
		    struct outcomes *outcomes);
/* GetQueueUrl for a queue that has a name. */
void sqs_batch_ask(struct sqs_batch *b, const struct sqs_queue *queue);
struct slice sqs_batch_body(const struct sqs_batch *b);

#endif
