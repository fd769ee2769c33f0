#include "read/trail.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"

#define AHEAD_CEILING ((size_t)256 << 20)

static void row_release(struct trail_row *row)
{
	free(row->order);
	free(row->id);
	free(row->lane);
	*row = (struct trail_row){ 0 };
}

static void clear_ahead(struct trail *t)
{
	buf_clear(&t->ahead);
	buf_add_str(&t->ahead, "{}");
}

void trail_init(struct trail *t)
{
	*t = (struct trail){ .number = 1 };
	buf_init(&t->ahead, AHEAD_CEILING);
	clear_ahead(t);
}

void trail_release(struct trail *t)
{
	for (uint32_t i = 0; i < t->count; i++)
		row_release(&t->rows[t->first + i]);
	free(t->rows);
	row_release(&t->passed);
	buf_release(&t->ahead);
}

/* --- reading on ----------------------------------------------------------------------------------------------- */

static void make_room(struct trail *t)
{
	if (t->first > 0 && t->first + t->count == t->room) {
		memmove(t->rows, t->rows + t->first, t->count * sizeof(*t->rows));
		t->first = 0;
	}
	t->rows = mem_one_more(t->rows, t->first + t->count, &t->room, sizeof(*t->rows));
}

const struct trail_row *trail_last(const struct trail *t)
{
	if (t->count > 0)
		return &t->rows[t->first + t->count - 1];
	return t->passed.id ? &t->passed : NULL;
}

uint64_t trail_add(struct trail *t, const char *order, const char *id, const char *lane)
{
	make_room(t);
	t->rows[t->first + t->count] = (struct trail_row){ mem_strdup(order), mem_strdup(id), mem_strdup(lane), false };
	t->open++;
	return t->number + t->count++;
}

/* --- finishing ------------------------------------------------------------------------------------------------ */

static void advance(struct trail *t)
{
	while (t->count > 0 && t->rows[t->first].finished) {
		row_release(&t->passed);
		t->passed = t->rows[t->first];
		t->first++;
		t->count--;
		t->number++;
	}
	if (t->count == 0)
		t->first = 0;
	if (t->number >= t->ahead_until)
		clear_ahead(t);
}

static void finish(struct trail *t, struct trail_row *row)
{
	t->open -= !row->finished;
	row->finished = true;
}

void trail_finish(struct trail *t, uint64_t number)
{
	if (number < t->number || number >= t->number + t->count)
		return;
	finish(t, &t->rows[t->first + (number - t->number)]);
	advance(t);
}

void trail_give_up(struct trail *t, struct slice lane)
{
	for (uint32_t i = 0; i < t->count; i++)
		if (slice_is(lane, t->rows[t->first + i].lane))
			finish(t, &t->rows[t->first + i]);
	advance(t);
}

/* --- beginning again ------------------------------------------------------------------------------------------ */

static void add_ahead(struct trail *t, const char *id)
{
	t->ahead.data[--t->ahead.len] = '\0';   /* the brace */
	if (t->ahead.len > 1)
		buf_add_char(&t->ahead, ',');
	buf_add_array_element(&t->ahead, slice_of(id));
	buf_add_char(&t->ahead, '}');
}

void trail_rewind(struct trail *t)
{
	uint64_t next = t->number + t->count;
	/* Some that were to be read again after the rewind before have not been yet. */
	uint64_t unread = t->ahead_until > next ? t->ahead_until - next : 0;

	for (uint32_t i = 0; i < t->count; i++) {
		struct trail_row *row = &t->rows[t->first + i];

		if (row->finished)
			add_ahead(t, row->id);
		row_release(row);
	}
	t->number = next;
	t->ahead_until = next + t->open + unread;
	t->first = t->count = t->open = 0;
}
