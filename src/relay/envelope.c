#include "relay/envelope.h"

#include "base/macros.h"

/* Where a header's value comes from. */
enum origin {
	FROM_FIELD,             /* of the row */
	FROM_TEXT,              /* the same always */
	FROM_TIME,              /* created_at, where it is a time */
	FROM_SOURCE,            /* the source template */
	FROM_TYPE,              /* media type of the payload */
};

struct envelope_header {
	struct slice name;
	enum origin origin;
	enum field field;       /* FROM_FIELD */
	struct slice text;      /* FROM_TEXT */
	const char *required;   /* what to call it when a row lacks it; NULL: then there is no such header */
	bool filled;            /* an empty value is as good as none */
};

#define NAME(s) .name = { "" s, sizeof(s) - 1 }
#define FIELD(f) .origin = FROM_FIELD, .field = (f)

static const struct envelope_header plain[] = {
	{ NAME("id"), FIELD(FIELD_MESSAGE_ID) },
	{ NAME("event_type"), FIELD(FIELD_EVENT_TYPE) },
	{ NAME("entity_type"), FIELD(FIELD_ENTITY_TYPE) },
	{ NAME("created_at"), FIELD(FIELD_CREATED_AT) },
	{ NAME("traceparent"), FIELD(FIELD_TRACEPARENT) },
};

static const struct envelope_header debezium[] = {
	{ NAME("id"), FIELD(FIELD_MESSAGE_ID) },
};

/* Binary content mode, spelled as the Kafka protocol binding does. The trace goes out twice: the extension's attribute
 * belongs to the event, the header is where tracing libraries look. */
static const struct envelope_header cloudevents[] = {
	{ NAME("ce_specversion"), .origin = FROM_TEXT, .text = { "1.0", 3 } },
	{ NAME("ce_id"), FIELD(FIELD_MESSAGE_ID), .required = "message id" },
	{ NAME("ce_source"), .origin = FROM_SOURCE, .required = "source" },
	{ NAME("ce_type"), FIELD(FIELD_EVENT_TYPE), .required = "event type" },
	{ NAME("ce_subject"), FIELD(FIELD_ENTITY), .filled = true },
	{ NAME("ce_time"), .origin = FROM_TIME },
	{ NAME("ce_traceparent"), FIELD(FIELD_TRACEPARENT), .filled = true },
	{ NAME("traceparent"), FIELD(FIELD_TRACEPARENT), .filled = true },
	{ NAME("content-type"), .origin = FROM_TYPE },
};

static const struct {
	const struct envelope_header *headers;
	size_t count;
} tables[][2] = {
	[PRESET_POSTRIDER] = {
		[ENVELOPE_PLAIN] = { plain, ARRAY_SIZE(plain) },
		[ENVELOPE_CLOUDEVENTS] = { cloudevents, ARRAY_SIZE(cloudevents) },
	},
	[PRESET_DEBEZIUM] = {
		[ENVELOPE_PLAIN] = { debezium, ARRAY_SIZE(debezium) },
		[ENVELOPE_CLOUDEVENTS] = { cloudevents, ARRAY_SIZE(cloudevents) },
	},
};

/* In CloudEvents an attribute of our own, whose name may have small letters and digits only. */
static const struct slice replay_headers[] = {
	[ENVELOPE_PLAIN] = SLICE_LITERAL("postrider-replay"),
	[ENVELOPE_CLOUDEVENTS] = SLICE_LITERAL("ce_postriderreplay"),
};

struct slice envelope_replay_header(enum envelope_mode mode)
{
	return replay_headers[mode];
}

void envelope_init(struct envelope *e, enum outbox_preset preset, enum envelope_mode mode)
{
	*e = (struct envelope){ .headers = tables[preset][mode].headers, .count = tables[preset][mode].count };
}

void envelope_hide(struct envelope *e, struct slice name)
{
	for (size_t i = 0; i < e->count; i++)
		if (slice_equal(e->headers[i].name, name))
			e->hidden |= UINT32_C(1) << i;
}

bool envelope_requires(const struct envelope *e, enum field field)
{
	for (size_t i = 0; i < e->count; i++) {
		const struct envelope_header *h = &e->headers[i];

		if (h->required && h->origin == FROM_FIELD && h->field == field && !(e->hidden >> i & 1))
			return true;
	}
	return false;
}

static struct slice media_type(const struct envelope_facts *facts)
{
	if (facts->empty)
		return SLICE_NULL;
	return facts->binary ? SLICE_LITERAL("application/octet-stream") : SLICE_LITERAL("application/json");
}

static struct slice header_value(const struct envelope_header *h, const struct envelope_facts *facts)
{
	switch (h->origin) {
	case FROM_FIELD: return facts->values[h->field];
	case FROM_TEXT: return h->text;
	case FROM_TIME: return facts->timed ? facts->values[FIELD_CREATED_AT] : SLICE_NULL;
	case FROM_SOURCE: return facts->source;
	case FROM_TYPE: return media_type(facts);
	}
	return SLICE_NULL;
}

bool envelope_add(const struct envelope *e, const struct envelope_facts *facts, struct header_list *l,
		  struct error *err)
{
	for (size_t i = 0; i < e->count; i++) {
		const struct envelope_header *h = &e->headers[i];
		struct slice value;

		if (e->hidden >> i & 1)
			continue;
		value = header_value(h, facts);
		if (h->required && value.len == 0)
			return error_set(err, ERROR_REJECTED, "it has no %s, without which it cannot be a CloudEvent",
					 h->required);
		if (value.ptr && (value.len || !h->filled))
			header_list_add(l, h->name, value);
	}
	return true;
}
