/* Events between submit and their answer: queued, then sent. A table of fixed size; whoever shares it guards it.
 *
 * What was sent has a number to be answered by. Numbers are not used twice for a long time, so an answer that comes late, to
 * something that was given back meanwhile, finds nothing. */
#ifndef POSTRIDER_SINK_NATS_FLIGHT_H
#define POSTRIDER_SINK_NATS_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "relay/event.h"

enum { FLIGHT_MAX = 1024 };             /* a power of two */

struct flight_slot {
	struct event *ev;               /* NULL: free */
	uint64_t number;                /* 0: queued */
	int64_t since_ms;               /* when it was sent */
};

struct flight {
	struct flight_slot slots[FLIGHT_MAX];
	uint16_t unused[FLIGHT_MAX];    /* a stack of free slots */
	uint16_t queue[FLIGHT_MAX];     /* a ring of queued ones */
	uint32_t n_unused, head, n_queued;
	uint64_t sent;                  /* so many ever */
};

void flight_init(struct flight *f);
uint32_t flight_count(const struct flight *f);          /* queued and sent */
/* False: full. */
bool flight_add(struct flight *f, struct event *ev);
/* The next of the queue becomes sent; NULL when there is none. */
struct event *flight_send(struct flight *f, int64_t now_ms, uint64_t *ret_number);
/* The one that was sent under this number leaves; NULL when there is none (any more). */
struct event *flight_land(struct flight *f, uint64_t number);
/* The first of the queue leaves; NULL when it is empty. */
struct event *flight_unqueue(struct flight *f);
/* One that was sent before `before_ms` leaves; NULL when there is none. */
struct event *flight_expire(struct flight *f, int64_t before_ms);
/* One that was sent, to the topic if that is not NULL, leaves. */
struct event *flight_take(struct flight *f, const struct slice *topic);
/* When the oldest was sent; CLOCK_NEVER when none is. */
int64_t flight_oldest(const struct flight *f);

#endif
