/* Where a worker's outcomes arrive: many senders (sinks' threads), one receiver (the worker), no lock.
 *
 * Senders push chains of events on a stack with one compare-and-swap; the receiver takes the whole stack and turns it
 * around, so events come out in the order in which they were posted. The file descriptor is readable while something
 * waits; others may use it to wake the worker too (mailbox_wake). */
#ifndef POSTRIDER_RELAY_MAILBOX_H
#define POSTRIDER_RELAY_MAILBOX_H

#include <stdatomic.h>

#include "relay/event.h"

struct mailbox {
	_Atomic(struct event *) newest;
	int fd;                         /* eventfd */
};

void mailbox_init(struct mailbox *m);
void mailbox_release(struct mailbox *m);
void mailbox_post(struct mailbox *m, struct event *ev);
/* A chain linked by `next` from the newest event to the oldest. */
void mailbox_post_chain(struct mailbox *m, struct event *newest, struct event *oldest);
void mailbox_wake(struct mailbox *m);
/* Oldest first, linked by `next`; NULL when empty. Makes the descriptor quiet. */
struct event *mailbox_take(struct mailbox *m);

#endif
