#include "sink/event_rows.h"

#include "base/macros.h"
#include "pg/array.h"
#include "pg/exec.h"
#include "sink/json_line.h"

enum {
	SET_EVENTS = 500,
	SET_BYTES = 8 << 20,
	KEPT_BYTES = 1 << 20,           /* an array that had to grow larger is given back after use */
};
/* PostgreSQL allocates no value larger than this. */
#define ARRAY_CEILING (((size_t)1 << 30) - 1024)

void event_rows_init(struct event_rows *rows)
{
	for (int i = 0; i < EVENT_COLUMNS; i++)
		buf_init(&rows->arrays[i], ARRAY_CEILING);
	buf_init(&rows->headers, ARRAY_CEILING);
}

void event_rows_release(struct event_rows *rows)
{
	for (int i = 0; i < EVENT_COLUMNS; i++)
		buf_release(&rows->arrays[i]);
	buf_release(&rows->headers);
}

uint32_t event_rows_fit(struct event *const events[], uint32_t n)
{
	size_t bytes = 0;
	uint32_t i = 0;

	while (i < MIN(n, SET_EVENTS) && (i == 0 || bytes + event_bytes(events[i]) <= SET_BYTES))
		bytes += event_bytes(events[i++]);
	return i;
}

static void add_headers(struct event_rows *rows, const struct event *ev)
{
	buf_clear(&rows->headers);
	if (ev->n_headers > 0)
		buf_add_headers(&rows->headers, ev);
	array_add(&rows->arrays[EVENT_HEADERS],
		  ev->n_headers > 0 ? (struct slice){ rows->headers.data, rows->headers.len } : SLICE_NULL);
	rows->arrays[EVENT_HEADERS].overflow |= rows->headers.overflow;
}

static void add_event(struct event_rows *rows, const struct event *ev, int n_columns)
{
	const struct slice values[EVENT_COLUMNS] = {
		[EVENT_ENTITY_TYPE] = ev->entity_type, [EVENT_ENTITY_ID] = ev->entity,
		[EVENT_EVENT_TYPE] = ev->event_type,   [EVENT_MESSAGE_ID] = ev->message_id,
		[EVENT_PAYLOAD] = ev->payload,         [EVENT_CREATED_AT] = ev->created_at,
		[EVENT_TOPIC] = ev->topic,             [EVENT_KEY] = ev->key,
	};

	for (int i = 0; i < n_columns; i++) {
		if (i == EVENT_HEADERS)
			add_headers(rows, ev);
		else
			array_add(&rows->arrays[i], values[i]);
	}
}

static void give_back_large(struct event_rows *rows)
{
	for (int i = 0; i < EVENT_COLUMNS; i++)
		if (rows->arrays[i].room > KEPT_BYTES)
			buf_release(&rows->arrays[i]);
}

bool event_rows_send(struct event_rows *rows, PGconn *conn, const char *name, int n_columns, uint32_t bytes,
		     struct event *const events[], uint32_t n, struct error *err)
{
	const char *values[EVENT_COLUMNS];
	int lengths[EVENT_COLUMNS], formats[EVENT_COLUMNS];
	bool too_large = false;
	int sent = 0;

	for (int i = 0; i < n_columns; i++)
		array_begin(&rows->arrays[i], (bytes & (1u << i)) ? TYPE_BYTEA : TYPE_TEXT);
	for (uint32_t i = 0; i < n; i++)
		add_event(rows, events[i], n_columns);
	for (int i = 0; i < n_columns; i++) {
		too_large = too_large || rows->arrays[i].overflow;
		values[i] = rows->arrays[i].data;
		lengths[i] = (int)rows->arrays[i].len;
		formats[i] = 1;
	}
	if (!too_large)
		sent = PQsendQueryPrepared(conn, name, n_columns, values, lengths, formats, 0);
	give_back_large(rows);
	if (too_large)
		return error_set(err, ERROR_REJECTED, "the event is too large for PostgreSQL");
	return sent || pg_error(conn, NULL, "append events", err);
}
