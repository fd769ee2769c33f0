#include "verify/compare.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"

enum { LANES_AT_FIRST = 64, ID_SHOWN_MAX = 200 };

struct verify_lane {
	uint32_t topic;
	int32_t partition;
	uint32_t latest;                /* row of the highest rank so far; WORDS_NONE: only duplicates were here */
	uint32_t next;                  /* lane of the same entity; 0: none */
};

static const struct {
	const char *name, *meaning;
	bool order;                     /* concerns order, which may not have been promised */
	bool needs_all_rows;            /* cannot be said when the ledger has only some */
	bool allowed;
} kinds[] = {
	[VERIFY_LOST] = { "lost", "rows without a record", false, false, false },
	[VERIFY_UNKNOWN] = { "unknown", "records whose id no row has", false, true, false },
	[VERIFY_DISORDER] = { "out_of_order", "rows first seen behind a later row of their entity", true, false,
			      false },
	[VERIFY_SCATTERED] = { "scattered", "entities in more than one partition of a topic", true, false, false },
	[VERIFY_MISPLACED] = { "misplaced", "records in another topic than their row's", false, false, false },
	[VERIFY_UNROUTABLE] = { "unroutable", "rows that cannot be messages, and were not looked for", false, false,
				false },
	[VERIFY_DUPLICATE] = { "duplicates", "records that repeat an earlier one", false, false, true },
};

const char *verify_kind_name(enum verify_kind kind)
{
	return kinds[kind].name;
}

const char *verify_kind_meaning(enum verify_kind kind)
{
	return kinds[kind].meaning;
}

bool verify_kind_judged(enum verify_kind kind, const struct verify_rules *rules)
{
	return !kinds[kind].allowed && !(kinds[kind].order && rules->unordered) &&
	       !(kinds[kind].needs_all_rows && rules->partial);
}

bool compare_is_clean(const struct comparison *c, const struct verify_rules *rules)
{
	for (enum verify_kind k = 0; k < VERIFY_KINDS; k++)
		if (c->found[k].count > 0 && verify_kind_judged(k, rules))
			return false;
	return true;
}

void compare_init(struct comparison *c, const struct ledger *ledger, uint32_t show)
{
	*c = (struct comparison){ .ledger = ledger, .show = show };
	c->seen = mem_new_array(bool, (size_t)ledger->ids.count + 1);
	c->first_lane = mem_new_array(uint32_t, (size_t)ledger->entities.count + 1);
	c->lanes_room = LANES_AT_FIRST;
	c->lanes = mem_new_array(struct verify_lane, c->lanes_room);
	c->n_lanes = 1;
}

void compare_release(struct comparison *c)
{
	for (enum verify_kind k = 0; k < VERIFY_KINDS; k++) {
		for (uint32_t i = 0; i < c->found[k].n_cases; i++)
			free(c->found[k].cases[i].id);
		free(c->found[k].cases);
	}
	free(c->seen);
	free(c->first_lane);
	free(c->lanes);
	*c = (struct comparison){ 0 };
}

/* ---- What is found ----------------------------------------------------------------------------------------------- */

static const struct verify_case nothing = {
	.row = WORDS_NONE, .entity = WORDS_NONE, .behind = WORDS_NONE,
	.topic = WORDS_NONE, .partition = -1, .offset = -1,
};

static struct verify_case case_of_record(const struct verify_record *r)
{
	struct verify_case found = nothing;

	found.topic = r->topic;
	found.partition = r->partition;
	found.offset = r->offset;
	return found;
}

static struct verify_case case_of_row(const struct comparison *c, struct verify_case found, uint32_t row)
{
	found.row = row;
	found.entity = c->ledger->rows[row].entity;
	return found;
}

/* Counts it, and keeps it while few are kept. `id` is copied; NULL where `found` has a row or no id is meant. */
static void add(struct comparison *c, enum verify_kind kind, struct verify_case found, struct slice id)
{
	struct verify_found *f = &c->found[kind];

	f->count++;
	if (f->n_cases >= c->show)
		return;
	if (id.ptr) {
		found.id_len = MIN(id.len, (size_t)ID_SHOWN_MAX);
		found.id = mem_alloc(found.id_len + 1);
		memcpy(found.id, id.ptr, found.id_len);
	}
	f->cases = mem_resize(f->cases, (f->n_cases + 1) * sizeof(*f->cases));
	f->cases[f->n_cases++] = found;
}

/* ---- Records ----------------------------------------------------------------------------------------------------- */

static uint32_t lane_of(const struct comparison *c, uint32_t entity, const struct verify_record *r)
{
	uint32_t i = c->first_lane[entity];

	while (i && (c->lanes[i].topic != r->topic || c->lanes[i].partition != r->partition))
		i = c->lanes[i].next;
	return i;
}

static uint32_t lanes_in_topic(const struct comparison *c, uint32_t entity, uint32_t topic)
{
	uint32_t n = 0;

	for (uint32_t i = c->first_lane[entity]; i; i = c->lanes[i].next)
		n += c->lanes[i].topic == topic;
	return n;
}

/* A duplicate opens a lane too: the entity is there. It has no place in the order of first occurrences. */
static uint32_t open_lane(struct comparison *c, uint32_t row, const struct verify_record *r)
{
	uint32_t entity = c->ledger->rows[row].entity;

	/* An entity is scattered once, when its second partition shows. */
	if (lanes_in_topic(c, entity, r->topic) == 1)
		add(c, VERIFY_SCATTERED, case_of_row(c, case_of_record(r), row), SLICE_NULL);
	if (c->n_lanes == c->lanes_room) {
		c->lanes_room *= 2;
		c->lanes = mem_resize(c->lanes, c->lanes_room * sizeof(*c->lanes));
	}
	c->lanes[c->n_lanes] = (struct verify_lane){ r->topic, r->partition, WORDS_NONE, c->first_lane[entity] };
	c->first_lane[entity] = c->n_lanes;
	return c->n_lanes++;
}

static void judge_place(struct comparison *c, uint32_t row, const struct verify_record *r, bool first)
{
	const struct ledger_row *rows = c->ledger->rows;
	struct verify_case found;
	struct verify_lane *lane;
	uint32_t number;

	if (rows[row].entity == WORDS_NONE)
		return;
	number = lane_of(c, rows[row].entity, r);
	if (!number)
		number = open_lane(c, row, r);
	lane = &c->lanes[number];
	if (!first)
		return;
	if (lane->latest == WORDS_NONE || rows[row].rank >= rows[lane->latest].rank) {
		lane->latest = row;
		return;
	}
	found = case_of_row(c, case_of_record(r), row);
	found.behind = lane->latest;
	add(c, VERIFY_DISORDER, found, SLICE_NULL);
}

void compare_take(struct comparison *c, const struct verify_record *r)
{
	uint32_t row = r->id.ptr ? words_find(&c->ledger->ids, r->id) : WORDS_NONE;
	struct verify_case found = case_of_record(r);

	c->records++;
	if (row == WORDS_NONE) {
		add(c, VERIFY_UNKNOWN, found, r->id);
	} else if (c->ledger->rows[row].topic != r->topic) {
		add(c, VERIFY_MISPLACED, case_of_row(c, found, row), SLICE_NULL);
	} else if (c->seen[row]) {
		add(c, VERIFY_DUPLICATE, case_of_row(c, found, row), SLICE_NULL);
		judge_place(c, row, r, false);
	} else {
		c->seen[row] = true;
		c->rows_seen++;
		judge_place(c, row, r, true);
	}
}

void compare_finish(struct comparison *c)
{
	const struct ledger *l = c->ledger;
	struct verify_case found = nothing;

	for (uint32_t row = 0; row < l->ids.count; row++) {
		if (c->seen[row])
			continue;
		found.topic = l->rows[row].topic;
		if (l->rows[row].pending)
			c->pending++;
		else
			add(c, VERIFY_LOST, case_of_row(c, found, row), SLICE_NULL);
	}
	for (uint32_t i = 0; i < l->unroutable.count; i++)
		add(c, VERIFY_UNROUTABLE, nothing, words_get(&l->unroutable, i));
}
