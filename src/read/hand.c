#include "read/hand.h"

#include <stdlib.h>

#include "base/mem.h"

void hand_init(struct hand *h)
{
	*h = (struct hand){ 0 };
	pthread_mutex_init(&h->lock, NULL);
}

void hand_release(struct hand *h)
{
	pthread_mutex_destroy(&h->lock);
	free(h->at);
}

static void wait_in_row(struct hand *h, struct mailbox *me)
{
	for (unsigned i = 0; i < h->n_waiters; i++)
		if (h->waiters[i] == me)
			return;
	if (h->n_waiters < HAND_WAITERS_MAX)
		h->waiters[h->n_waiters++] = me;
}

bool hand_take(struct hand *h, struct mailbox *me)
{
	bool mine;

	pthread_mutex_lock(&h->lock);
	mine = !h->taken;
	h->taken = true;
	if (!mine)
		wait_in_row(h, me);
	pthread_mutex_unlock(&h->lock);
	return mine;
}

/* All are woken: the first may have found something else to do meanwhile, and nobody would wake the second. */
void hand_pass(struct hand *h)
{
	pthread_mutex_lock(&h->lock);
	h->taken = false;
	for (unsigned i = 0; i < h->n_waiters; i++)
		mailbox_wake(h->waiters[i]);
	h->n_waiters = 0;
	pthread_mutex_unlock(&h->lock);
}

char *hand_at(struct hand *h)
{
	char *at;

	pthread_mutex_lock(&h->lock);
	at = mem_strdup(h->at);
	pthread_mutex_unlock(&h->lock);
	return at;
}

void hand_move(struct hand *h, const char *at, bool mine)
{
	pthread_mutex_lock(&h->lock);
	if (mine || !h->taken) {
		free(h->at);
		h->at = mem_strdup(at);
	}
	pthread_mutex_unlock(&h->lock);
}
