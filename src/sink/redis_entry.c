#include "sink/redis_entry.h"

#include <inttypes.h>
#include <stdio.h>

enum { FIELD_OVERHEAD = 32 };

size_t redis_entry_bytes(const struct event *ev)
{
	size_t bytes = event_bytes(ev) + ev->message_id.len;

	for (uint32_t i = 0; i < ev->n_headers; i++)
		bytes += ev->headers[i].name.len + ev->headers[i].value.len + FIELD_OVERHEAD;
	return bytes;
}

static void add_word(struct buf *b, const char *prefix, struct slice s)
{
	buf_printf(b, "$%zu\r\n%s", strlen(prefix) + s.len, prefix);
	buf_add_slice(b, s);
	buf_add(b, "\r\n", 2);
}

static void add_field(struct buf *b, const char *prefix, struct slice name, struct slice value)
{
	add_word(b, prefix, name);
	add_word(b, "", value.ptr ? value : SLICE_LITERAL(""));
}

static uint32_t count_fields(const struct event *ev)
{
	return 1 + (ev->key.ptr != NULL) + ev->n_headers + (ev->payload.ptr != NULL);
}

static void add_max_len(struct buf *b, int64_t max_len)
{
	char number[24];

	snprintf(number, sizeof(number), "%" PRId64, max_len);
	add_word(b, "", SLICE_LITERAL("MAXLEN"));
	add_word(b, "", SLICE_LITERAL("~"));
	add_word(b, "", slice_of(number));
}

void buf_add_xadd(struct buf *b, const struct event *ev, int64_t max_len)
{
	buf_printf(b, "*%u\r\n", 3 + (max_len > 0 ? 3 : 0) + 2 * count_fields(ev));
	add_word(b, "", SLICE_LITERAL("XADD"));
	add_word(b, "", ev->topic);
	if (max_len > 0)
		add_max_len(b, max_len);
	add_word(b, "", SLICE_LITERAL("*"));
	add_field(b, "", SLICE_LITERAL("id"), ev->message_id);
	if (ev->key.ptr)
		add_field(b, "", SLICE_LITERAL("key"), ev->key);
	for (uint32_t i = 0; i < ev->n_headers; i++)
		add_field(b, "h:", ev->headers[i].name, ev->headers[i].value);
	if (ev->payload.ptr)
		add_field(b, "", SLICE_LITERAL("payload"), ev->payload);
}

void buf_add_command(struct buf *b, const char *const words[], uint32_t n)
{
	buf_printf(b, "*%u\r\n", n);
	for (uint32_t i = 0; i < n; i++)
		add_word(b, "", slice_of(words[i]));
}
