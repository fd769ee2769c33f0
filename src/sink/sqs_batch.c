#include "sink/sqs_batch.h"

#include "sink/sqs_message.h"

enum { KEPT_BYTES = 256 * 1024 };       /* a buffer that had to grow larger is given back */

/* A limit of 1 MiB twice, one of which is taken back, as JSON that may need six bytes for one. */
#define BODY_CEILING ((size_t)16 << 20)

void sqs_batch_init(struct sqs_batch *b)
{
	*b = (struct sqs_batch){ 0 };
	buf_init(&b->body, BODY_CEILING);
}

void sqs_batch_release(struct sqs_batch *b)
{
	buf_release(&b->body);
}

void sqs_batch_clear(struct sqs_batch *b)
{
	b->count = 0;
	if (b->body.room > KEPT_BYTES)
		buf_release(&b->body);
	buf_clear(&b->body);
}

/* At least this is what an event counts for, whatever has to be done to it. */
static size_t least_bytes(const struct event *ev)
{
	size_t bytes = ev->payload.len + ev->key.len;

	for (uint32_t i = 0; i < ev->n_headers; i++)
		bytes += ev->headers[i].name.len + ev->headers[i].value.len;
	return bytes;
}

static void refuse(struct event *ev, size_t bytes, size_t max_bytes, struct outcomes *outcomes)
{
	struct error why;

	error_set(&why, ERROR_REJECTED, "the message has %zu bytes, and SQS takes %zu at most", bytes, max_bytes);
	error_hint(&why, "payload, key and headers count, bytes that are no text by a third more; see max_message_bytes");
	outcomes_fail(outcomes, &ev, 1, &why);
}

/* What the entry counts for; it is written behind the others. */
static size_t add_entry(struct sqs_batch *b, const struct event *ev, bool fifo, size_t max_bytes)
{
	size_t bytes = least_bytes(ev);

	if (bytes > max_bytes)
		return bytes;
	if (b->count > 0)
		buf_add_char(&b->body, ',');
	return buf_add_sqs_entry(&b->body, ev, b->count, fifo);
}

static void cut(struct buf *b, size_t len)
{
	b->len = len;
	b->data[len] = '\0';
}

void sqs_batch_fill(struct sqs_batch *b, struct sqs_queues *queues, struct sqs_queue *queue, size_t max_bytes,
		    struct outcomes *outcomes)
{
	size_t total = 0;
	bool alone = false;

	buf_add_str(&b->body, "{\"QueueUrl\":");
	buf_add_json(&b->body, slice_of(queue->url));
	buf_add_str(&b->body, ",\"Entries\":[");
	while (queue->n_waiting > 0 && b->count < SQS_BATCH_MAX && !alone) {
		struct event *ev = queue->waiting[0];
		size_t before = b->body.len, bytes;

		alone = ev->alone;
		if (alone && b->count > 0)
			break;
		bytes = add_entry(b, ev, queue->fifo, max_bytes);
		if (bytes > max_bytes || total + bytes > max_bytes) {
			cut(&b->body, before);
			if (bytes <= max_bytes)
				break;
			refuse(ev, bytes, max_bytes, outcomes);
			alone = false;
		} else {
			total += bytes;
			b->events[b->count++] = ev;
		}
		sqs_queue_drop(queues, queue, 1);
	}
	buf_add_str(&b->body, "]}");
	if (b->count == 0)
		sqs_batch_clear(b);
}

void sqs_batch_ask(struct sqs_batch *b, const struct sqs_queue *queue)
{
	buf_add_str(&b->body, "{\"QueueName\":");
	buf_add_json(&b->body, sqs_queue_topic(queue));
	buf_add_char(&b->body, '}');
}

struct slice sqs_batch_body(const struct sqs_batch *b)
{
	return (struct slice){ buf_str(&b->body), b->body.len };
}
