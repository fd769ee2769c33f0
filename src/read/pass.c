#include "read/pass.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"
#include "pg/array.h"
#include "relay/field.h"

#define PARAM_CEILING ((size_t)16 << 20)
#define PLACE_CEILING ((size_t)1 << 20)

enum { LOWEST_AT_MOST_EVERY_MS = 1000 };

void pass_init(struct pass *p, const struct reader_env *env, int first_statement)
{
	*p = (struct pass){ .env = env, .first_statement = first_statement, .from_lowest = true, .large_rows = true };
	horizon_init(&p->horizon, first_statement + PASS_LOOK);
	buf_init(&p->numbers, PARAM_CEILING);
	buf_init(&p->places, PARAM_CEILING);
	buf_init(&p->asked_horizon, PLACE_CEILING);
}

static void release_parts(struct pass *p)
{
	for (uint32_t i = 0; i < p->n_parts; i++) {
		buf_release(&p->parts[i].place);
		buf_release(&p->parts[i].highest);
	}
	free(p->parts);
	p->parts = NULL;
	p->n_parts = 0;
}

void pass_release(struct pass *p)
{
	release_parts(p);
	horizon_release(&p->horizon);
	buf_release(&p->numbers);
	buf_release(&p->places);
	buf_release(&p->asked_horizon);
}

static struct pass_part *part_of(struct pass *p, int32_t number)
{
	for (uint32_t i = 0; i < p->n_parts; i++)
		if (p->parts[i].number == number)
			return &p->parts[i];
	return NULL;
}

static struct pass_part *add_part(struct pass *p, int32_t number)
{
	struct pass_part *part;

	p->parts = mem_resize(p->parts, (p->n_parts + 1) * sizeof(*p->parts));
	part = &p->parts[p->n_parts++];
	*part = (struct pass_part){ .number = number };
	buf_init(&part->place, PLACE_CEILING);
	buf_init(&part->highest, PLACE_CEILING);
	return part;
}

void pass_set_parts(struct pass *p, const int32_t *numbers, uint32_t n)
{
	for (uint32_t i = 0; i < p->n_parts; i++) {
		struct pass_part *part = &p->parts[i];
		bool stays = false;

		for (uint32_t k = 0; k < n; k++)
			stays |= numbers[k] == part->number;
		part->active &= stays;
		part->has_place &= stays;
		part->finished &= stays;
	}
	for (uint32_t k = 0; k < n; k++) {
		struct pass_part *part = part_of(p, numbers[k]);

		if (!part)
			part = add_part(p, numbers[k]);
		part->active = true;
	}
	p->n_active = n;
}

bool pass_has_more(const struct pass *p)
{
	return p->under_way || p->due_left;
}

void pass_restart(struct pass *p)
{
	p->from_lowest = true;
}

bool pass_open(struct pass *p, struct pipeline *pipeline, struct error *err)
{
	return horizon_open(&p->horizon, pipeline, p->env->database->statement_timeout_ms, err);
}

/* --- asking ----------------------------------------------------------------------------------------------------- */

static bool is_integer(uint32_t type)
{
	return type == TYPE_INT8 || type == TYPE_INT4 || type == TYPE_INT2;
}

static int64_t integer_of(const struct buf *place)
{
	int64_t value = place->len > 0 ? (signed char)place->data[0] : 0;

	for (size_t i = 1; i < place->len; i++)
		value = (int64_t)((uint64_t)value << 8) | (unsigned char)place->data[i];
	return value;
}

/* Places of other types than integers cannot be compared here. */
static bool has_reached(const struct pass *p, const struct pass_part *part)
{
	return is_integer(p->place_type) && integer_of(&part->place) >= integer_of(&part->highest);
}

/* True when the page may bring rows that were read before: from where it begins up to the highest that was. */
static bool may_meet_again(const struct pass *p)
{
	for (uint32_t i = 0; i < p->n_parts; i++) {
		const struct pass_part *part = &p->parts[i];

		if (part->active && part->has_highest && !(part->has_place && has_reached(p, part)))
			return true;
	}
	return false;
}

/* True when this page begins at the lowest row: it is time for that, or some part has no place yet to go on from. */
static bool begin(struct pass *p, uint32_t in_flight, int64_t now)
{
	bool first = p->from_lowest ||
		     now - p->lowest_ms >= MAX(p->env->outbox->poll_interval_ms, LOWEST_AT_MOST_EVERY_MS);

	for (uint32_t i = 0; i < p->n_parts; i++) {
		p->parts[i].finished &= p->under_way && !first && !p->due_left;
		first |= p->parts[i].active && !p->parts[i].finished && !p->parts[i].has_place;
	}
	for (uint32_t i = 0; i < p->n_parts && first; i++)
		p->parts[i].finished = p->parts[i].has_place = false;
	p->again = in_flight > 0 && may_meet_again(p);
	p->from_lowest = false;
	return first;
}

/* Which parts have more, and where to go on in them. Returns how many. */
static uint32_t collect_parts(struct pass *p)
{
	array_begin(&p->numbers, TYPE_INT4);
	array_begin(&p->places, p->place_type ? p->place_type : TYPE_TEXT);
	for (uint32_t i = 0; i < p->n_parts; i++) {
		const struct pass_part *part = &p->parts[i];

		if (part->finished || !part->active)
			continue;
		array_add_int4(&p->numbers, part->number);
		array_add(&p->places, part->has_place ? (struct slice){ part->place.data, part->place.len } : SLICE_NULL);
	}
	return array_count(&p->numbers);
}

static void remember_horizon(struct pass *p)
{
	p->has_asked_horizon = p->horizon.known;
	buf_clear(&p->asked_horizon);
	if (p->has_asked_horizon)
		buf_add(&p->asked_horizon, p->horizon.at.data, p->horizon.at.len);
}

static bool send_page(struct pass *p, struct pipeline *pipeline, bool first, struct error *err)
{
	_cleanup_(mem_freep) char *bytes = mem_printf("%zu", p->asked_bytes);
	_cleanup_(mem_freep) char *of_part = mem_printf("%u", p->asked_of_part);
	_cleanup_(mem_freep) char *due = mem_printf("%u", p->asked_due);
	struct param params[PASS_BYTES + 2] = {
		[PASS_PARTS] = array_param(&p->numbers),
		[PASS_AFTER] = first ? text_param(NULL) : array_param(&p->places),
		[PASS_ROWS_OF_PART] = text_param(of_part),
		[PASS_HORIZON] = horizon_param(&p->horizon),
	};
	int n = PASS_HORIZON + 1;

	if (p->asked_limited)
		params[n++] = text_param(bytes);
	if (p->env->table->scheduled.name && !p->untimed)
		params[n++] = text_param(due);
	pipeline->untimed = p->untimed;
	return pipeline_send(pipeline,
			     p->first_statement + (first ? PASS_FIRST : PASS_NEXT) + (p->asked_limited ? PASS_FIRST_LIMITED : 0),
			     params, n, true, err) &&
	       schedule_send(pipeline, p->first_statement + PASS_NEXT_DUE, p->env->table, err);
}

bool pass_send(struct pass *p, struct pipeline *pipeline, const struct exchange *x, uint32_t in_flight, int64_t now,
	       struct error *err)
{
	bool first = begin(p, in_flight, now);
	uint32_t n_parts = collect_parts(p);
	/* What is met again must not fill the page. */
	uint32_t rows_wanted = x->want_rows + (p->again ? in_flight : 0);

	if (!horizon_send(&p->horizon, pipeline, now, err))
		return false;
	if (first && !pipeline_send(pipeline, p->first_statement + PASS_SIZE, NULL, 0, false, err))
		return false;
	if (first)
		p->lowest_ms = now;
	p->asked_of_part = rows_wanted / MAX(n_parts, 1) + 1;
	/* Those in flight may all be of one part: when so many come there are others among them. */
	p->asked_due = x->want_rows / MAX(n_parts, 1) + 1 + in_flight;
	p->asked_limited = p->large_rows;
	p->asked_bytes = x->want_bytes;
	remember_horizon(p);
	return send_page(p, pipeline, first, err);
}

/* --- the page --------------------------------------------------------------------------------------------------- */

static void note_retry(struct pass *p, const PGresult *res, int row, struct answer *answer)
{
	int n = PQnfields(res);
	struct slice entity = field_raw(res, row, n - PASS_FIELD_HELD);

	if (answer->n_retries > 0 && slice_equal(p->retries[answer->n_retries - 1].entity, entity))
		return;
	p->retries[answer->n_retries++] = (struct retry){
		.entity = entity,
		.row_id = field_raw(res, row, n - PASS_FIELD_ROW_ID),
		.attempts = (uint32_t)field_int4(res, row, n - PASS_FIELD_ATTEMPTS),
	};
}

static bool is_stable(const PGresult *res, int row)
{
	return PQgetvalue(res, row, PQnfields(res) - PASS_FIELD_STABLE)[0] != 0;
}

static void set_place(struct buf *b, struct slice place)
{
	buf_clear(b);
	buf_add(b, place.ptr, place.len);
}

static void move_to(struct pass_part *part, struct slice place)
{
	part->has_place = true;
	set_place(&part->place, place);
}

static void note_highest(const struct pass *p, struct pass_part *part, struct slice place)
{
	struct buf here = { .data = (char *)place.ptr, .len = place.len };

	if (part->has_highest && is_integer(p->place_type) && integer_of(&here) <= integer_of(&part->highest))
		return;
	part->has_highest = true;
	set_place(&part->highest, place);
}

/* Rows of a part come together, so `last`, the part of the row before, is mostly the one. Returns it. */
static struct pass_part *note_row(struct pass *p, const PGresult *res, int row, struct pass_part *last)
{
	int n = PQnfields(res);
	struct slice place = field_raw(res, row, n - PASS_FIELD_PLACE);
	int32_t number = field_int4(res, row, n - PASS_FIELD_PART);
	struct pass_part *part = last && last->number == number ? last : part_of(p, number);

	part->rows++;
	if (is_stable(res, row))
		move_to(part, place);
	note_highest(p, part, place);
	return part;
}

/* Less than all of it may have come only where bytes were counted, and only when there are so many. */
static bool was_cut(const struct pass *p, const PGresult *res)
{
	size_t bytes = 0;

	for (int row = 0; p->asked_limited && row < PQntuples(res) && bytes < p->asked_bytes; row++)
		bytes += (size_t)PQgetlength(res, row, FIELD_PAYLOAD) + 8;
	return p->asked_limited && bytes >= p->asked_bytes;
}

/* A part of which less came than was asked for has no more, and so nothing below the horizon that was not read. */
static void finish_parts(struct pass *p, const PGresult *res)
{
	bool cut = was_cut(p, res);

	for (uint32_t i = 0; i < p->n_parts; i++) {
		struct pass_part *part = &p->parts[i];

		if (!part->active || part->finished || cut || part->rows >= p->asked_of_part)
			continue;
		part->finished = true;
		if (p->has_asked_horizon)
			move_to(part, (struct slice){ p->asked_horizon.data, p->asked_horizon.len });
	}
}

static bool is_over(const struct pass *p)
{
	for (uint32_t i = 0; i < p->n_parts; i++)
		if (p->parts[i].active && !p->parts[i].finished)
			return false;
	return true;
}

static void take_page(struct pass *p, PGresult *res, struct answer *answer)
{
	int n = PQnfields(res), rows = PQntuples(res);
	/* What could not be settled is still there, and still in flight. */
	bool again = p->again || !answer->settled;
	struct pass_part *part = NULL;
	uint32_t n_due = 0;

	p->place_type = PQftype(res, n - PASS_FIELD_PLACE);
	for (uint32_t i = 0; i < p->n_parts; i++)
		p->parts[i].rows = 0;
	answer->retries = p->retries;
	for (int row = 0; row < rows; row++) {
		if (!PQgetisnull(res, row, n - PASS_FIELD_HELD)) {
			note_retry(p, res, row, answer);
			continue;
		}
		if (field_int4(res, row, n - PASS_FIELD_PART) == PASS_DUE)
			n_due++;
		else
			part = note_row(p, res, row, part);
	}
	finish_parts(p, res);
	p->under_way = !is_over(p);
	p->due_left = n_due >= p->asked_due;
	answer->rows = res;
	answer->again = again || answer->n_retries > 0 || n_due > 0;
	answer->looked = p->n_active;
	answer->exhausted = !pass_has_more(p) && answer->n_retries < PASS_RETRIES_MAX;
}

static void take_next_due(struct pass *p, const PGresult *res, struct answer *answer)
{
	bool is_scheduled = schedule_take(res, 0, answer);

	/* The next page finds what this one could only notice. */
	if (is_scheduled && p->untimed) {
		p->due_left = true;
		answer->exhausted = false;
	}
	p->untimed = !is_scheduled;
}

bool pass_take(struct pass *p, int statement, PGresult *res, struct answer *answer)
{
	if (statement < p->first_statement || statement >= p->first_statement + PASS_STATEMENTS_COUNT)
		return false;
	if (horizon_take(&p->horizon, statement, res)) {
		PQclear(res);
	} else if (statement == p->first_statement + PASS_SIZE) {
		/* Each partition has a TOAST table of its own: too many to ask. */
		p->large_rows = p->env->table->partitioned || atoll(PQgetvalue(res, 0, 0)) > 0;
		PQclear(res);
	} else if (statement == p->first_statement + PASS_NEXT_DUE) {
		take_next_due(p, res, answer);
		PQclear(res);
	} else {
		take_page(p, res, answer);
	}
	return true;
}
