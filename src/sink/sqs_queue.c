#include "sink/sqs_queue.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { NAME_MAX_BYTES = 80, URL_MAX_BYTES = 1024, QUEUES_KEPT = 1000 };

#define FIFO_SUFFIX ".fifo"

static bool has_prefix(struct slice s, const char *prefix)
{
	return s.len >= strlen(prefix) && memcmp(s.ptr, prefix, strlen(prefix)) == 0;
}

static bool is_url(struct slice topic)
{
	return has_prefix(topic, "https://") || has_prefix(topic, "http://");
}

static bool is_fifo(struct slice topic)
{
	size_t len = strlen(FIFO_SUFFIX);

	return topic.len > len && memcmp(topic.ptr + topic.len - len, FIFO_SUFFIX, len) == 0;
}

static const char *url_fault(struct slice url)
{
	if (url.len > URL_MAX_BYTES)
		return "is longer than 1024 bytes, which is no URL of a queue";
	for (size_t i = 0; i < url.len; i++)
		if (url.ptr[i] <= ' ' || url.ptr[i] > '~')
			return "is a URL with characters that the URL of a queue does not have";
	return NULL;
}

const char *sqs_queue_fault(struct slice topic)
{
	size_t len = topic.len;

	if (len == 0)
		return "is empty, and queues of SQS have names";
	if (is_url(topic))
		return url_fault(topic);
	if (len > NAME_MAX_BYTES)
		return "is longer than 80 characters, which SQS does not allow";
	if (is_fifo(topic))
		len -= strlen(FIFO_SUFFIX);
	for (size_t i = 0; i < len; i++)
		if (!isascii(topic.ptr[i]) || (!isalnum((unsigned char)topic.ptr[i]) && topic.ptr[i] != '-' && topic.ptr[i] != '_'))
			return "has other characters than letters, digits, - and _, and SQS allows only those, and .fifo at the end";
	return NULL;
}

static void free_queue(struct sqs_queue *queue)
{
	free(queue->topic);
	free(queue->url);
	free(queue->waiting);
	free(queue);
}

static bool is_idle(const struct sqs_queue *queue)
{
	return queue->n_waiting == 0 && queue->under_way == 0 && !queue->asking;
}

static void forget_idle(struct sqs_queues *q)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < q->count; i++) {
		if (is_idle(q->items[i]))
			free_queue(q->items[i]);
		else
			q->items[kept++] = q->items[i];
	}
	q->count = kept;
}

static struct sqs_queue *add(struct sqs_queues *q, struct slice topic)
{
	struct sqs_queue *queue = mem_new(struct sqs_queue);

	if (q->count >= QUEUES_KEPT)
		forget_idle(q);
	queue->topic = mem_strndup(topic.ptr, topic.len);
	queue->topic_len = topic.len;
	queue->fifo = is_fifo(topic);
	queue->url = is_url(topic) ? mem_strdup(queue->topic) : NULL;
	q->items = mem_one_more(q->items, q->count, &q->room, sizeof(*q->items));
	q->items[q->count++] = queue;
	return queue;
}

struct sqs_queue *sqs_queues_find(struct sqs_queues *q, struct slice topic)
{
	for (uint32_t i = 0; i < q->count; i++)
		if (slice_equal(sqs_queue_topic(q->items[i]), topic))
			return q->items[i];
	return add(q, topic);
}

void sqs_queues_release(struct sqs_queues *q)
{
	for (uint32_t i = 0; i < q->count; i++)
		free_queue(q->items[i]);
	free(q->items);
	*q = (struct sqs_queues){ 0 };
}

void sqs_queue_push(struct sqs_queues *q, struct sqs_queue *queue, struct event *ev)
{
	queue->waiting = mem_one_more(queue->waiting, queue->n_waiting, &queue->room, sizeof(struct event *));
	queue->waiting[queue->n_waiting++] = ev;
	q->n_waiting++;
}

void sqs_queue_push_front(struct sqs_queues *q, struct sqs_queue *queue, struct event *const events[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		sqs_queue_push(q, queue, events[i]);
	memmove(queue->waiting + n, queue->waiting, (queue->n_waiting - n) * sizeof(struct event *));
	memcpy(queue->waiting, events, n * sizeof(struct event *));
}

void sqs_queue_drop(struct sqs_queues *q, struct sqs_queue *queue, uint32_t n)
{
	queue->n_waiting -= n;
	q->n_waiting -= n;
	memmove(queue->waiting, queue->waiting + n, queue->n_waiting * sizeof(struct event *));
}

void sqs_queue_forget_url(struct sqs_queue *queue)
{
	if (is_url(sqs_queue_topic(queue)))
		return;
	free(queue->url);
	queue->url = NULL;
}
