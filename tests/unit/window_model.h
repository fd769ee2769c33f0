/* A small world around a window, and a model of the window written from window.h alone, which says after every step
 * what the window must contain. For test_window_random.c. */
#ifndef POSTRIDER_TESTS_WINDOW_MODEL_H
#define POSTRIDER_TESTS_WINDOW_MODEL_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/backoff.h"
#include "relay/window.h"

enum { STAGES_MAX = 3, ENTITIES_MAX = 90, ROWS_MAX = 8, ENTRIES_MAX = 1024, CALM_AFTER_MS = 400 };

/* --- the world ------------------------------------------------------------------------------------------------ */

enum where {
	IN_LANE,                        /* waiting or ready: the window knows, the model checks */
	SUBMITTED,
	HELD,
	ORPHAN,
	GONE,
};

/* A row as it was claimed once; the same row may be claimed again later. */
struct copy {
	struct event *ev;               /* dangling when GONE */
	struct entity *entity;
	uint32_t index;                 /* of the row in its entity */
	uint32_t stage;
	enum where where;
	bool taken;                     /* by the exchange under way */
	bool went_alone;                /* was to be alone when it was submitted; a sink may ask for it later */
	size_t bytes;
	uint64_t seen_in_list;          /* number of the check that met it */
	struct copy *made_before;
};

struct entity {
	char name[16];
	uint32_t n_rows, n_written, n_settled;          /* rows are written and settled from the front */
	uint32_t n_arrived[STAGES_MAX];                 /* rows that the sink has, likewise from the front */
	int64_t routable_from[ROWS_MAX], accepted_from[ROWS_MAX];
	bool claimed;                                   /* the lock, as the server knows it */
	int64_t retry_at;
	uint32_t retry_row, attempts;
	uint32_t failures_unread[STAGES_MAX];           /* failed at the sink and not seen by the worker yet */
	struct copy *lane[ROWS_MAX];
	uint32_t n_lane;
	struct copy *failed;                            /* where the lane stopped */
	enum window_action action;
	bool visited;
};

/* What a sink has taken. Undecided ones stand in the order in which they came. */
struct entry {
	struct copy *copy;
	bool decided, ok;
	enum error_kind kind;
	int64_t due;
};

/* A request that was given up for lost and arrives after all. */
struct ghost {
	struct entity *entity;
	uint32_t index, stage;
	int64_t due;
};

struct fake_sink {
	bool keeps_order;
	bool takes_while_failing;       /* and fails what stands behind the failure; others take nothing meanwhile */
	bool reports_in_order;
	int64_t away_until;
	uint32_t failures_unread;
	struct entry entries[ENTRIES_MAX];
	uint32_t n_entries;
};

struct mail {
	struct copy *copy;
	uint32_t stage;
	bool ok;
	enum error_kind kind;
};

struct fake_exchange {
	bool under_way, claims;
	int64_t due;
	struct event_list done, held;
};

struct world {
	uint64_t seed, random;
	uint64_t step;
	int64_t now;
	bool traced;
	struct {
		uint32_t fail, lose, refuse_settle, unroutable, unaccepted, away, read_ahead, alone;
	} percent;

	struct window w;
	uint32_t n_stages;
	struct fake_sink sinks[STAGES_MAX];
	struct entity entities[ENTITIES_MAX];
	uint32_t n_entities, rows_per_entity_claim;
	struct mail mail[ENTRIES_MAX];
	uint32_t n_mail;
	struct ghost ghosts[ENTRIES_MAX];
	uint32_t n_ghosts;
	struct fake_exchange x;
	uint32_t one_by_one;

	uint32_t orphans;
	size_t orphan_bytes;
	bool touched;                   /* the window, since the last check */
	uint64_t checks;
	struct copy *made_last;
};

/* What the parent reads when the child is dead. */
static struct shared {
	uint64_t seed, step;
	char message[512];
} *shared;

static _printf_(2, 3) _Noreturn void broken(struct world *w, const char *fmt, ...)
{
	va_list args;

	shared->step = w->step;
	va_start(args, fmt);
	vsnprintf(shared->message, sizeof(shared->message), fmt, args);
	va_end(args);
	fflush(stdout);
	_exit(1);
}

static _printf_(2, 3) void trace(const struct world *w, const char *fmt, ...)
{
	va_list args;

	if (!w->traced)
		return;
	printf("%6lld ", (long long)w->now);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
}

static uint32_t below(struct world *w, uint32_t n)
{
	return (uint32_t)(random_next(&w->random) % n);
}

static bool calm(const struct world *w)
{
	return w->now >= CALM_AFTER_MS;
}

/* Mishaps end at some time, so that everything must arrive in the end. */
static bool mishap(struct world *w, uint32_t percent)
{
	return below(w, 100) < percent && !calm(w);
}

static struct copy *copy_of(const struct event *ev)
{
	return (struct copy *)(uintptr_t)ev->address.ptr;
}

/* --- the model ------------------------------------------------------------------------------------------------ */

static void gone(struct copy *c)
{
	c->where = GONE;
	c->ev = NULL;
}

static bool anything_submitted(const struct entity *e)
{
	for (uint32_t i = 0; i < e->n_lane; i++)
		if (e->lane[i]->where == SUBMITTED)
			return true;
	return false;
}

static uint32_t place_of(const struct entity *e, const struct copy *c)
{
	uint32_t i = 0;

	while (e->lane[i] != c)
		i++;
	return i;
}

/* The last outcome is in: the lane is sent again from the failed row on, or the failed row and all behind it leave. */
static void model_resolve(struct entity *e)
{
	uint32_t place;

	if (!e->failed || anything_submitted(e))
		return;
	place = place_of(e, e->failed);
	if (e->action == WINDOW_RESEND) {
		for (uint32_t i = place; i < e->n_lane && e->lane[i]->where != HELD; i++)
			e->lane[i]->stage = MIN(e->lane[i]->stage, e->failed->stage);
	} else {
		e->failed->where = HELD;
		for (uint32_t i = place + 1; i < e->n_lane; i++)
			gone(e->lane[i]);
		e->n_lane = place + 1;
	}
	e->failed = NULL;
}

static void model_stop(struct copy *c, enum window_action action)
{
	struct entity *e = c->entity;

	if (e->failed && e->failed->index < c->index)
		return;
	e->failed = c;
	e->action = action;
}

/* True when that was all: nobody waits for the outcome of an orphan. */
static bool model_orphan_ends(struct world *w, struct copy *c)
{
	if (c->where != ORPHAN)
		return false;
	w->orphans--;
	w->orphan_bytes -= c->bytes;
	gone(c);
	return true;
}

static void model_passed(struct world *w, struct copy *c)
{
	if (model_orphan_ends(w, c))
		return;
	c->where = IN_LANE;
	if (!c->entity->failed || c->index < c->entity->failed->index)
		c->stage++;
	model_resolve(c->entity);
}

static void model_failed(struct world *w, struct copy *c, enum window_action action)
{
	if (model_orphan_ends(w, c))
		return;
	c->where = IN_LANE;
	model_stop(c, action);
	model_resolve(c->entity);
}

static void model_refused(struct copy *c)
{
	model_stop(c, WINDOW_HOLD);
	model_resolve(c->entity);
}

static void model_done(struct world *w, struct copy *c)
{
	struct entity *e = c->entity;

	if (e->lane[0] != c)
		broken(w, "%s/%u leaves the window before the rows ahead of it", e->name, c->index);
	memmove(e->lane, e->lane + 1, --e->n_lane * sizeof(e->lane[0]));
	gone(c);
}

static void model_abandon(struct world *w)
{
	for (uint32_t i = 0; i < w->n_entities; i++) {
		struct entity *e = &w->entities[i];

		for (uint32_t k = 0; k < e->n_lane; k++) {
			struct copy *c = e->lane[k];

			if (c->where != SUBMITTED) {
				gone(c);
				continue;
			}
			c->where = ORPHAN;
			w->orphans++;
			w->orphan_bytes += c->bytes;
		}
		e->n_lane = 0;
		e->failed = NULL;
		e->claimed = false;
	}
}

/* --- what must be so after every step ------------------------------------------------------------------------- */

static void note_in_list(struct world *w, const struct event *ev, enum event_state state, const char *list)
{
	struct copy *c = copy_of(ev);

	if (c->seen_in_list == w->checks)
		broken(w, "%s/%u is in two lists", c->entity->name, c->index);
	c->seen_in_list = w->checks;
	if (c->ev != ev || c->taken || ev->state != state)
		broken(w, "%s/%u is in the list %s and should not be", c->entity->name, c->index, list);
}

static void check_list(struct world *w, const struct event_list *l, enum event_state state, const char *name)
{
	const struct event *last = NULL;
	uint32_t n = 0;

	for (const struct event *ev = l->first; ev; ev = ev->next, n++) {
		note_in_list(w, ev, state, name);
		last = ev;
	}
	if (n != l->count || last != l->last)
		broken(w, "the list %s has %u rows and says %u", name, n, l->count);
}

static void check_stage(struct world *w, const struct entity *e, uint32_t stage)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < e->n_lane; i++) {
		const struct copy *c = e->lane[i];
		bool expected;

		if (c->where == HELD || c->stage < stage)
			return;
		if (c->stage > stage)
			continue;
		expected = at == 0 || w->sinks[stage].keeps_order;
		if (c->where != SUBMITTED && (c->ev->state == EVENT_READY) != expected)
			broken(w, "%s/%u is %sready for sink %u", e->name, c->index, expected ? "not " : "", stage);
		if (!expected)
			return;
		at++;
	}
}

static bool has_lonely_rows(const struct entity *e)
{
	for (uint32_t i = 0; i < e->n_lane; i++)
		if (e->lane[i]->ev->alone)
			return true;
	return false;
}

/* In its list, or taken from it. */
static bool is_out(const struct world *w, const struct copy *c)
{
	return c->taken || c->seen_in_list == w->checks;
}

static void check_row(struct world *w, const struct copy *c, bool all_ahead_delivered)
{
	const struct event *ev = c->ev;
	bool through = c->where == IN_LANE && c->stage == w->n_stages && all_ahead_delivered;
	bool stopped = c->entity->failed != NULL;

	if ((c->where == SUBMITTED) != (ev->state == EVENT_SUBMITTED))
		broken(w, "%s/%u has state %u and the sink %s it", c->entity->name, c->index, ev->state,
		       c->where == SUBMITTED ? "has" : "lacks");
	if (ev->state == EVENT_READY && (stopped || c->seen_in_list != w->checks || ev->stage != c->stage))
		broken(w, "%s/%u must not be ready", c->entity->name, c->index);
	if (ev->state == EVENT_DELIVERED && (!through || !is_out(w, c)))
		broken(w, "%s/%u must not be delivered", c->entity->name, c->index);
	if (through && !stopped && ev->state != EVENT_DELIVERED)
		broken(w, "%s/%u is not delivered", c->entity->name, c->index);
	if ((c->where == HELD) != (ev->state == EVENT_HELD))
		broken(w, "%s/%u must %sbe held", c->entity->name, c->index, c->where == HELD ? "" : "not ");
	if (c->where != HELD)
		return;
	if (!ev->failure)
		broken(w, "%s/%u is held without a reason", c->entity->name, c->index);
	if (!stopped && is_out(w, c) != all_ahead_delivered)
		broken(w, "%s/%u is to be recorded too early or too late", c->entity->name, c->index);
}

static void check_lane(struct world *w, const struct entity *e)
{
	bool all_ahead_delivered = true;

	for (uint32_t i = 0; i < e->n_lane; i++) {
		check_row(w, e->lane[i], all_ahead_delivered);
		all_ahead_delivered &= e->lane[i]->where == IN_LANE && e->lane[i]->stage == w->n_stages;
	}
	/* A row that must be alone has rules of its own, checked when it is submitted. */
	for (uint32_t stage = 0; stage < w->n_stages && !e->failed && !has_lonely_rows(e); stage++)
		check_stage(w, e, stage);
}

static void visit(void *arg, struct slice name)
{
	struct world *w = arg;

	for (uint32_t i = 0; i < w->n_entities; i++) {
		struct entity *e = &w->entities[i];

		if (!slice_is(name, e->name))
			continue;
		if (e->visited)
			broken(w, "entity %s has two lanes", e->name);
		e->visited = true;
		return;
	}
	broken(w, "a lane of an entity that does not exist");
}

static void check_lanes_named(struct world *w)
{
	for (uint32_t i = 0; i < w->n_entities; i++)
		w->entities[i].visited = false;
	window_each_lane(&w->w, visit, w);
	for (uint32_t i = 0; i < w->n_entities; i++) {
		const struct entity *e = &w->entities[i];
		bool ours = e->n_lane > 0 && !e->lane[e->n_lane - 1]->taken;

		if (e->visited != ours)
			broken(w, "entity %s is %s", e->name, ours ? "not named as ours" : "named as ours and is not");
	}
}

static void check(struct world *w)
{
	uint32_t rows = w->orphans, lanes = 0;
	size_t bytes = w->orphan_bytes;

	w->checks++;
	for (uint32_t stage = 0; stage < w->n_stages; stage++)
		check_list(w, &w->w.ready[stage], EVENT_READY, "ready");
	check_list(w, &w->w.delivered, EVENT_DELIVERED, "delivered");
	check_list(w, &w->w.held, EVENT_HELD, "held");
	for (uint32_t i = 0; i < w->n_entities; i++) {
		const struct entity *e = &w->entities[i];

		check_lane(w, e);
		lanes += e->n_lane > 0;
		rows += e->n_lane;
		for (uint32_t k = 0; k < e->n_lane; k++)
			bytes += e->lane[k]->bytes;
	}
	if (w->w.rows != rows || w->w.bytes != bytes || w->w.orphans != w->orphans || w->w.n_lanes != lanes)
		broken(w, "the window counts %u rows, %zu bytes, %u orphans, %u lanes; there are %u, %zu, %u, %u",
		       w->w.rows, w->w.bytes, w->w.orphans, w->w.n_lanes, rows, bytes, w->orphans, lanes);
	check_lanes_named(w);
}

#endif
