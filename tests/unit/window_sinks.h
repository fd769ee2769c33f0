/* Sinks for test_window_random.c: they answer late, out of turn, with any kind of failure, or vaguely. What they keep
 * to is the contract of sink.h: one that keeps order lets nothing of an entity through behind a row that failed. */
#ifndef POSTRIDER_TESTS_WINDOW_SINKS_H
#define POSTRIDER_TESTS_WINDOW_SINKS_H

#include "base/mem.h"
#include "window_model.h"

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
	if (mishap(w, w->percent.fail / 2)) {
		decide_failure(w, stage, &s->entries[number], ERROR_LOST);      /* only the answer is */
		return;
	}
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

#endif
