#include "sink/rabbitmq_message.h"

#include <stdlib.h>
#include <strings.h>

#include "base/macros.h"
#include "base/mem.h"

enum {
	SHORT_MAX = 255,
	PERSISTENT = 2,
	ENTRY_BYTES = 1 + 1 + 4,        /* of a header, beside its name and value: lengths and type */
	FRAME_BYTES = 64,               /* of the frame around the properties, and their flags and lengths: a few less */
};

const char *rabbitmq_topic_fault(struct slice topic)
{
	return topic.len > SHORT_MAX ? "is longer than 255 bytes, which AMQP does not allow for a routing key" : NULL;
}

void rabbitmq_message_release(struct rabbitmq_message *m)
{
	free(m->entries);
}

static amqp_bytes_t as_bytes(struct slice s)
{
	return (amqp_bytes_t){ .len = s.len, .bytes = (void *)s.ptr };
}

static bool refuse_long(struct error *err, const char *what, size_t len)
{
	error_set(err, ERROR_REJECTED, "not sent: its %s has %zu bytes, and AMQP allows %d", what, len, SHORT_MAX);
	return error_hint(err, "shorten it in the outbox, or delete the row");
}

static bool check_short(struct slice text, const char *what, struct error *err)
{
	return text.len <= SHORT_MAX || refuse_long(err, what, text.len);
}

static bool name_is(struct slice name, const char *wanted)
{
	return name.len == strlen(wanted) && strncasecmp(name.ptr, wanted, name.len) == 0;
}

static void add_entry(amqp_table_t *table, struct slice name, struct slice value)
{
	amqp_table_entry_t *entry = &table->entries[table->num_entries++];

	entry->key = as_bytes(name);
	entry->value.kind = value.ptr ? AMQP_FIELD_KIND_UTF8 : AMQP_FIELD_KIND_VOID;
	entry->value.value.bytes = as_bytes(value);
}

/* AMQP has no key: it travels as a header, unless the row has one of that name. */
static const struct slice key_header = SLICE_LITERAL("key");

static bool add_headers(struct rabbitmq_message *m, const struct event *ev, struct slice *content_type, size_t *size,
			struct error *err)
{
	amqp_table_t *table = &m->properties.headers;
	bool with_key = ev->key.ptr;

	if (ev->n_headers + 1 > m->room) {
		m->room = ev->n_headers + 1;
		m->entries = mem_resize(m->entries, m->room * sizeof(*m->entries));
	}
	*table = (amqp_table_t){ .entries = m->entries };
	for (uint32_t i = 0; i < ev->n_headers; i++) {
		const struct header *h = &ev->headers[i];

		if (!check_short(h->name, "longest header name", err))
			return false;
		if (name_is(h->name, "content-type") && h->value.ptr)
			*content_type = h->value;
		with_key = with_key && !slice_equal(h->name, key_header);
		add_entry(table, h->name, h->value);
		*size += ENTRY_BYTES + h->name.len + h->value.len;
	}
	if (with_key) {
		add_entry(table, key_header, ev->key);
		*size += ENTRY_BYTES + key_header.len + ev->key.len;
	}
	return true;
}

bool rabbitmq_message_build(struct rabbitmq_message *m, const struct event *ev, const char *content_type, int frame_max,
			    struct error *err)
{
	amqp_basic_properties_t *p = &m->properties;
	struct slice type = slice_of(content_type);
	size_t size = FRAME_BYTES;

	*p = (amqp_basic_properties_t){ ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
					.delivery_mode = PERSISTENT };
	if (!add_headers(m, ev, &type, &size, err) || !check_short(ev->message_id, "message id", err) ||
	    !check_short(ev->event_type, "event type", err) || !check_short(type, "content type", err))
		return false;
	p->message_id = as_bytes(ev->message_id);
	if (type.len > 0) {
		p->content_type = as_bytes(type);
		p->_flags |= AMQP_BASIC_CONTENT_TYPE_FLAG;
	}
	if (ev->event_type.ptr) {
		p->type = as_bytes(ev->event_type);
		p->_flags |= AMQP_BASIC_TYPE_FLAG;
	}
	size += ev->message_id.len + ev->event_type.len + type.len;
	/* The library would notice only when half of the message is out. */
	if (size <= (size_t)frame_max)
		return true;
	error_set(err, ERROR_REJECTED, "not sent: its headers have about %zu bytes, and all of them must fit into one frame of %d",
		  size, frame_max);
	return error_hint(err, "make the headers smaller, or delete the row");
}
