#include "read/channel.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "relay/field.h"

void channel_init(struct channel *c)
{
	*c = (struct channel){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	if (c->fd < 0)
		abort();        /* out of descriptors at start */
	settle_init(&c->settle, false);
}

void channel_release(struct channel *c)
{
	channel_empty(c);
	settle_release(&c->settle);
	free(c->retries);
	close(c->fd);
}

static void helping_free(struct helping *h)
{
	shared_rows_release(h->rows);
	free(h->picks);
	free(h->retries);
	free(h);
}

void channel_empty(struct channel *c)
{
	while (c->first) {
		struct helping *next = c->first->next;

		helping_free(c->first);
		c->first = next;
	}
	c->last = NULL;
	c->queued = c->n_again = 0;
	recent_release(&c->recent);
	if (c->answer.shared)
		shared_rows_release(c->answer.shared);
	free(c->answer.picks);
	c->answer = (struct answer){ 0 };
}

void channel_wake(const struct channel *c)
{
	ssize_t ignored _unused_ = write(c->fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void channel_enqueue(struct channel *c, struct helping *h)
{
	if (c->last)
		c->last->next = h;
	else
		c->first = h;
	c->last = h;
	c->queued += h->n_picks;
	c->n_again += h->again;
}

void channel_note_settled(struct channel *c, uint64_t round)
{
	if (!c->first)
		return;
	recent_forget(&c->recent, c->first->round);
	for (uint32_t i = 0; c->n_again > 0 && i < c->exchange.n_done; i++)
		recent_note(&c->recent, RECENT_ROW, c->exchange.done[i]->raw_id, round);
	for (uint32_t i = 0; i < c->exchange.n_holds; i++)
		recent_note(&c->recent, RECENT_ENTITY, c->exchange.holds[i].event->raw_entity, round);
}

/* A page waits in its queue while other rounds go on: rows that were settled since may be in it a second time, and rows of
 * entities that are held back since must not go ahead of the one that is. */
static void leave_out_stale(struct channel *c, struct helping *h)
{
	uint32_t kept = 0;

	if (c->recent.used == 0)
		return;
	for (uint32_t i = 0; i < h->n_picks; i++) {
		int row = (int)h->picks[i];

		if (h->again && recent_since(&c->recent, RECENT_ROW, field_raw(h->rows->rows, row, FIELD_ID), h->round))
			continue;
		if (recent_since(&c->recent, RECENT_ENTITY, field_raw(h->rows->rows, row, FIELD_ENTITY), h->round))
			continue;
		h->picks[kept++] = h->picks[i];
	}
	h->n_picks = kept;
}

static struct helping *dequeue(struct channel *c)
{
	struct helping *h = c->first;

	if (!h)
		return NULL;
	c->first = h->next;
	if (!c->first)
		c->last = NULL;
	c->queued -= h->n_picks;
	c->n_again -= h->again;
	leave_out_stale(c, h);
	recent_forget(&c->recent, c->first ? c->first->round : UINT64_MAX);
	return h;
}

/* Puts the first page of the queue that still has rows for it into the answer. The retries of a page are few: each worker
 * gets them all. */
void channel_serve(struct channel *c)
{
	struct helping *h = NULL;

	while (c->exchange.want_rows > 0 && (h = dequeue(c)) && h->n_picks == 0)
		helping_free(h);
	c->answer.exhausted = c->first == NULL;
	if (!h)
		return;
	c->answer.rows = h->rows->rows;
	c->answer.shared = h->rows;
	c->answer.picks = h->picks;
	c->answer.n_picks = h->n_picks;
	c->in_flight += h->n_picks;
	c->answer.again = h->again;
	c->answer.retries = h->retries;
	c->answer.n_retries = h->n_retries;
	/* They point into the rows, and are read before the next exchange begins. */
	free(c->retries);
	c->retries = h->retries;
	free(h);
}
