#include "read/wal_schedule.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/mem.h"
#include "read/schedule.h"
#include "relay/field.h"

/* While workers have a lot that was due, there is no hurry to copy more: unless it is all of an entity that is held
 * back. */
enum { PATIENCE_MS = 1000, NO_PART = -1 };
/* While many rows with a time are written, one look serves all that have come since the last. */
enum { TOLD_PACE_MS = 20 };

void wal_schedule_init(struct wal_schedule *s, const struct reader_env *env)
{
	*s = (struct wal_schedule){ .env = env };
	wal_page_init(&s->page, env->table);
}

void wal_schedule_release(struct wal_schedule *s)
{
	if (!s->env)
		return;
	PQclear(s->rows);
	wal_page_release(&s->page);
	*s = (struct wal_schedule){ 0 };
}

bool wal_schedule_is_possible(const struct outbox_config *o, const struct table *t, struct error *err)
{
	if (!t->scheduled.name || o->published != PUBLISHED_KEEP)
		return true;
	error_set(err, ERROR_CONFIG, "table %s has the column %s, and with published: keep nobody can tell which of"
		  " its rows are still to come", t->name, t->scheduled.name);
	return error_hint(err, "set outboxes.%s.published: delete; or, if no row is ever scheduled,"
			       " outboxes.%s.columns.scheduled_for: \"\"", outbox_path(o), outbox_path(o));
}

int64_t wal_schedule_look_ms(const struct wal_schedule *s, bool told)
{
	if (!s->env->table->scheduled.name || s->rows)
		return CLOCK_NEVER;
	return told ? MIN(s->look_ms, s->looked_ms + TOLD_PACE_MS) : s->look_ms;
}

uint32_t wal_schedule_rows(const struct wal_schedule *s)
{
	return s->rows ? (uint32_t)PQntuples(s->rows) : 0;
}

struct slice wal_schedule_entity(const PGresult *rows, int row)
{
	struct slice entity = field_raw(rows, row, FIELD_ENTITY);

	return entity.ptr ? entity : SLICE_LITERAL("");
}

/* The result described as the log would describe the table: so values become what the log would have given. */
static bool map_result(const struct wal_schedule *s, const PGresult *res, struct wal_mapping *ret, struct error *err)
{
	_cleanup_(mem_freep) struct pgoutput_relation *r = mem_new(struct pgoutput_relation);

	r->oid = s->env->table->oid;
	r->n_columns = (uint32_t)s->page.n_fields;
	for (int i = 0; i < s->page.n_fields; i++) {
		const char *name = table_column_of(s->env->table, (size_t)i)->name;

		r->columns[i] = (struct pgoutput_column){ slice_of(name ? name : ""), PQftype(res, i) };
	}
	return wal_mapping_make(ret, s->env->table, r, err);
}

static bool add_rows(struct wal_schedule *s, const struct wal_mapping *m, const PGresult *res, struct error *err)
{
	_cleanup_(mem_freep) struct pgoutput_insert *insert = mem_new(struct pgoutput_insert);

	insert->relation = m->relation;
	insert->n_values = (uint32_t)s->page.n_fields;
	for (int row = 0; row < PQntuples(res); row++) {
		for (int i = 0; i < s->page.n_fields; i++)
			insert->values[i] = field_raw(res, row, i);
		if (!wal_page_add(&s->page, m, insert, NO_PART, err))
			return false;
	}
	return true;
}

bool wal_schedule_take(struct wal_schedule *s, struct parking *parking, const PGresult *res, struct error *err)
{
	_cleanup_(wal_mapping_release) struct wal_mapping mapping = { 0 };

	s->full = PQntuples(res) >= s->env->outbox->batch_max;
	if (PQntuples(res) == 0)
		return true;
	if (!map_result(s, res, &mapping, err) || !add_rows(s, &mapping, res, err))
		return false;
	s->rows = wal_page_take(&s->page);
	for (int row = 0; row < PQntuples(s->rows); row++)
		parking_add(parking, wal_schedule_entity(s->rows, row))->leaving_log++;
	return true;
}

void wal_schedule_take_next(struct wal_schedule *s, const PGresult *res, int64_t now_ms)
{
	const struct outbox_config *o = s->env->outbox;
	struct answer next = { 0 };

	schedule_take(res, 0, &next);
	s->look_ms = now_ms + o->poll_interval_ms;
	if (next.due_in_ms > 0)
		s->look_ms = MIN(s->look_ms, now_ms + next.due_in_ms);
	if (s->full)
		s->look_ms = s->outstanding < 2 * (uint64_t)o->batch_max * (uint64_t)o->workers ? 0 : now_ms + PATIENCE_MS;
}

void wal_schedule_published(struct wal_schedule *s, uint32_t n)
{
	s->outstanding -= MIN(s->outstanding, n);
}

void wal_schedule_parked(struct wal_schedule *s, struct parking *parking, int64_t now_ms)
{
	s->outstanding += wal_schedule_rows(s);
	for (int row = 0; row < (int)wal_schedule_rows(s); row++) {
		struct parked *e = parking_find(parking, wal_schedule_entity(s->rows, row));

		e->leaving_log--;
		/* What it waits for, if anything, comes first. */
		if (e->in_flight == 0 && !e->row_id.ptr)
			e->due_ms = now_ms;
	}
	PQclear(s->rows);
	s->rows = NULL;
}
