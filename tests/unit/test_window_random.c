/* The window under random schedules. Each seed makes a small world: a table, sinks that delay, fail and lose answers, and
 * a reader that settles, holds back, is refused and loses its connection. A model written from window.h alone says after
 * every step what the window must contain. When something is wrong the seed is named, and
 *
 *     POSTRIDER_TEST_SEED=<seed> test_window_random
 *
 * runs that schedule again and prints each step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/backoff.h"
#include "base/mem.h"
#include "relay/batch.h"
#include "relay/verdict.h"
#include "relay/window.h"

enum { SEEDS = 4000, SECONDS_MAX = 60 };
enum { STAGES_MAX = 3, ENTITIES_MAX = 90, ROWS_MAX = 8, ENTRIES_MAX = 1024, STEPS_MAX = 20000, CALM_AFTER_MS = 400 };

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
	char name[8];
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
	bool takes_while_failing;       /* and fails what stands behind a failure itself; others take nothing meanwhile */
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

/* --- what must be so after every step ------------------------------------------------------------------------------- */

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
			broken(w, "%s/%u is %sready for sink %u", c->entity->name, c->index, expected ? "not " : "", stage);
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

/* --- sinks ------------------------------------------------------------------------------------------------------ */

static void arrive(struct world *w, struct entity *e, uint32_t index, uint32_t stage)
{
	trace(w, "%s/%u arrives at sink %u", e->name, index, stage);
	if (index > e->n_arrived[stage])
		broken(w, "%s/%u arrives at sink %u before %s/%u", e->name, index, stage, e->name, e->n_arrived[stage]);
	e->n_arrived[stage] = MAX(e->n_arrived[stage], index + 1);
}

static void post(struct world *w, uint32_t stage, uint32_t number)
{
	struct fake_sink *s = &w->sinks[stage];
	struct entry *entry = &s->entries[number];

	trace(w, "sink %u says of %s/%u: %s", stage, entry->copy->entity->name, entry->copy->index,
	      entry->ok ? "ok" : error_kind_name(entry->kind));
	if (!entry->ok) {
		entry->copy->ev->failure = mem_new(struct error);
		error_set(entry->copy->ev->failure, entry->kind, "refused by sink %u", stage);
	}
	w->mail[w->n_mail++] = (struct mail){ entry->copy, stage, entry->ok, entry->kind };
	memmove(entry, entry + 1, (--s->n_entries - number) * sizeof(*entry));
}

static void decide_failure(struct world *w, uint32_t stage, struct entry *entry, enum error_kind kind)
{
	entry->decided = true;
	entry->ok = false;
	entry->kind = kind;
	w->sinks[stage].failures_unread++;
	entry->copy->entity->failures_unread[stage]++;
	if (kind == ERROR_LOST && below(w, 100) < w->percent.alone)
		entry->copy->ev->alone = true;
}

/* Whether the other side may have it although we hear of a failure. */
static bool is_vague(enum error_kind kind)
{
	return kind == ERROR_LOST || kind == ERROR_TRANSPORT;
}

/* Everything of the entity behind the failed row fails with it, or everything whatsoever. What got through all the same
 * is the first part of it. */
static void fail_in_order(struct world *w, uint32_t stage, uint32_t number)
{
	struct fake_sink *s = &w->sinks[stage];
	const struct entity *e = s->entries[number].copy->entity;
	enum error_kind kind = below(w, ERROR_KIND_COUNT);
	bool fatal = below(w, 4) == 0, got_through = is_vague(kind) && below(w, 2) == 0;

	for (uint32_t i = number; i < s->n_entries; i++) {
		struct entry *entry = &s->entries[i];

		if (entry->decided || (!fatal && entry->copy->entity != e))
			continue;
		if (got_through)
			arrive(w, entry->copy->entity, entry->copy->index, stage);
		got_through &= below(w, 2) == 0;
		decide_failure(w, stage, entry, i == number || below(w, 2) == 0 ? kind : ERROR_LOST);
	}
}

static void decide_in_order(struct world *w, uint32_t stage)
{
	struct fake_sink *s = &w->sinks[stage];
	uint32_t number = 0;

	while (number < s->n_entries && s->entries[number].decided)
		number++;
	if (number == s->n_entries)
		return;
	if (mishap(w, w->percent.fail)) {
		fail_in_order(w, stage, number);
		return;
	}
	arrive(w, s->entries[number].copy->entity, s->entries[number].copy->index, stage);
	s->entries[number].decided = s->entries[number].ok = true;
}

static void decide_alone(struct world *w, uint32_t stage, uint32_t number)
{
	struct entry *entry = &w->sinks[stage].entries[number];
	struct copy *c = entry->copy;
	enum error_kind kind = below(w, ERROR_KIND_COUNT);
	uint32_t fate = below(w, 3);

	if (!mishap(w, w->percent.fail)) {
		arrive(w, c->entity, c->index, stage);
		entry->decided = entry->ok = true;
		return;
	}
	decide_failure(w, stage, entry, kind);
	if (is_vague(kind) && fate == 0)
		arrive(w, c->entity, c->index, stage);
	else if (is_vague(kind) && fate == 1)
		w->ghosts[w->n_ghosts++] = (struct ghost){ c->entity, c->index, stage, w->now + below(w, 40) };
}

static void let_ghosts_arrive(struct world *w)
{
	for (uint32_t i = w->n_ghosts; i-- > 0;) {
		struct ghost g = w->ghosts[i];

		if (g.due > w->now)
			continue;
		w->ghosts[i] = w->ghosts[--w->n_ghosts];
		arrive(w, g.entity, g.index, g.stage);
	}
}

static void sink_works(struct world *w, uint32_t stage)
{
	struct fake_sink *s = &w->sinks[stage];
	uint32_t number;

	let_ghosts_arrive(w);
	if (s->n_entries == 0)
		return;
	if (s->keeps_order) {
		decide_in_order(w, stage);
		number = s->reports_in_order ? 0 : below(w, s->n_entries);
	} else {
		number = below(w, s->n_entries);
		if (s->entries[number].due > w->now)
			return;
		decide_alone(w, stage, number);
	}
	if (s->entries[number].decided && s->entries[number].due <= w->now)
		post(w, stage, number);
}

static uint32_t sink_takes(struct world *w, uint32_t stage, struct event *const events[], uint32_t n)
{
	struct fake_sink *s = &w->sinks[stage];
	uint32_t room = 1 + below(w, 12);

	room = MIN(room, n);
	if (w->now < s->away_until || (s->keeps_order && !s->takes_while_failing && s->failures_unread > 0))
		return 0;
	for (uint32_t i = 0; i < room; i++) {
		struct entry *entry = &s->entries[s->n_entries++];

		*entry = (struct entry){ .copy = copy_of(events[i]), .due = w->now + below(w, 10) };
		if (s->keeps_order && entry->copy->entity->failures_unread[stage] > 0)
			decide_failure(w, stage, entry, ERROR_LOST);
	}
	return room;
}

/* --- the worker -------------------------------------------------------------------------------------------------- */

/* The rows ahead have entered the stage before, and nobody is there who should not be. */
static void check_turn(struct world *w, const struct copy *c, uint32_t stage)
{
	const struct entity *e = c->entity;

	if (c->where != IN_LANE || c->stage != stage || e->failed)
		broken(w, "it is not the turn of %s/%u at sink %u", e->name, c->index, stage);
	for (uint32_t i = 0; i < e->n_lane; i++) {
		const struct copy *other = e->lane[i];
		bool beside = other->where == SUBMITTED && other->stage == stage;

		if (other->index < c->index && other->stage <= stage && !beside)
			broken(w, "%s/%u enters sink %u ahead of %s/%u", e->name, c->index, stage, e->name, other->index);
		if (beside && (!w->sinks[stage].keeps_order || c->ev->alone || other->went_alone))
			broken(w, "%s/%u enters sink %u beside %s/%u", e->name, c->index, stage, e->name, other->index);
	}
}

static void worker_submits(struct world *w, uint32_t stage)
{
	struct event *events[16];
	uint32_t max = 1 + below(w, ARRAY_SIZE(events)), n = window_submit(&w->w, stage, events, max), taken;

	if (n == 0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		check_turn(w, copy_of(events[i]), stage);
		copy_of(events[i])->where = SUBMITTED;
		copy_of(events[i])->went_alone = events[i]->alone;
	}
	taken = sink_takes(w, stage, events, n);
	for (uint32_t i = taken; i < n; i++)
		copy_of(events[i])->where = IN_LANE;
	trace(w, "sink %u takes %u of %u rows from %s/%u on", stage, taken, n, copy_of(events[0])->entity->name,
	      copy_of(events[0])->index);
	window_unsubmit(&w->w, stage, events + taken, n - taken);
}

static void worker_reads_mail(struct world *w)
{
	for (uint32_t i = 0; i < w->n_mail; i++) {
		struct mail *m = &w->mail[i];
		struct event *ev = m->copy->ev;

		trace(w, "the worker hears of %s/%u", m->copy->entity->name, m->copy->index);
		if (m->ok) {
			model_passed(w, m->copy);
			window_passed(&w->w, ev);
			continue;
		}
		w->sinks[m->stage].failures_unread--;
		m->copy->entity->failures_unread[m->stage]--;
		model_failed(w, m->copy, verdict_of(m->kind)->action);
		window_failed(&w->w, ev, verdict_of(m->kind)->action);
	}
	w->n_mail = 0;
}

/* --- the reader: claims ------------------------------------------------------------------------------------------- */

static void fill_event(struct world *w, struct batch *b, struct event *ev, struct entity *e, uint32_t index)
{
	static const char zeros[300];
	struct copy *c = mem_new(struct copy);

	/* In the batch, so that whoever looks after the row has left is caught. */
	ev->entity = arena_copy(&b->arena, slice_of(e->name));
	ev->payload = (struct slice){ zeros, below(w, sizeof(zeros)) };
	ev->address = (struct slice){ (const char *)c, 0 };
	ev->attempt = e->retry_row == index ? e->attempts : 0;
	ev->alone = ev->attempt > 0;
	*c = (struct copy){ .ev = ev, .entity = e, .index = index, .bytes = event_bytes(ev), .made_before = w->made_last };
	w->made_last = c;
	if (w->now >= e->routable_from[index])
		return;
	ev->failure = mem_new(struct error);
	error_set(ev->failure, ERROR_CONFIG, "no topic");
}

static void admit(struct world *w, struct batch *b)
{
	for (uint32_t i = 0; i < b->count; i++) {
		struct copy *c = copy_of(&b->events[i]);

		c->entity->lane[c->entity->n_lane++] = c;
		window_admit(&w->w, &b->events[i]);
	}
	for (uint32_t i = 0; i < b->count; i++) {
		if (!b->events[i].failure)
			continue;
		trace(w, "%s/%u cannot be routed", copy_of(&b->events[i])->entity->name, copy_of(&b->events[i])->index);
		model_refused(copy_of(&b->events[i]));
		window_refused(&w->w, &b->events[i]);
	}
}

struct picked {
	struct entity *entity;
	uint32_t index;
};

static uint32_t pick_rows(struct world *w, struct entity *e, uint32_t from, struct picked rows[])
{
	uint32_t n = 0;

	while (n < w->rows_per_entity_claim && from + n < e->n_written) {
		rows[n] = (struct picked){ e, from + n };
		n++;
	}
	return n;
}

static void admit_picked(struct world *w, const struct picked rows[], uint32_t n)
{
	struct batch *b;

	if (n == 0)
		return;
	trace(w, "%u rows claimed from %s/%u on", n, rows[0].entity->name, rows[0].index);
	b = batch_new(NULL, n);
	for (uint32_t i = 0; i < n; i++)
		fill_event(w, b, &b->events[i], rows[i].entity, rows[i].index);
	admit(w, b);
}

static void server_claims(struct world *w)
{
	struct picked rows[ENTITIES_MAX * ROWS_MAX];
	uint32_t n = 0, start = below(w, w->n_entities), wanted = 1 + below(w, 12);

	for (uint32_t i = 0; i < w->n_entities && n < wanted; i++) {
		struct entity *e = &w->entities[(start + i) % w->n_entities];
		uint32_t before = n;

		if (e->claimed || e->retry_at > w->now)
			continue;
		n += pick_rows(w, e, e->n_settled, rows + n);
		e->claimed = n > before;
	}
	admit_picked(w, rows, n);
}

/* Further rows of an entity that is ours already, as a reader that owns entities for long would fetch them. Such a reader
 * knows which entities it holds back: no row comes behind a held one. */
static void server_reads_ahead(struct world *w)
{
	struct entity *e = &w->entities[below(w, w->n_entities)];
	struct picked rows[ROWS_MAX];
	struct copy *last = e->n_lane > 0 ? e->lane[e->n_lane - 1] : NULL;

	if (last && !e->failed && last->where != HELD && !last->taken)
		admit_picked(w, rows, pick_rows(w, e, last->index + 1, rows));
}

/* --- the reader: settling ------------------------------------------------------------------------------------------- */

static void mark_taken(struct event_list l, bool taken)
{
	for (struct event *ev = l.first; ev; ev = ev->next)
		copy_of(ev)->taken = taken;
}

/* As feed.c does it. */
static void exchange_begins(struct world *w)
{
	w->x.done = window_take(&w->w.delivered, w->one_by_one > 0 ? 1 : UINT32_MAX);
	w->x.held = (struct event_list){ 0 };
	if (w->w.delivered.count == 0 && (w->one_by_one == 0 || w->x.done.count == 0))
		w->x.held = window_take(&w->w.held, UINT32_MAX);
	mark_taken(w->x.done, true);
	mark_taken(w->x.held, true);
	w->x.claims = below(w, 4) > 0;
	w->x.under_way = true;
	w->x.due = w->now + below(w, 12);
	trace(w, "exchange begins: %u delivered, %u held", w->x.done.count, w->x.held.count);
}

static bool transaction_accepts(const struct world *w)
{
	for (const struct event *ev = w->x.done.first; ev; ev = ev->next)
		if (w->now < copy_of(ev)->entity->accepted_from[copy_of(ev)->index])
			return false;
	return true;
}

static void server_deletes(struct world *w, const struct event *ev)
{
	const struct copy *c = copy_of(ev);
	struct entity *e = c->entity;

	trace(w, "%s/%u is settled", e->name, c->index);
	if (c->index != e->n_settled)
		broken(w, "%s/%u is settled before %s/%u", e->name, c->index, e->name, e->n_settled);
	for (uint32_t stage = 0; stage < w->n_stages; stage++)
		if (e->n_arrived[stage] <= c->index)
			broken(w, "%s/%u is settled and sink %u lacks it", e->name, c->index, stage);
	e->n_settled++;
	if (window_ends_lane(ev) != (e->lane[e->n_lane - 1] == c))
		broken(w, "%s/%u ends its lane or does not", e->name, c->index);
	if (window_ends_lane(ev))
		e->claimed = false;
}

static void server_holds(struct world *w, const struct event *ev)
{
	const struct copy *c = copy_of(ev);
	struct entity *e = c->entity;

	trace(w, "%s/%u is held back", e->name, c->index);
	if (c->index != e->n_settled)
		broken(w, "%s/%u is recorded as held before %s/%u is settled", e->name, c->index, e->name, e->n_settled);
	e->attempts = ev->attempt + verdict_of(ev->failure->kind)->counts;
	e->retry_row = c->index;
	e->retry_at = w->now + 1 + below(w, 60);
	e->claimed = false;
}

static void server_commits(struct world *w)
{
	for (const struct event *ev = w->x.done.first; ev; ev = ev->next)
		server_deletes(w, ev);
	for (const struct event *ev = w->x.held.first; ev; ev = ev->next)
		server_holds(w, ev);
}

static void rows_leave(struct world *w, struct event_list l)
{
	for (struct event *ev = l.first, *next; ev; ev = next) {
		next = ev->next;
		model_done(w, copy_of(ev));
		window_done(&w->w, ev);
	}
}

static void settle_fails(struct world *w, enum error_kind kind)
{
	uint32_t n_done = w->x.done.count, n = n_done + w->x.held.count;
	struct event *first = w->x.done.first;

	trace(w, "settling fails: %s", error_kind_name(kind));
	mark_taken(w->x.done, false);
	mark_taken(w->x.held, false);
	window_return(&w->w.delivered, w->x.done);
	window_return(&w->w.held, w->x.held);
	if (kind != ERROR_REJECTED || n_done == 0)
		return;
	if (n > 1) {
		w->one_by_one = n_done;
		return;
	}
	w->one_by_one -= w->one_by_one > 0;
	trace(w, "%s/%u is refused by the settling transaction", copy_of(first)->entity->name, copy_of(first)->index);
	first->failure = mem_new(struct error);
	error_set(first->failure, ERROR_REJECTED, "duplicate key");
	model_refused(copy_of(first));
	window_refused(&w->w, first);
}

static void connection_is_lost(struct world *w)
{
	trace(w, "connection lost");
	if (w->x.under_way && below(w, 2) && transaction_accepts(w))
		server_commits(w);      /* and the answer never comes */
	w->x = (struct fake_exchange){ 0 };
	w->one_by_one = 0;
	model_abandon(w);
	window_abandon(&w->w);
}

static void exchange_ends(struct world *w)
{
	if (w->now < w->x.due)
		return;
	w->x.under_way = false;
	if (!transaction_accepts(w)) {
		settle_fails(w, ERROR_REJECTED);
	} else if (mishap(w, w->percent.refuse_settle)) {
		settle_fails(w, below(w, 2) ? ERROR_TRANSPORT : ERROR_NONE);
	} else {
		server_commits(w);
		if (w->one_by_one > 0 && w->x.done.count > 0)
			w->one_by_one--;
		rows_leave(w, w->x.done);
		rows_leave(w, w->x.held);
	}
	/* Also when settling failed: that was another transaction. */
	if (w->x.claims)
		server_claims(w);
}

/* --- schedules ------------------------------------------------------------------------------------------------------- */

static void somebody_writes(struct world *w)
{
	struct entity *e = &w->entities[below(w, w->n_entities)];

	e->n_written += 1 + below(w, 3);
	e->n_written = MIN(e->n_written, e->n_rows);
}

static void take_a_step(struct world *w)
{
	uint32_t stage = below(w, w->n_stages);

	switch (below(w, 10)) {
	case 0:
		w->now += 1 + below(w, 4);
		break;
	case 1:
		somebody_writes(w);
		if (mishap(w, w->percent.away))
			w->sinks[stage].away_until = w->now + below(w, 50);
		break;
	case 2:
	case 3:
		worker_reads_mail(w);
		break;
	case 4:
	case 5:
		worker_submits(w, stage);
		break;
	case 6:
		if (w->x.under_way)
			exchange_ends(w);
		else
			exchange_begins(w);
		if (below(w, 100) < w->percent.read_ahead)
			server_reads_ahead(w);
		break;
	case 7:
		if (mishap(w, w->percent.lose))
			connection_is_lost(w);
		break;
	default:
		sink_works(w, stage);
	}
	check(w);
}

static bool everything_is_settled(const struct world *w)
{
	for (uint32_t i = 0; i < w->n_entities; i++)
		if (w->entities[i].n_settled < w->entities[i].n_rows)
			return false;
	return w->w.rows == 0;
}

/* Half of the worlds have none of a kind of mishap, so that each meets each other both with and without the rest. */
static uint32_t maybe_percent(struct world *w, uint32_t max)
{
	return below(w, 2) ? 0 : 1 + below(w, max);
}

static void create_entity(struct world *w, struct entity *e, uint32_t number, uint32_t rows_max)
{
	snprintf(e->name, sizeof(e->name), "e%u", number);
	e->n_rows = 1 + below(w, rows_max);
	e->n_written = below(w, e->n_rows + 1);
	e->retry_row = UINT32_MAX;
	for (uint32_t i = 0; i < e->n_rows; i++) {
		if (below(w, 100) < w->percent.unroutable)
			e->routable_from[i] = below(w, CALM_AFTER_MS);
		if (below(w, 100) < w->percent.unaccepted)
			e->accepted_from[i] = below(w, CALM_AFTER_MS);
	}
}

static void create(struct world *w, uint64_t seed)
{
	bool keeps_order[STAGES_MAX], many;

	*w = (struct world){ .seed = seed, .random = seed };
	w->percent.fail = maybe_percent(w, 40);
	w->percent.lose = maybe_percent(w, 10);
	w->percent.refuse_settle = maybe_percent(w, 40);
	w->percent.unroutable = maybe_percent(w, 30);
	w->percent.unaccepted = maybe_percent(w, 30);
	w->percent.away = maybe_percent(w, 20);
	w->percent.read_ahead = maybe_percent(w, 60);
	w->percent.alone = maybe_percent(w, 80);
	w->n_stages = 1 + below(w, STAGES_MAX);
	for (uint32_t i = 0; i < w->n_stages; i++) {
		w->sinks[i].keeps_order = keeps_order[i] = below(w, 2);
		w->sinks[i].takes_while_failing = below(w, 2);
		w->sinks[i].reports_in_order = below(w, 2);
	}
	window_init(&w->w, w->n_stages, keeps_order);
	many = below(w, 100) == 0;      /* more lanes than the window has buckets at first */
	w->n_entities = many ? ENTITIES_MAX : 1 + below(w, 5);
	w->rows_per_entity_claim = 1 + below(w, ROWS_MAX);
	for (uint32_t i = 0; i < w->n_entities; i++)
		create_entity(w, &w->entities[i], i, many ? 2 : ROWS_MAX);
}

static void destroy(struct world *w)
{
	window_release(&w->w);
	for (struct copy *c = w->made_last, *before; c; c = before) {
		before = c->made_before;
		free(c);
	}
}

static void run(uint64_t seed, bool traced)
{
	static struct world w;

	create(&w, seed);
	w.traced = traced;
	while (!everything_is_settled(&w)) {
		shared->step = ++w.step;
		if (w.step > STEPS_MAX)
			broken(&w, "stuck: %u rows in the window, and not all are settled", w.w.rows);
		take_a_step(&w);
	}
	for (uint32_t i = 0; i < w.n_entities; i++)
		for (uint32_t stage = 0; stage < w.n_stages; stage++)
			if (w.entities[i].n_arrived[stage] != w.entities[i].n_rows)
				broken(&w, "sink %u lacks rows of %s", stage, w.entities[i].name);
	destroy(&w);
}

/* A child of its own, so that a crash, a failed assertion or an endless loop names its seed too. */
static void whatever_happens_rows_are_settled_in_order_and_none_is_lost(void **state _unused_)
{
	const char *chosen = getenv("POSTRIDER_TEST_SEED");
	uint64_t first = chosen ? strtoull(chosen, NULL, 10) : 1, last = chosen ? first : SEEDS;
	int status;
	pid_t child;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	fflush(stdout);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		alarm(SECONDS_MAX);
		/* Not cmocka's handler, which would go on with the next test. */
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		signal(SIGFPE, SIG_DFL);
		signal(SIGILL, SIG_DFL);
		for (shared->seed = first; shared->seed <= last; shared->seed++)
			run(shared->seed, chosen != NULL);
		exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status))
		snprintf(shared->message, sizeof(shared->message), "%s", strsignal(WTERMSIG(status)));
	else if (status != 0 && !shared->message[0])
		snprintf(shared->message, sizeof(shared->message), "see above");
	if (status != 0)
		fail_msg("step %llu: %s\n    POSTRIDER_TEST_SEED=%llu runs it again", (unsigned long long)shared->step,
			 shared->message, (unsigned long long)shared->seed);
	munmap(shared, sizeof(*shared));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whatever_happens_rows_are_settled_in_order_and_none_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
