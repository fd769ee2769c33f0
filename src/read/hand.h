/* Where the workers of one outbox in this process have got to in their walk over entities.
 *
 * They share one hand, and under a backlog they walk one after the other, each from where the last one stopped. Otherwise
 * every worker would walk over what the others have just claimed or deleted, which costs more than finding its own: the
 * index still has entries of deleted rows, and each must be looked up to be known as such. It is a hint and no more: what
 * makes a claim safe is the lock on each entity, and workers of other processes have a hand of their own.
 *
 * Any worker's thread may call. */
#ifndef POSTRIDER_READ_HAND_H
#define POSTRIDER_READ_HAND_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "relay/mailbox.h"

#define HAND_WAITERS_MAX 256

struct hand {
	pthread_mutex_t lock;           /* guards all of it; held for moments */
	char *at;                       /* the last entity looked at; NULL: start at the lowest */
	bool taken;                     /* somebody walks */
	struct mailbox *waiters[HAND_WAITERS_MAX];
	unsigned n_waiters;
	_Atomic int64_t walked_ms;      /* when a walk last found nothing more, or began to look: see read/front.h … */
	_Atomic int64_t walk_took_ms;   /* … how long the last one took, … */
	_Atomic int64_t walks_take_ms;  /* … and how long they take lately: one that had to wait does not count for much */
};

void hand_init(struct hand *h);
void hand_release(struct hand *h);

/* True: nobody else walks now, until hand_pass. False: `me` is woken when that is over. */
bool hand_take(struct hand *h, struct mailbox *me);
/* The walk has ended; those who wait are woken. */
void hand_pass(struct hand *h);

/* A copy, for the caller to free; may be NULL. */
char *hand_at(struct hand *h);
/* Moves the hand. Without having taken it that does nothing while somebody has. */
void hand_move(struct hand *h, const char *at, bool mine);

#endif
