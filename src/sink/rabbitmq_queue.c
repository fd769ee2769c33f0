#include "sink/rabbitmq_queue.h"

void rabbitmq_queue_init(struct rabbitmq_queue *q)
{
	*q = (struct rabbitmq_queue){ 0 };
	pthread_mutex_init(&q->lock, NULL);
}

void rabbitmq_queue_release(struct rabbitmq_queue *q)
{
	pthread_mutex_destroy(&q->lock);
}

static void append(struct rabbitmq_queue *q, struct event *ev)
{
	ev->next = NULL;
	if (q->last)
		q->last->next = ev;
	else
		q->first = ev;
	q->last = ev;
	q->count++;
}

static struct event *unlink_first(struct rabbitmq_queue *q)
{
	struct event *ev = q->first;

	q->first = ev->next;
	if (!q->first)
		q->last = NULL;
	q->count--;
	return ev;
}

static bool passes(const struct rabbitmq_queue *q, rabbitmq_queue_test *test, void *context)
{
	return q->first && (!test || test(q->first, context));
}

uint32_t rabbitmq_queue_put(struct rabbitmq_queue *q, struct event *const events[], uint32_t n, uint32_t limit)
{
	uint32_t taken = 0;

	pthread_mutex_lock(&q->lock);
	while (taken < n && q->count < limit)
		append(q, events[taken++]);
	pthread_mutex_unlock(&q->lock);
	return taken;
}

bool rabbitmq_queue_may_leave(struct rabbitmq_queue *q, rabbitmq_queue_test *test, void *context)
{
	bool may;

	pthread_mutex_lock(&q->lock);
	may = passes(q, test, context);
	pthread_mutex_unlock(&q->lock);
	return may;
}

bool rabbitmq_queue_has(struct rabbitmq_queue *q)
{
	return rabbitmq_queue_may_leave(q, NULL, NULL);
}

struct event *rabbitmq_queue_take(struct rabbitmq_queue *q, rabbitmq_queue_test *test, void *context)
{
	struct event *ev;

	pthread_mutex_lock(&q->lock);
	ev = passes(q, test, context) ? unlink_first(q) : NULL;
	pthread_mutex_unlock(&q->lock);
	return ev;
}

void rabbitmq_queue_drop(struct rabbitmq_queue *q, struct outcomes *outcomes, const char *why)
{
	struct error lost;
	struct event *ev;

	error_set(&lost, ERROR_LOST, "not sent: %s", why);
	while ((ev = rabbitmq_queue_take(q, NULL, NULL)))
		outcomes_fail(outcomes, &ev, 1, &lost);
}
