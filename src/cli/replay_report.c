#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/replay.h"
#include "cli/text_table.h"

enum { SHOW_REFUSED = 10 };

/* --- how to go on --------------------------------------------------------------------------------------------- */

struct place {
	const char *flag;
	char *value;                    /* NULL: from where it began */
};

static bool is_integer(const char *type)
{
	return strcmp(type, "bigint") == 0 || strcmp(type, "integer") == 0 || strcmp(type, "smallint") == 0;
}

/* Behind the last row up to which all are out. Where nobody can say what comes next, that row is repeated. */
static struct place place_of(const struct replay_report *r)
{
	const struct trail_row *passed = &r->replay->trail.passed;
	const char *last = r->filter->last_id ? r->filter->last_id : "";

	if (!passed->id)
		return (struct place){ 0 };
	if (!r->history->ordered_by_id)
		return (struct place){ "--start", mem_strdup(passed->order) };
	if (is_integer(r->history->table->columns[FIELD_ID].type))
		return (struct place){ "--ids", mem_printf("%lld-%s", atoll(passed->id) + 1, last) };
	return (struct place){ "--ids", mem_printf("%s..%s", passed->id, last) };
}

static bool is_over(const struct replay_report *r)
{
	return r->end == REPLAY_COMPLETE && (r->limit == 0 || (int64_t)atomic_load(&r->replay->read) < r->limit);
}

/* --- for people ----------------------------------------------------------------------------------------------- */

static void add_size(const struct replay_report *r, struct buf *out)
{
	struct text_short rows, time;
	int64_t n = r->limit > 0 ? MIN(r->limit, r->size->rows) : r->size->rows;

	buf_printf(out, "  rows       %s%s", r->size->exact ? "" : "about ", text_count(&rows, r->size->rows));
	if (r->limit > 0)
		buf_printf(out, ", of which the first %s", text_count(&rows, r->limit));
	if (r->rate > 0)
		buf_printf(out, ", at %s a second: %s at least", text_count(&rows, r->rate),
			   text_duration(&time, n * 1000 / r->rate));
	buf_add_char(out, '\n');
}

static void add_filter(const struct replay_report *r, struct buf *out)
{
	const struct history_filter *f = r->filter;

	buf_add_str(out, "  published  ");
	if (r->since)
		buf_printf(out, "from %s on, ", r->since);
	buf_printf(out, "before %s\n", r->until);
	if (f->first_id || f->last_id)
		buf_printf(out, "  ids        %s to %s\n", f->first_id ? f->first_id : "the first",
			   f->last_id ? f->last_id : "the last");
	if (f->start)
		buf_printf(out, "  start      at %s\n", f->start);
	if (f->entities)
		buf_printf(out, "  entities   %s\n", f->entities);
	if (f->types)
		buf_printf(out, "  types      %s\n", f->types);
}

static void add_sinks(const struct replay_report *r, struct buf *out)
{
	buf_add_str(out, "  to         ");
	for (size_t i = 0; i < r->outbox->n_sinks; i++)
		buf_printf(out, "%s%s", i ? ", " : "", r->outbox->sinks[i].name);
	if (r->topic)
		buf_printf(out, ", topic %s", r->topic);
	buf_add_char(out, '\n');
}

void replay_report_plan(const struct replay_report *r, struct buf *out)
{
	const struct table *t = r->history->table;

	buf_printf(out, "replay of outbox %s from %s %s\n", r->outbox->name,
		   r->history->source == HISTORY_ARCHIVE ? "the archive" : "the marked rows of", t->name);
	add_size(r, out);
	add_filter(r, out);
	add_sinks(r, out);
	if (!r->size->indexed)
		buf_printf(out, "  slow: no index helps, so each page reads the whole table. CREATE INDEX ON %s (%s);\n", t->name,
			   t->order.quoted);
}

static void add_refused(const struct replay *p, struct buf *out)
{
	if (p->n_refusals == 0)
		return;
	buf_printf(out, "%u refused; later rows of their entities were left out:\n", p->n_refusals);
	for (uint32_t i = 0; i < MIN(p->n_refusals, SHOW_REFUSED); i++) {
		const struct refusal *f = &p->refusals[i];

		buf_add_str(out, "  row ");
		buf_add_json(out, slice_of(f->id));
		buf_add_str(out, " of entity ");
		buf_add_json(out, slice_of(f->entity));
		buf_printf(out, ": %s\n", f->why);
	}
	if (p->n_refusals > SHOW_REFUSED)
		buf_printf(out, "  and %u more: --json lists them all\n", p->n_refusals - SHOW_REFUSED);
}

static void add_how_to_go_on(const struct replay_report *r, struct buf *out)
{
	struct place place = place_of(r);

	if (r->end == REPLAY_FAILED)
		buf_printf(out, "stopped: %s\n", r->error->message);
	if (r->end == REPLAY_FAILED && r->error->hint[0])
		buf_printf(out, "  hint: %s\n", r->error->hint);
	if (place.value)
		buf_printf(out, "to go on: the same command with %s '%s' --until %s\n", place.flag, place.value, r->until);
	else
		buf_add_str(out, "to go on: the same command again\n");
	free(place.value);
}

void replay_report_text(const struct replay_report *r, struct buf *out)
{
	struct text_short time;

	if (!r->ran)
		return;
	buf_printf(out, "%llu rows published again in %s\n", (unsigned long long)atomic_load(&r->replay->published),
		   text_duration(&time, r->ms));
	add_refused(r->replay, out);
	if (!is_over(r))
		add_how_to_go_on(r, out);
}

/* --- for programs --------------------------------------------------------------------------------------------- */

static void add_text(struct buf *out, const char *key, const char *value)
{
	buf_printf(out, ",\"%s\":", key);
	if (value)
		buf_add_json(out, slice_of(value));
	else
		buf_add_str(out, "null");
}

static void add_bool(struct buf *out, const char *key, bool value)
{
	buf_printf(out, ",\"%s\":%s", key, value ? "true" : "false");
}

static void add_refusals_json(const struct replay *p, struct buf *out)
{
	buf_add_str(out, ",\"refused\":[");
	for (uint32_t i = 0; i < p->n_refusals; i++) {
		buf_add_str(out, i ? ",{\"id\":" : "{\"id\":");
		buf_add_json(out, slice_of(p->refusals[i].id));
		add_text(out, "entity", p->refusals[i].entity);
		add_text(out, "error", p->refusals[i].why);
		buf_add_char(out, '}');
	}
	buf_add_char(out, ']');
}

static void add_go_on_json(const struct replay_report *r, struct buf *out)
{
	struct place place = place_of(r);

	buf_add_str(out, ",\"go_on\":");
	if (is_over(r)) {
		buf_add_str(out, "null");
	} else {
		buf_add_char(out, '[');
		if (place.value) {
			buf_printf(out, "\"%s\",", place.flag);
			buf_add_json(out, slice_of(place.value));
			buf_add_char(out, ',');
		}
		buf_add_str(out, "\"--until\",");
		buf_add_json(out, slice_of(r->until));
		buf_add_char(out, ']');
	}
	free(place.value);
}

static void add_run_json(const struct replay_report *r, struct buf *out)
{
	buf_printf(out, ",\"published\":%llu", (unsigned long long)atomic_load(&r->replay->published));
	add_refusals_json(r->replay, out);
	add_bool(out, "complete", is_over(r));
	add_text(out, "error", r->end == REPLAY_FAILED ? r->error->message : NULL);
	add_text(out, "hint", r->end == REPLAY_FAILED && r->error->hint[0] ? r->error->hint : NULL);
	buf_printf(out, ",\"duration_ms\":%lld", (long long)r->ms);
	add_go_on_json(r, out);
}

void replay_report_json(const struct replay_report *r, struct buf *out)
{
	buf_add_str(out, "{\"outbox\":");
	buf_add_json(out, slice_of(r->outbox->name));
	add_text(out, "table", r->history->table->name);
	add_text(out, "source", r->history->source == HISTORY_ARCHIVE ? "archive" : "table");
	add_text(out, "time", r->time);
	add_text(out, "until", r->until);
	buf_printf(out, ",\"rows\":%lld", (long long)r->size->rows);
	add_bool(out, "rows_exact", r->size->exact);
	add_bool(out, "indexed", r->size->indexed);
	if (r->ran)
		add_run_json(r, out);
	buf_add_str(out, "}\n");
}
