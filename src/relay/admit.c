#include "relay/admit.h"

#include <stdio.h>

#include "relay/batch.h"
#include "relay/field.h"

static void note_attempts(struct event *ev, const struct answer *a)
{
	for (uint32_t i = 0; i < a->n_retries; i++) {
		if (!slice_equal(ev->lane_key, a->retries[i].entity))
			continue;
		ev->retried = true;
		if (slice_equal(ev->id, a->retries[i].row_id))
			ev->attempt = a->retries[i].attempts;
		ev->alone = ev->attempt > 0;
	}
}

/* One row of the claim: its message, or the reason why there is none. */
static bool fill_event(const struct admission *to, struct batch *b, uint32_t i, const struct answer *a)
{
	struct event *ev = &b->events[i];
	struct error err = { 0 };
	int row = batch_row(b, i), n_fields = PQnfields(b->rows);
	bool routed = route_row(to->route, b, i, &err);

	ev->raw_entity = field_raw(b->rows, row, FIELD_ENTITY);
	ev->raw_id = field_raw(b->rows, row, FIELD_ID);
	ev->address = field_raw(b->rows, row, n_fields - 1);
	if (to->driver->reads_ahead)
		ev->part = field_int4(b->rows, row, n_fields - 2);
	ev->lane_key = to->keeps_order ? ev->entity : ev->id;
	ev->outcomes = to->outcomes;
	note_attempts(ev, a);
	if (routed)
		return true;
	ev->failure = error_copy(&err);
	return false;
}

/* "node/worker/session.claim" */
static void sign(const struct admission *to, struct batch *b)
{
	char text[160];
	int len = snprintf(text, sizeof(text), "%.100s/%u/%u.%llu", to->node, to->worker, to->session,
			   (unsigned long long)b->claim);

	b->relay = arena_copy(&b->arena, (struct slice){ text, (size_t)len });
}

uint32_t answer_rows(const struct answer *a)
{
	if (a->shared)
		return a->n_picks;
	return a->rows ? (uint32_t)PQntuples(a->rows) : 0;
}

static struct batch *batch_of(const struct admission *to, const struct answer *a)
{
	struct batch *b = batch_new(a->rows, answer_rows(a));

	b->claim = a->claim;
	b->shared = a->shared;
	b->picks = a->picks;
	if (route_wants_relay(to->route))
		sign(to, b);
	return b;
}

uint32_t admit_rows(const struct admission *to, const struct answer *a, struct window *w)
{
	struct batch *b = batch_of(to, a);
	uint32_t admitted = 0;
	bool refused = false;

	b->live++;      /* so that it outlives rows that are passed over */
	for (uint32_t i = 0; i < b->count; i++) {
		bool routed = fill_event(to, b, i, a);

		if (to->driver->reads_ahead && !window_takes(w, &b->events[i], a->again)) {
			batch_release_event(&b->events[i]);
			continue;
		}
		refused |= !routed;
		admitted++;
		window_admit(w, &b->events[i]);
	}
	/* Only when all rows are in: what stands behind a refused row leaves with it, its own failure forgotten. The refused
	 * row itself stays until it is recorded, and with it the batch. */
	for (uint32_t i = 0; refused && i < b->count; i++)
		if (b->events[i].failure)
			window_refused(w, &b->events[i]);
	batch_release(b);
	return admitted;
}
