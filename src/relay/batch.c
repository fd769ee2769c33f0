#include "relay/batch.h"

#include <stdlib.h>

#include "base/mem.h"

struct batch *batch_new(PGresult *rows, uint32_t count)
{
	struct batch *b = mem_new(struct batch);

	b->rows = rows;
	arena_init(&b->arena);
	b->events = arena_alloc(&b->arena, sizeof(struct event) * count);
	b->count = b->live = count;
	for (uint32_t i = 0; i < count; i++)
		b->events[i].batch = b;
	return b;
}

void shared_rows_release(struct shared_rows *s)
{
	if (atomic_fetch_sub(&s->users, 1) > 1)
		return;
	PQclear(s->rows);
	free(s);
}

void batch_free(struct batch *b)
{
	if (!b)
		return;
	if (b->shared)
		shared_rows_release(b->shared);
	else
		PQclear(b->rows);
	free(b->picks);
	arena_release(&b->arena);
	free(b);
}

void batch_release(struct batch *b)
{
	if (--b->live == 0)
		batch_free(b);
}

void batch_release_event(struct event *ev)
{
	free(ev->failure);
	free(ev->reason);
	ev->failure = ev->reason = NULL;
	batch_release(ev->batch);
}
