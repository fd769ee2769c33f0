#include "relay/window.h"

#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "relay/batch.h"

/* --- lists ---------------------------------------------------------------------------------------------------- */

static void list_push(struct event_list *l, struct event *ev)
{
	ev->next = NULL;
	if (l->last)
		l->last->next = ev;
	else
		l->first = ev;
	l->last = ev;
	l->count++;
}

static struct event *list_pop(struct event_list *l)
{
	struct event *ev = l->first;

	l->first = ev->next;
	if (!l->first)
		l->last = NULL;
	l->count--;
	ev->next = NULL;
	return ev;
}

/* Removes the rows of one lane: a walk over the list, but only after a failure. */
static void list_remove_lane(struct event_list *l, const struct lane *lane)
{
	struct event_list kept = { 0 };

	while (l->first) {
		struct event *ev = list_pop(l);

		if (ev->lane == lane)
			ev->state = EVENT_WAITING;
		else
			list_push(&kept, ev);
	}
	*l = kept;
}

struct event_list window_take(struct event_list *from, uint32_t max)
{
	struct event_list taken = { 0 };

	while (taken.count < max && from->first) {
		from->first->settling = true;
		list_push(&taken, list_pop(from));
	}
	return taken;
}

static void list_prepend(struct event_list *to, struct event_list back)
{
	if (!back.first)
		return;
	back.last->next = to->first;
	if (!to->first)
		to->last = back.last;
	to->first = back.first;
	to->count += back.count;
}

void window_return(struct event_list *to, struct event_list back)
{
	for (struct event *ev = back.first; ev; ev = ev->next)
		ev->settling = false;
	list_prepend(to, back);
}

/* --- lanes by their key ------------------------------------------------------------------------------------------ */

static void rehash(struct window *w, uint32_t n_buckets)
{
	struct lane **buckets = mem_new_array(struct lane *, n_buckets);

	for (uint32_t i = 0; i < w->n_buckets; i++) {
		for (struct lane *l = w->buckets[i], *next; l; l = next) {
			next = l->hash_next;
			l->hash_next = buckets[l->hash & (n_buckets - 1)];
			buckets[l->hash & (n_buckets - 1)] = l;
		}
	}
	free(w->buckets);
	w->buckets = buckets;
	w->n_buckets = n_buckets;
}

static struct lane *find_lane(const struct window *w, struct slice key, uint64_t hash)
{
	struct lane *l = w->buckets[hash & (w->n_buckets - 1)];

	while (l && (l->hash != hash || !slice_equal(l->first->lane_key, key)))
		l = l->hash_next;
	return l;
}

static struct lane *lane_of(struct window *w, struct slice key)
{
	uint64_t hash = hash_bytes(0, key);
	struct lane *l = find_lane(w, key, hash);

	if (l)
		return l;
	if (w->n_lanes >= w->n_buckets)
		rehash(w, w->n_buckets * 2);
	l = mem_new(struct lane);
	l->hash = hash;
	l->hash_next = w->buckets[hash & (w->n_buckets - 1)];
	w->buckets[hash & (w->n_buckets - 1)] = l;
	w->n_lanes++;
	return l;
}

static void lane_free(struct window *w, struct lane *l)
{
	struct lane **p = &w->buckets[l->hash & (w->n_buckets - 1)];

	while (*p != l)
		p = &(*p)->hash_next;
	*p = l->hash_next;
	w->n_lanes--;
	free(l);
}

void window_each_event(const struct window *w, void (*visit)(void *arg, const struct event *ev), void *arg)
{
	for (uint32_t i = 0; i < w->n_buckets; i++)
		for (struct lane *l = w->buckets[i]; l; l = l->hash_next)
			for (struct event *ev = l->first; ev; ev = ev->behind)
				visit(arg, ev);
}

void window_each_lane(const struct window *w, void (*visit)(void *arg, struct slice lane_key), void *arg)
{
	for (uint32_t i = 0; i < w->n_buckets; i++)
		for (struct lane *l = w->buckets[i]; l; l = l->hash_next)
			if (!l->last->settling)
				visit(arg, l->first->lane_key);
}

/* --- movement inside a lane ----------------------------------------------------------------------------------- */

static bool may_enter(const struct window *w, const struct lane *l, uint32_t stage, const struct event *ev)
{
	if (l->alone)
		return false;
	return l->at[stage] == 0 || (w->keeps_order[stage] && !ev->alone && (!ev->elsewhere || w->one_stream[stage]));
}

static void enter(struct window *w, struct lane *l, uint32_t stage)
{
	for (struct event *ev; (ev = l->turn[stage]) != NULL; l->turn[stage] = ev->behind) {
		/* It has been there: acknowledged before the row ahead of it, which failed and goes again. */
		if (ev->stage > stage && ev->state != EVENT_HELD)
			continue;
		if (ev->state != EVENT_WAITING || ev->stage != stage || !may_enter(w, l, stage, ev))
			return;
		ev->state = EVENT_READY;
		l->at[stage]++;
		l->alone = ev->alone;
		list_push(&w->ready[stage], ev);
	}
}

static void deliver(struct window *w, struct lane *l)
{
	for (struct event *ev; (ev = l->turn[w->n_stages]) != NULL; l->turn[w->n_stages] = ev->behind) {
		if (ev->state == EVENT_HELD) {
			list_push(&w->held, ev);
		} else if (ev->state == EVENT_WAITING && ev->stage == w->n_stages) {
			ev->state = EVENT_DELIVERED;
			list_push(&w->delivered, ev);
		} else {
			return;
		}
	}
}

static void advance(struct window *w, struct lane *l)
{
	if (l->failed)
		return;
	for (uint32_t stage = 0; stage < w->n_stages; stage++)
		enter(w, l, stage);
	deliver(w, l);
}

static void leave(struct window *w, struct event *ev)
{
	w->n_stopped -= ev->state == EVENT_HELD;
	w->rows--;
	w->bytes -= event_bytes(ev);
	batch_release_event(ev);
}

/* --- failure -------------------------------------------------------------------------------------------------- */

static void send_again_from(struct event *failed)
{
	/* A row that is held already stays so, with its reason. */
	for (struct event *ev = failed; ev && ev->state != EVENT_HELD; ev = ev->behind) {
		ev->stage = MIN(ev->stage, failed->stage);
		free(ev->failure);
		ev->failure = NULL;
	}
}

static void hold_from(struct window *w, struct lane *l, struct event *failed)
{
	struct event *behind = failed->behind;

	w->n_stopped += failed->state != EVENT_HELD;
	failed->state = EVENT_HELD;
	failed->behind = NULL;
	l->last = failed;
	while (behind) {
		struct event *ev = behind;

		behind = ev->behind;
		leave(w, ev);
	}
}

/* All outcomes are in: now the lane may change. */
static void resolve_failure(struct window *w, struct lane *l)
{
	if (l->action == WINDOW_RESEND)
		send_again_from(l->failed);
	else
		hold_from(w, l, l->failed);
	l->failed = NULL;
	w->n_stopped--;
	for (uint32_t stage = 0; stage <= w->n_stages; stage++) {
		struct event *ev = l->first;

		while (ev && (ev->state == EVENT_DELIVERED || (ev->state == EVENT_WAITING && ev->stage > stage)))
			ev = ev->behind;
		l->turn[stage] = ev;
	}
	advance(w, l);
}

static void stop_lane(struct window *w, struct lane *l, struct event *ev, enum window_action action)
{
	if (!l->failed) {
		w->n_stopped++;
		for (uint32_t stage = 0; stage < w->n_stages; stage++) {
			/* Only when there is something to call back: the walk is over everybody's rows. */
			if (l->at[stage] > 0)
				list_remove_lane(&w->ready[stage], l);
			l->at[stage] = 0;
		}
		l->alone = false;
	} else if (l->failed->place < ev->place) {
		return;
	}
	l->failed = ev;
	l->action = action;
}

/* --- outcomes ------------------------------------------------------------------------------------------------- */

void window_passed(struct window *w, struct event *ev)
{
	struct lane *l = ev->lane;

	if (ev->state == EVENT_ORPHANED) {
		w->orphans--;
		leave(w, ev);
		return;
	}
	assert(ev->state == EVENT_SUBMITTED);
	l->submitted--;
	ev->state = EVENT_WAITING;
	if (l->failed) {
		if (ev->place < l->failed->place)
			ev->stage++;
		if (l->submitted == 0)
			resolve_failure(w, l);
		return;
	}
	l->at[ev->stage]--;
	if (ev->alone)
		l->alone = false;
	ev->stage++;
	advance(w, l);
}

void window_failed(struct window *w, struct event *ev, enum window_action action)
{
	struct lane *l = ev->lane;

	if (ev->state == EVENT_ORPHANED) {
		window_passed(w, ev);
		return;
	}
	assert(ev->state == EVENT_SUBMITTED);
	l->submitted--;
	ev->state = EVENT_WAITING;
	stop_lane(w, l, ev, action);
	if (l->submitted == 0)
		resolve_failure(w, l);
}

void window_refused(struct window *w, struct event *ev)
{
	struct lane *l = ev->lane;
	bool was_held = l->last->state == EVENT_HELD;

	assert(ev->state != EVENT_SUBMITTED && ev->state != EVENT_ORPHANED);
	/* What is ahead of it is delivered again at once; what is behind it leaves, a row that was held before included. */
	list_remove_lane(&w->delivered, l);
	list_remove_lane(&w->held, l);
	w->n_stopped -= was_held && l->last->state != EVENT_HELD;
	stop_lane(w, l, ev, WINDOW_HOLD);
	if (l->submitted == 0)
		resolve_failure(w, l);
}

/* --- in and out ----------------------------------------------------------------------------------------------- */

void window_init(struct window *w, uint32_t n_stages, const bool keeps_order[])
{
	assert(n_stages >= 1 && n_stages <= WINDOW_STAGES_MAX);
	*w = (struct window){ .n_stages = n_stages };
	for (uint32_t i = 0; i < n_stages; i++)
		w->keeps_order[i] = keeps_order[i];
	rehash(w, 64);
}

void window_release(struct window *w)
{
	assert(w->rows == 0);
	free(w->buckets);
	*w = (struct window){ 0 };
}

bool window_takes(const struct window *w, const struct event *ev, bool again)
{
	const struct lane *l;

	if (!again && w->n_stopped == 0)
		return true;
	l = find_lane(w, ev->lane_key, hash_bytes(0, ev->lane_key));
	if (!l)
		return true;
	if (l->last->state == EVENT_HELD || (l->failed && l->action == WINDOW_HOLD))
		return false;
	for (const struct event *here = again ? l->first : NULL; here; here = here->behind)
		if (slice_equal(here->id, ev->id))
			return false;
	return true;
}

/* No key is not the same as an empty one. */
static bool goes_the_same_way(const struct event *a, const struct event *b)
{
	return slice_equal(a->topic, b->topic) && slice_equal(a->key, b->key) && !a->key.ptr == !b->key.ptr;
}

void window_admit(struct window *w, struct event *ev)
{
	struct lane *l = lane_of(w, ev->lane_key);

	ev->elsewhere = l->last && !goes_the_same_way(l->last, ev);
	ev->lane = l;
	ev->place = l->next_place++;
	ev->state = EVENT_WAITING;
	ev->stage = 0;
	ev->behind = NULL;
	if (l->last)
		l->last->behind = ev;
	else
		l->first = ev;
	l->last = ev;
	for (uint32_t stage = 0; stage <= w->n_stages; stage++)
		if (!l->turn[stage])
			l->turn[stage] = ev;
	w->rows++;
	w->bytes += event_bytes(ev);
	advance(w, l);
}

uint32_t window_submit(struct window *w, uint32_t stage, struct event *events[], uint32_t max)
{
	uint32_t n = 0;

	while (n < max && w->ready[stage].first) {
		struct event *ev = list_pop(&w->ready[stage]);

		ev->state = EVENT_SUBMITTED;
		ev->lane->submitted++;
		events[n++] = ev;
	}
	return n;
}

void window_unsubmit(struct window *w, uint32_t stage, struct event *const events[], uint32_t n)
{
	struct event_list back = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		events[i]->state = EVENT_READY;
		events[i]->lane->submitted--;
		list_push(&back, events[i]);
	}
	list_prepend(&w->ready[stage], back);
}

bool window_ends_lane(const struct event *ev)
{
	return ev->behind == NULL;
}

void window_done(struct window *w, struct event *ev)
{
	struct lane *l = ev->lane;

	assert(ev == l->first && (ev->state == EVENT_DELIVERED || !ev->behind));
	l->first = ev->behind;
	if (!l->first)
		lane_free(w, l);
	leave(w, ev);
}

void window_abandon(struct window *w)
{
	for (uint32_t i = 0; i < w->n_buckets; i++) {
		for (struct lane *l = w->buckets[i], *next_lane; l; l = next_lane) {
			next_lane = l->hash_next;
			for (struct event *ev = l->first, *behind; ev; ev = behind) {
				behind = ev->behind;
				if (ev->state == EVENT_SUBMITTED) {
					ev->state = EVENT_ORPHANED;
					ev->lane = NULL;
					w->orphans++;
				} else {
					leave(w, ev);
				}
			}
			free(l);
		}
		w->buckets[i] = NULL;
	}
	w->n_lanes = w->n_stopped = 0;
	for (uint32_t stage = 0; stage < w->n_stages; stage++)
		w->ready[stage] = (struct event_list){ 0 };
	w->delivered = w->held = (struct event_list){ 0 };
}
