#include "sink/breaker.h"

#include "base/clock.h"

void breaker_init(struct breaker *b)
{
	*b = (struct breaker){ 0 };
	pthread_mutex_init(&b->lock, NULL);
}

void breaker_release(struct breaker *b)
{
	pthread_mutex_destroy(&b->lock);
}

bool breaker_open(struct breaker *b, const struct error *why)
{
	bool was_open;

	pthread_mutex_lock(&b->lock);
	was_open = atomic_exchange(&b->open, true);
	if (!was_open)
		b->since_ms = clock_today_us() / 1000;
	b->why = *why;
	pthread_mutex_unlock(&b->lock);
	return !was_open;
}

bool breaker_close(struct breaker *b)
{
	bool was_open;

	if (!breaker_is_open(b))
		return false;
	pthread_mutex_lock(&b->lock);
	was_open = atomic_exchange(&b->open, false);
	pthread_mutex_unlock(&b->lock);
	return was_open;
}

bool breaker_is_open(const struct breaker *b)
{
	return atomic_load_explicit(&b->open, memory_order_relaxed);
}

bool breaker_look(struct breaker *b, int64_t *ret_since_ms, struct error *ret_why)
{
	bool open;

	pthread_mutex_lock(&b->lock);
	open = breaker_is_open(b);
	if (open) {
		*ret_since_ms = b->since_ms;
		*ret_why = b->why;
	}
	pthread_mutex_unlock(&b->lock);
	return open;
}
