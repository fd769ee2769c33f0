#include "sink/json_line.h"

#include "sink/json_text.h"

static void add_text_or_null(struct buf *b, struct slice s)
{
	if (s.ptr)
		buf_add_json(b, s);
	else
		buf_add_str(b, "null");
}

void buf_add_headers(struct buf *b, const struct event *ev)
{
	buf_add_char(b, '{');
	for (uint32_t i = 0; i < ev->n_headers; i++) {
		if (i > 0)
			buf_add_char(b, ',');
		buf_add_json(b, ev->headers[i].name);
		buf_add_char(b, ':');
		add_text_or_null(b, ev->headers[i].value);
	}
	buf_add_char(b, '}');
}

static void add_payload(struct buf *b, struct slice payload)
{
	if (payload.ptr && !text_is_utf8(payload)) {
		buf_add_str(b, "\"payload_base64\":\"");
		buf_add_base64(b, payload);
		buf_add_char(b, '"');
		return;
	}
	buf_add_str(b, "\"payload\":");
	if (payload.ptr && text_is_json(payload))
		buf_add_json_line(b, payload);
	else
		add_text_or_null(b, payload);
}

void buf_add_event_line(struct buf *b, const struct event *ev)
{
	buf_add_str(b, "{\"id\":");
	add_text_or_null(b, ev->message_id);
	buf_add_str(b, ",\"topic\":");
	add_text_or_null(b, ev->topic);
	buf_add_str(b, ",\"key\":");
	add_text_or_null(b, ev->key);
	buf_add_str(b, ",\"headers\":");
	buf_add_headers(b, ev);
	buf_add_char(b, ',');
	add_payload(b, ev->payload);
	buf_add_str(b, "}\n");
}
