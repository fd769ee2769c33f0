#include "sink/nats_flight.h"

#include "base/clock.h"
#include "base/macros.h"

void flight_init(struct flight *f)
{
	*f = (struct flight){ .n_unused = FLIGHT_MAX };
	for (uint32_t i = 0; i < FLIGHT_MAX; i++)
		f->unused[i] = (uint16_t)i;
}

uint32_t flight_count(const struct flight *f)
{
	return FLIGHT_MAX - f->n_unused;
}

static struct event *leave(struct flight *f, uint32_t slot)
{
	struct event *ev = f->slots[slot].ev;

	f->slots[slot] = (struct flight_slot){ 0 };
	f->unused[f->n_unused++] = (uint16_t)slot;
	return ev;
}

bool flight_add(struct flight *f, struct event *ev)
{
	uint16_t slot;

	if (f->n_unused == 0)
		return false;
	slot = f->unused[--f->n_unused];
	f->slots[slot] = (struct flight_slot){ .ev = ev };
	f->queue[(f->head + f->n_queued++) % FLIGHT_MAX] = slot;
	return true;
}

static uint32_t first_queued(struct flight *f)
{
	uint32_t slot = f->queue[f->head];

	f->head = (f->head + 1) % FLIGHT_MAX;
	f->n_queued--;
	return slot;
}

/* The number holds the slot in its low bits, so that an answer finds it at once. */
struct event *flight_send(struct flight *f, int64_t now_ms, uint64_t *ret_number)
{
	uint32_t slot;

	if (f->n_queued == 0)
		return NULL;
	slot = first_queued(f);
	*ret_number = ++f->sent * FLIGHT_MAX + slot;
	f->slots[slot].number = *ret_number;
	f->slots[slot].since_ms = now_ms;
	return f->slots[slot].ev;
}

struct event *flight_land(struct flight *f, uint64_t number)
{
	uint32_t slot = (uint32_t)(number % FLIGHT_MAX);

	return number > 0 && f->slots[slot].number == number ? leave(f, slot) : NULL;
}

struct event *flight_unqueue(struct flight *f)
{
	return f->n_queued > 0 ? leave(f, first_queued(f)) : NULL;
}

struct event *flight_expire(struct flight *f, int64_t before_ms)
{
	for (uint32_t i = 0; i < FLIGHT_MAX; i++)
		if (f->slots[i].number > 0 && f->slots[i].since_ms < before_ms)
			return leave(f, i);
	return NULL;
}

struct event *flight_take(struct flight *f, const struct slice *topic)
{
	for (uint32_t i = 0; i < FLIGHT_MAX; i++)
		if (f->slots[i].number > 0 && (!topic || slice_equal(f->slots[i].ev->topic, *topic)))
			return leave(f, i);
	return NULL;
}

int64_t flight_oldest(const struct flight *f)
{
	int64_t oldest = CLOCK_NEVER;

	for (uint32_t i = 0; i < FLIGHT_MAX; i++)
		if (f->slots[i].number > 0)
			oldest = MIN(oldest, f->slots[i].since_ms);
	return oldest;
}
