#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/mem.h"
#include "pg/table.h"
#include "relay/route.h"

#define TYPE_TEXT 25
#define TYPE_BYTEA 17
#define EXTRA 2                         /* room for other columns */

#define TRACE "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01"

struct pair {
	const char *key, *value, *where;
};

/* What a test changes about the usual settings; NULL keeps them. */
struct settings {
	const char *topic, *key, *source, *letters;
	struct pair headers[4];
	enum outbox_preset preset;
	enum envelope_mode envelope;
	bool tombstone;
};

/* What a test changes about the usual row. NULL is SQL's NULL. */
struct row {
	const char *field[FIELD_EXTRA + EXTRA];
};

static const struct row usual_row = { .field = {
	[FIELD_ID] = "17",
	[FIELD_ENTITY] = "cust-42",
	[FIELD_PAYLOAD] = "{\"total\": 9.90}",
	[FIELD_MESSAGE_ID] = "7f1c0b9e-5f0e-4a43-a2a3-6a0b51f0c001",
	[FIELD_ENTITY_TYPE] = "Order",
	[FIELD_EVENT_TYPE] = "OrderPlaced",
	[FIELD_CREATED_AT] = "2026-11-15 09:45:27.123456+00",
} };

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

/* The map of headers is good until the next call: routes read it only while they are compiled. */
static struct outbox_config outbox_of(const struct settings *s)
{
	static struct config_pair pairs[ARRAY_SIZE(s->headers)];
	bool debezium = s->preset == PRESET_DEBEZIUM;
	struct outbox_config o = {
		.name = text("orders"),
		.preset = s->preset,
		.columns = {
			.id.name = text("id"),
			.entity_id.name = text(debezium ? "aggregateid" : "entity_id"),
			.message_id.name = text(debezium ? "" : "message_id"),
			.entity_type.name = text(debezium ? "aggregatetype" : "entity_type"),
			.event_type.name = text(debezium ? "type" : "event_type"),
			.payload.name = text("payload"),
			.headers.name = text(debezium ? "" : "headers"),
			.topic.name = text(debezium ? "" : "topic"),
			.created_at.name = text(debezium ? "" : "created_at"),
			.traceparent.name = text(debezium ? "" : "traceparent"),
		},
		.route = {
			.topic = text(s->topic ? s->topic : "outbox.event.{entity_type}"),
			.key = text(s->key ? s->key : "{entity_id}"),
			.source = text(s->source ? s->source : ""),
			.headers.pairs = pairs,
			.envelope = s->envelope,
			.tombstone = s->tombstone,
		},
		.failure.dead_letter_topic = text(s->letters ? s->letters : ""),
	};

	for (const struct pair *p = s->headers; p < s->headers + ARRAY_SIZE(s->headers) && p->key; p++)
		pairs[o.route.headers.count++] = (struct config_pair){ text(p->key), text(p->value), text(p->where) };
	return o;
}

static struct batch *batch_of(const struct row *row, Oid payload_type, size_t payload_len)
{
	PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc columns[FIELD_EXTRA + EXTRA] = { 0 };

	for (int i = 0; i < FIELD_EXTRA + EXTRA; i++) {
		columns[i].name = text("column");
		columns[i].typid = i == FIELD_PAYLOAD ? payload_type : TYPE_TEXT;
		columns[i].format = 1;
	}
	assert_true(PQsetResultAttrs(res, FIELD_EXTRA + EXTRA, columns));
	for (int i = 0; i < FIELD_EXTRA + EXTRA; i++) {
		const char *value = row->field[i];
		size_t len = value ? strlen(value) : 0;

		if (value && i == FIELD_PAYLOAD && payload_len)
			len = payload_len;
		assert_true(PQsetvalue(res, 0, i, text(value), value ? (int)len : -1));
	}
	return batch_new(res, 1);
}

/* A route and one row on it. */
struct routed {
	struct outbox_config outbox;
	struct route *route;
	struct batch *batch;
	struct event *ev;
	bool ok;
	struct error err;
};

static void routed_release(struct routed *r)
{
	batch_free(r->batch);
	route_free(r->route);
}

static void route_bytes(struct routed *r, const struct settings *s, const struct row *row, Oid type, size_t len)
{
	*r = (struct routed){ .outbox = outbox_of(s), .batch = batch_of(row, type, len) };
	if (!route_compile(&r->outbox, &r->route, &r->err))
		fail_msg("%s", r->err.message);
	r->ev = &r->batch->events[0];
	r->ok = route_row(r->route, r->batch, 0, &r->err);
}

static void route(struct routed *r, const struct settings *s, const struct row *row)
{
	route_bytes(r, s, row, TYPE_TEXT, 0);
}

static void assert_slice(struct slice s, const char *expected)
{
	if (!expected) {
		assert_null(s.ptr);
		return;
	}
	assert_non_null(s.ptr);
	if (!slice_is(s, expected))
		fail_msg("\"%.*s\" instead of \"%s\"", (int)s.len, s.ptr, expected);
}

/* One header per line, "name=value", or "name" for one without a value. */
static void assert_headers(const struct routed *r, const char *expected)
{
	_cleanup_(buf_release) struct buf b;

	if (!r->ok)
		fail_msg("%s", r->err.message);
	buf_init(&b, 10000);
	for (uint32_t i = 0; i < r->ev->n_headers; i++) {
		const struct header *h = &r->ev->headers[i];

		buf_printf(&b, "%.*s", (int)h->name.len, h->name.ptr);
		if (h->value.ptr)
			buf_printf(&b, "=%.*s", (int)h->value.len, h->value.ptr);
		buf_add_char(&b, '\n');
	}
	assert_string_equal(buf_str(&b), expected);
}

static struct row row_with(enum field field, const char *value)
{
	struct row row = usual_row;

	row.field[field] = value;
	return row;
}

/* ---- Topic, key, payload ----------------------------------------------------------------------------------------- */

static void a_plain_row_fills_the_whole_event(void **state _unused_)
{
	_cleanup_(routed_release) struct routed r;

	route(&r, &(struct settings){ 0 }, &usual_row);
	assert_slice(r.ev->id, "17");
	assert_slice(r.ev->entity, "cust-42");
	assert_slice(r.ev->message_id, "7f1c0b9e-5f0e-4a43-a2a3-6a0b51f0c001");
	assert_slice(r.ev->entity_type, "Order");
	assert_slice(r.ev->event_type, "OrderPlaced");
	assert_slice(r.ev->created_at, "2026-11-15T09:45:27.123456Z");
	assert_slice(r.ev->topic, "outbox.event.Order");
	assert_slice(r.ev->key, "cust-42");
	assert_slice(r.ev->payload, "{\"total\": 9.90}");
	assert_headers(&r, "id=7f1c0b9e-5f0e-4a43-a2a3-6a0b51f0c001\n"
			   "event_type=OrderPlaced\n"
			   "entity_type=Order\n"
			   "created_at=2026-11-15T09:45:27.123456Z\n");
}

static void payload_and_key_point_into_the_result(void **state _unused_)
{
	_cleanup_(routed_release) struct routed r;

	route(&r, &(struct settings){ .topic = "orders" }, &usual_row);
	assert_ptr_equal(r.ev->payload.ptr, PQgetvalue(r.batch->rows, 0, FIELD_PAYLOAD));
	assert_ptr_equal(r.ev->key.ptr, PQgetvalue(r.batch->rows, 0, FIELD_ENTITY));
	assert_ptr_equal(r.ev->topic.ptr, route_constant_topic(r.route));
}

static void topic_and_key_come_from_templates_and_columns(void **state _unused_)
{
	static const struct {
		struct settings settings;
		const char *topic_column, *entity, *extra;
		const char *topic, *key;
	} cases[] = {
		{ { .topic = "orders" }, NULL, "c", NULL, "orders", "c" },
		{ { .topic = "{entity_type}" }, NULL, "c", NULL, "Order", "c" },
		{ { .topic = "{tenant}.{entity_type}" }, NULL, "c", "acme", "acme.Order", "c" },
		{ { .topic = "orders" }, "audit", "c", NULL, "audit", "c" },
		{ { .topic = "{tenant}.x" }, "audit", "c", NULL, "audit", "c" },
		{ { .topic = "orders" }, "", "c", NULL, "orders", "c" },
		{ { .topic = "orders", .key = "" }, NULL, "c", NULL, "orders", NULL },
		{ { .topic = "orders", .key = "all" }, NULL, "c", NULL, "orders", "all" },
		{ { .topic = "orders", .key = "{tenant}" }, NULL, "c", NULL, "orders", NULL },
		{ { .topic = "orders", .key = "{tenant}/{entity_id}" }, NULL, "c", NULL, "orders", NULL },
		{ { .topic = "orders", .key = "{tenant}/{entity_id}" }, NULL, "c", "acme", "orders", "acme/c" },
		{ { .topic = "orders" }, NULL, "", NULL, "orders", "" },
		{ { .topic = "at.{created_at}" }, NULL, "c", NULL, "at.2026-11-15T09:45:27.123456Z", "c" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(routed_release) struct routed r;
		struct row row = row_with(FIELD_TOPIC, cases[i].topic_column);

		row.field[FIELD_ENTITY] = cases[i].entity;
		row.field[FIELD_EXTRA] = cases[i].extra;
		route(&r, &cases[i].settings, &row);
		assert_true(r.ok);
		assert_slice(r.ev->topic, cases[i].topic);
		assert_slice(r.ev->key, cases[i].key);
	}
}

static void an_empty_payload_is_a_null_value_only_when_asked_for(void **state _unused_)
{
	static const struct {
		const char *payload;
		Oid type;
		const char *plain, *tombstone;
	} cases[] = {
		{ NULL, TYPE_TEXT, NULL, NULL },
		{ "", TYPE_TEXT, "", NULL },
		{ "", TYPE_BYTEA, "", NULL },
		{ " \t\n", TYPE_TEXT, " \t\n", NULL },
		{ " \t\n", TYPE_BYTEA, " \t\n", " \t\n" },
		{ "null", TYPE_TEXT, "null", "null" },
		{ "{}", TYPE_TEXT, "{}", "{}" },
		{ " x", TYPE_TEXT, " x", " x" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (int tombstone = 0; tombstone < 2; tombstone++) {
			_cleanup_(routed_release) struct routed r;
			struct row row = row_with(FIELD_PAYLOAD, cases[i].payload);

			route_bytes(&r, &(struct settings){ .tombstone = tombstone }, &row, cases[i].type, 0);
			assert_true(r.ok);
			assert_slice(r.ev->payload, tombstone ? cases[i].tombstone : cases[i].plain);
		}
	}
}

static void bytes_pass_as_they_are(void **state _unused_)
{
	static const char bytes[] = "\x00\xff{\"\x00";
	_cleanup_(routed_release) struct routed r;
	struct row row = row_with(FIELD_PAYLOAD, bytes);

	route_bytes(&r, &(struct settings){ .tombstone = true }, &row, TYPE_BYTEA, sizeof(bytes));
	assert_true(r.ok);
	assert_int_equal(r.ev->payload.len, sizeof(bytes));
	assert_memory_equal(r.ev->payload.ptr, bytes, sizeof(bytes));
}

static void the_id_stands_in_for_a_missing_message_id(void **state _unused_)
{
	_cleanup_(routed_release) struct routed r;
	struct row row = row_with(FIELD_MESSAGE_ID, NULL);

	row.field[FIELD_ENTITY_TYPE] = row.field[FIELD_EVENT_TYPE] = row.field[FIELD_CREATED_AT] = NULL;
	route(&r, &(struct settings){ .topic = "t.{message_id}" }, &row);
	assert_slice(r.ev->message_id, "17");
	assert_slice(r.ev->topic, "t.17");
	assert_headers(&r, "id=17\n");
}

static void times_leave_as_rfc_3339(void **state _unused_)
{
	static const struct {
		const char *postgres, *rfc3339;
	} cases[] = {
		{ "2026-11-15 09:45:27.123456+00", "2026-11-15T09:45:27.123456Z" },
		{ "2026-11-15 09:45:27+00", "2026-11-15T09:45:27Z" },
		{ "2026-11-15 09:45:27.1+00", "2026-11-15T09:45:27.1Z" },
		{ "2026-11-15 09:45:27.12", "2026-11-15T09:45:27.12Z" },
		{ "2026-11-15 09:45:27", "2026-11-15T09:45:27Z" },
		{ "2026-11-15 09:45:27+02", "2026-11-15T09:45:27+02:00" },
		{ "2026-11-15 09:45:27.5-03:30", "2026-11-15T09:45:27.5-03:30" },
		{ "2026-11-15T09:45:27Z", "2026-11-15T09:45:27Z" },
		{ "2026-11-15 09:45:27+00:00", "2026-11-15T09:45:27Z" },
		/* Not such a time: as it is, and never as the time of a CloudEvent. */
		{ "infinity", NULL },
		{ "", NULL },
		{ "1763199927123", NULL },
		{ "2026-11-15", NULL },
		{ "0044-03-15 12:00:00+00 BC", NULL },
		{ "12026-11-15 09:45:27+00", NULL },
		{ "2026-11-15 09:45:27.+00", NULL },
		{ "2026-11-15 09:45:27+0", NULL },
		{ "2026-11-15 09:45:27+00:53:28", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(routed_release) struct routed plain, cloud;
		struct row row = row_with(FIELD_CREATED_AT, cases[i].postgres);
		bool timed = false;

		route(&plain, &(struct settings){ 0 }, &row);
		assert_slice(plain.ev->created_at, cases[i].rfc3339 ? cases[i].rfc3339 : cases[i].postgres);
		route(&cloud, &(struct settings){ .envelope = ENVELOPE_CLOUDEVENTS }, &row);
		assert_true(cloud.ok);
		for (uint32_t h = 0; h < cloud.ev->n_headers; h++)
			timed |= slice_is(cloud.ev->headers[h].name, "ce_time");
		assert_int_equal(timed, cases[i].rfc3339 != NULL);
	}
}

/* ---- Headers ----------------------------------------------------------------------------------------------------- */

static void later_headers_replace_earlier_ones(void **state _unused_)
{
	static const struct {
		const char *json;
		struct pair headers[4];
		const char *expected;
	} cases[] = {
		{ NULL, { { "source", "orders-service", NULL }, { "tenant", "{tenant}", NULL } },
		  "id=7\nsource=orders-service\ntenant=acme\n" },
		{ "{\"a\": \"1\", \"b\": null, \"c\": 2.50}", { { "d", "4", NULL } }, "id=7\na=1\nb\nc=2.50\nd=4\n" },
		{ "{\"id\": \"mine\"}", { { 0 } }, "id=mine\n" },
		{ "{\"a\": \"1\"}", { { "a", "2", NULL } }, "id=7\na=2\n" },
		{ NULL, { { "id", "{tenant}-{id}", NULL } }, "id=acme-17\n" },
		{ "{\"id\": \"mine\", \"x\": 1}", { { "id", "fixed", NULL } }, "id=fixed\nx=1\n" },
		{ NULL, { { "missing", "{reason}", NULL } }, "id=7\nmissing\n" },
		{ NULL, { { "missing", "because {reason}", NULL } }, "id=7\nmissing\n" },
		{ NULL, { { "empty", "", NULL } }, "id=7\nempty=\n" },
		{ NULL, { { "a", "1", NULL }, { "a", "2", NULL } }, "id=7\na=2\n" },
		{ "null", { { 0 } }, "id=7\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(routed_release) struct routed r;
		/* The key makes tenant the first of the other columns, whichever headers a case has. */
		struct settings s = { .topic = "orders", .key = "{tenant}" };
		struct row row = { .field = {
			[FIELD_ID] = "17",
			[FIELD_ENTITY] = "c",
			[FIELD_PAYLOAD] = "{}",
			[FIELD_MESSAGE_ID] = "7",
			[FIELD_HEADERS] = cases[i].json,
			[FIELD_EXTRA] = "acme",
		} };

		memcpy(s.headers, cases[i].headers, sizeof(cases[i].headers));
		route(&r, &s, &row);
		assert_headers(&r, cases[i].expected);
	}
}

static void traceparent_is_a_header(void **state _unused_)
{
	_cleanup_(routed_release) struct routed r;
	struct row row = { .field = { [FIELD_ID] = "17", [FIELD_ENTITY] = "c", [FIELD_TRACEPARENT] = TRACE } };

	route(&r, &(struct settings){ .topic = "orders" }, &row);
	assert_headers(&r, "id=17\ntraceparent=" TRACE "\n");
}

static void the_debezium_preset_writes_what_its_router_writes(void **state _unused_)
{
	static const struct settings s = {
		.preset = PRESET_DEBEZIUM,
		.topic = "outbox.event.{aggregatetype}",
		.key = "{aggregateid}",
		.headers = { { "eventType", "{type}", NULL }, { "tenant", "{tenant}", NULL } },
	};
	static const struct row row = { .field = {
		[FIELD_ID] = "406c07f3-26f0-4eea-a50c-109940064b8f",
		[FIELD_ENTITY] = "1",
		[FIELD_ENTITY_TYPE] = "Order",
		[FIELD_EVENT_TYPE] = "OrderCreated",
	} };
	_cleanup_(routed_release) struct routed r;

	route(&r, &s, &row);
	assert_slice(r.ev->topic, "outbox.event.Order");
	assert_slice(r.ev->key, "1");
	assert_slice(r.ev->payload, NULL);
	assert_headers(&r, "id=406c07f3-26f0-4eea-a50c-109940064b8f\neventType=OrderCreated\ntenant\n");
}

static void cloudevents_have_their_attributes(void **state _unused_)
{
	static const struct {
		const char *source, *payload, *trace, *entity;
		Oid type;
		const char *expected;
	} cases[] = {
		{ NULL, "{}", NULL, "cust-42", TYPE_TEXT,
		  "ce_specversion=1.0\nce_id=m\nce_source=/postrider/orders\nce_type=OrderPlaced\nce_subject=cust-42\n"
		  "ce_time=2026-11-15T09:45:27.123456Z\ncontent-type=application/json\n" },
		{ "/shop/{entity_type}", "x", TRACE, "cust-42", TYPE_BYTEA,
		  "ce_specversion=1.0\nce_id=m\nce_source=/shop/Order\nce_type=OrderPlaced\nce_subject=cust-42\n"
		  "ce_time=2026-11-15T09:45:27.123456Z\nce_traceparent=" TRACE "\ntraceparent=" TRACE "\n"
		  "content-type=application/octet-stream\n" },
		{ "/orders", NULL, "", "", TYPE_TEXT,
		  "ce_specversion=1.0\nce_id=m\nce_source=/orders\nce_type=OrderPlaced\n"
		  "ce_time=2026-11-15T09:45:27.123456Z\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(routed_release) struct routed r;
		struct settings s = { .envelope = ENVELOPE_CLOUDEVENTS, .source = cases[i].source };
		struct row row = row_with(FIELD_MESSAGE_ID, "m");

		row.field[FIELD_PAYLOAD] = cases[i].payload;
		row.field[FIELD_TRACEPARENT] = cases[i].trace;
		row.field[FIELD_ENTITY] = cases[i].entity;
		route_bytes(&r, &s, &row, cases[i].type, 0);
		assert_headers(&r, cases[i].expected);
	}
}

static void braces_in_the_name_of_an_outbox_are_no_template(void **state _unused_)
{
	struct outbox_config o = outbox_of(&(struct settings){ .envelope = ENVELOPE_CLOUDEVENTS });
	struct batch *b = batch_of(&usual_row, TYPE_TEXT, 0);
	_cleanup_(route_freep) struct route *r = NULL;
	struct error err;

	o.name = text("a{b}");
	assert_true(route_compile(&o, &r, &err));
	assert_true(route_row(r, b, 0, &err));
	assert_slice(b->events[0].headers[2].value, "/postrider/a{b}");
	batch_free(b);
}

static void a_header_of_the_user_replaces_an_attribute(void **state _unused_)
{
	static const struct settings s = {
		.envelope = ENVELOPE_CLOUDEVENTS,
		.headers = { { "ce_type", "com.example.order", NULL }, { "content-type", "text/plain", NULL } },
	};
	_cleanup_(routed_release) struct routed r;
	struct row row = row_with(FIELD_EVENT_TYPE, NULL);

	row.field[FIELD_MESSAGE_ID] = "m";
	row.field[FIELD_CREATED_AT] = NULL;
	route(&r, &s, &row);
	assert_headers(&r, "ce_specversion=1.0\nce_id=m\nce_source=/postrider/orders\nce_subject=cust-42\n"
			   "ce_type=com.example.order\ncontent-type=text/plain\n");
}

/* ---- What goes wrong --------------------------------------------------------------------------------------------- */

static void a_rejected_row_says_why_and_keeps_id_and_entity(void **state _unused_)
{
	static const struct {
		struct settings settings;
		enum field field;
		const char *value;
		const char *message;
	} cases[] = {
		{ { 0 }, FIELD_ENTITY_TYPE, NULL,
		  "row 17 cannot be routed: its topic needs column entity_type, which is NULL" },
		{ { .topic = "{entity_type}" }, FIELD_ENTITY_TYPE, NULL,
		  "row 17 cannot be routed: its topic needs column entity_type, which is NULL" },
		{ { .topic = "{entity_type}" }, FIELD_ENTITY_TYPE, "", "row 17 cannot be routed: its topic is empty" },
		{ { .topic = "{tenant}.orders" }, FIELD_EXTRA, NULL,
		  "row 17 cannot be routed: its topic needs column tenant, which is NULL" },
		{ { 0 }, FIELD_HEADERS, "[1]",
		  "headers of row 17 are not a JSON object that can be used (byte 1: { was expected)" },
		{ { 0 }, FIELD_HEADERS, "{\"a\": }",
		  "headers of row 17 are not a JSON object that can be used (byte 7: a digit was expected)" },
		{ { .envelope = ENVELOPE_CLOUDEVENTS }, FIELD_EVENT_TYPE, NULL,
		  "row 17 cannot be routed: it has no event type, without which it cannot be a CloudEvent" },
		{ { .envelope = ENVELOPE_CLOUDEVENTS }, FIELD_EVENT_TYPE, "",
		  "row 17 cannot be routed: it has no event type, without which it cannot be a CloudEvent" },
		{ { .envelope = ENVELOPE_CLOUDEVENTS, .source = "/{tenant}" }, FIELD_EXTRA, NULL,
		  "row 17 cannot be routed: its source needs column tenant, which is NULL" },
		{ { .envelope = ENVELOPE_CLOUDEVENTS, .source = "{tenant}" }, FIELD_EXTRA, "",
		  "row 17 cannot be routed: it has no source, without which it cannot be a CloudEvent" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(routed_release) struct routed r;
		struct row row = row_with(cases[i].field, cases[i].value);

		route(&r, &cases[i].settings, &row);
		assert_false(r.ok);
		assert_int_equal(r.err.kind, ERROR_REJECTED);
		assert_string_equal(r.err.message, cases[i].message);
		assert_slice(r.ev->id, "17");
		assert_slice(r.ev->entity, "cust-42");
		assert_slice(r.ev->message_id, usual_row.field[FIELD_MESSAGE_ID]);
	}
}

static void wrong_templates_name_the_setting_and_the_place(void **state _unused_)
{
	static const struct {
		struct settings settings;
		const char *message, *hint;
	} cases[] = {
		{ { .topic = "outbox.{entity_type" },
		  "outboxes.orders.route.topic \"outbox.{entity_type\": character 8: the brace is never closed",
		  "write {{ for a brace that is part of the text" },
		{ { .topic = "" }, "outboxes.orders.route.topic is empty",
		  "name a topic, or a template such as outbox.event.{entity_type}" },
		{ { .key = "{}" },
		  "outboxes.orders.route.key \"{}\": character 1: there is no name between the braces", "" },
		{ { .key = "{payload}" },
		  "outboxes.orders.route.key \"{payload}\": character 2: {payload} is the payload column, which "
		  "templates cannot use", "" },
		{ { .envelope = ENVELOPE_CLOUDEVENTS, .source = "a}" },
		  "outboxes.orders.route.source \"a}\": character 2: the brace was never opened",
		  "write }} for a brace that is part of the text" },
		{ { .headers = { { "tenant", "{ten ant}", "postrider.yaml:12:7" } } },
		  "postrider.yaml:12:7: outboxes.orders.route.headers.tenant \"{ten ant}\": character 5: a name "
		  "consists of letters, digits, _, - and $", "" },
		{ { .preset = PRESET_DEBEZIUM, .topic = "{traceparent}" },
		  "outboxes.orders.route.topic \"{traceparent}\": character 2: {traceparent} has no column",
		  "set outboxes.orders.columns.traceparent to the column that holds it" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct outbox_config o = outbox_of(&cases[i].settings);
		struct route *r = NULL;
		struct error err;

		assert_false(route_compile(&o, &r, &err));
		assert_null(r);
		assert_int_equal(err.kind, ERROR_CONFIG);
		assert_string_equal(err.message, cases[i].message);
		assert_string_equal(err.hint, cases[i].hint);
	}
}

static void names_are_parts_or_columns_and_never_guessed(void **state _unused_)
{
	static const struct {
		const char *id, *message_id, *topic;
		const char *expanded;           /* NULL: refused */
	} cases[] = {
		{ "seq", "id", "{seq}", "17" },
		{ "seq", "id", "{message_id}", "7" },
		{ "seq", "id", "{id}", NULL },
		{ "seq", "message_id", "{id}", "17" },
		{ "id", "id", "{id}", "17" },
		{ "message_id", "", "{message_id}", "17" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct settings s = { .topic = cases[i].topic };
		struct row row = { .field = { [FIELD_ID] = "17", [FIELD_ENTITY] = "c", [FIELD_MESSAGE_ID] = "7" } };
		struct outbox_config o = outbox_of(&s);
		_cleanup_(route_freep) struct route *r = NULL;
		struct batch *b;
		struct error err;

		o.columns.id.name = text(cases[i].id);
		o.columns.message_id.name = text(cases[i].message_id);
		if (!cases[i].expanded) {
			assert_false(route_compile(&o, &r, &err));
			assert_string_equal(err.message,
					    "outboxes.orders.route.topic \"{id}\": character 2: {id} can mean two "
					    "things: columns.id is seq, columns.message_id is id");
			assert_string_equal(err.hint, "write {seq} or {message_id}");
			continue;
		}
		assert_true(route_compile(&o, &r, &err));
		b = batch_of(&row, TYPE_TEXT, 0);
		assert_true(route_row(r, b, 0, &err));
		assert_slice(b->events[0].topic, cases[i].expanded);
		batch_free(b);
	}
}

static void other_columns_are_listed_once_in_the_order_of_their_first_use(void **state _unused_)
{
	static const struct settings s = {
		.topic = "{tenant}.{entity_type}",
		.key = "{region}",
		.headers = { { "a", "{tenant}/{shop}", NULL } },
	};
	struct outbox_config o = outbox_of(&s);
	_cleanup_(route_freep) struct route *r = NULL;
	const char *const *extra;
	struct error err;
	size_t n;

	assert_true(route_compile(&o, &r, &err));
	assert_null(route_constant_topic(r));
	extra = route_extra_columns(r, &n);
	assert_int_equal(n, 3);
	assert_string_equal(extra[0], "tenant");
	assert_string_equal(extra[1], "region");
	assert_string_equal(extra[2], "shop");
}

static void more_other_columns_than_there_is_room_for_are_refused(void **state _unused_)
{
	_cleanup_(buf_release) struct buf topic;
	struct route *r = NULL;
	struct error err;

	buf_init(&topic, 1000);
	for (int i = 0; i < 65; i++)
		buf_printf(&topic, "{c%d}", i);
	struct outbox_config o = outbox_of(&(struct settings){ .topic = buf_str(&topic) });
	assert_false(route_compile(&o, &r, &err));
	assert_non_null(strstr(err.message, "{c64} is one column too many"));
}

static void a_table_without_a_needed_column_is_noticed_at_the_start(void **state _unused_)
{
	static const struct {
		struct settings settings;
		enum field missing;
		const char *message;            /* NULL: not needed */
	} cases[] = {
		{ { 0 }, FIELD_ENTITY_TYPE,
		  "outboxes.orders.route.topic needs the entity_type of a row, and \"public\".\"outbox\" has no column "
		  "\"entity_type\"" },
		{ { .topic = "orders" }, FIELD_ENTITY_TYPE, NULL },
		{ { .topic = "orders" }, FIELD_EVENT_TYPE, NULL },
		{ { .envelope = ENVELOPE_CLOUDEVENTS }, FIELD_EVENT_TYPE,
		  "outboxes.orders.route.envelope needs the event_type of a row, and \"public\".\"outbox\" has no "
		  "column \"event_type\"" },
		{ { .envelope = ENVELOPE_CLOUDEVENTS, .headers = { { "ce_type", "x", NULL } } },
		  FIELD_EVENT_TYPE, NULL },
		{ { .envelope = ENVELOPE_CLOUDEVENTS }, FIELD_MESSAGE_ID, NULL },
		{ { .key = "{message_id}" }, FIELD_MESSAGE_ID, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct outbox_config o = outbox_of(&cases[i].settings);
		_cleanup_(route_freep) struct route *r = NULL;
		struct table t = { .name = text("\"public\".\"outbox\"") };
		struct error err;

		for (int f = 0; f < FIELD_EXTRA; f++)
			t.columns[f].name = text(f == (int)cases[i].missing ? NULL : "there");
		assert_true(route_compile(&o, &r, &err));
		assert_int_equal(route_check_table(r, &t, &err), cases[i].message == NULL);
		if (cases[i].message)
			assert_string_equal(err.message, cases[i].message);
	}
}

/* --- letters -------------------------------------------------------------------------------------------------- */

static struct error *reason(void)
{
	struct error *why = mem_new(struct error);

	error_set(why, ERROR_REJECTED, "too large");
	return why;
}

static const char *header_of(const struct event *ev, const char *name)
{
	static char value[64];

	for (uint32_t i = 0; i < ev->n_headers; i++) {
		if (!slice_is(ev->headers[i].name, name))
			continue;
		snprintf(value, sizeof(value), "%.*s", (int)ev->headers[i].value.len, ev->headers[i].value.ptr);
		return value;
	}
	return NULL;
}

static void letter_release(struct routed *r)
{
	free(r->ev->failure);
	free(r->ev->reason);
	routed_release(r);
}

static void a_letter_is_the_same_message_to_another_topic_with_its_reason(void **state _unused_)
{
	struct settings s = { .letters = "dead.{entity_type}" };
	struct routed r;
	uint32_t headers;

	route(&r, &s, &usual_row);
	assert_true(r.ok);
	headers = r.ev->n_headers;
	r.ev->attempt = 4;
	r.ev->failure = reason();
	assert_true(route_letter(r.route, r.ev));
	assert_true(r.ev->letter && r.ev->alone);
	assert_true(slice_is(r.ev->topic, "dead.Order"));
	assert_true(slice_is(r.ev->meant_for, "outbox.event.Order"));
	assert_true(slice_is(event_own_topic(r.ev), "outbox.event.Order"));
	assert_true(slice_is(r.ev->payload, "{\"total\": 9.90}"));
	assert_null(r.ev->failure);
	assert_string_equal(r.ev->reason->message, "too large");
	assert_int_equal(r.ev->n_headers, headers + 4);
	assert_string_equal(header_of(r.ev, "postrider-dead-topic"), "outbox.event.Order");
	assert_string_equal(header_of(r.ev, "postrider-dead-kind"), "rejected");
	assert_string_equal(header_of(r.ev, "postrider-dead-error"), "too large");
	assert_string_equal(header_of(r.ev, "postrider-dead-attempts"), "5");
	letter_release(&r);
}

static void there_is_no_letter_without_a_topic_for_it(void **state _unused_)
{
	struct settings none = { 0 }, of_null = { .letters = "{traceparent}" };
	struct routed r;

	route(&r, &none, &usual_row);
	r.ev->failure = reason();
	assert_false(route_letter(r.route, r.ev));
	assert_false(r.ev->letter);
	assert_non_null(r.ev->failure);
	letter_release(&r);

	route(&r, &of_null, &usual_row);
	r.ev->failure = reason();
	assert_false(route_letter(r.route, r.ev));
	assert_non_null(r.ev->failure);
	letter_release(&r);
}

/* ---- Replays ----------------------------------------------------------------------------------------------------- */

/* The same row on its way once more. */
static void route_again(struct routed *r, const struct settings *s, const struct row *row, bool topic_for_all)
{
	route(r, s, row);
	route_mark_replay(r->route, "2026-11-15T10:00:00Z", topic_for_all);
	r->ok = route_row(r->route, r->batch, 0, &r->err);
}

static void a_replay_says_so_and_a_row_cannot_say_otherwise(void **state _unused_)
{
	static const struct {
		struct settings settings;
		const char *json, *expected;
	} cases[] = {
		{ { .preset = PRESET_DEBEZIUM }, NULL, "id=17\npostrider-replay=2026-11-15T10:00:00Z\n" },
		{ { .preset = PRESET_DEBEZIUM, .headers = { { "id", "x", NULL } } }, NULL,
		  "id=x\npostrider-replay=2026-11-15T10:00:00Z\n" },
		{ { .preset = PRESET_DEBEZIUM }, "{\"postrider-replay\": \"no\", \"a\": 1}",
		  "id=17\npostrider-replay=2026-11-15T10:00:00Z\na=1\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(routed_release) struct routed r;
		struct row row = row_with(FIELD_HEADERS, cases[i].json);

		row.field[FIELD_MESSAGE_ID] = NULL;
		row.field[FIELD_TRACEPARENT] = NULL;
		route_again(&r, &cases[i].settings, &row, false);
		assert_headers(&r, cases[i].expected);
	}
}

static void a_replay_of_a_cloud_event_has_an_attribute_for_it(void **state _unused_)
{
	_cleanup_(routed_release) struct routed r;
	const struct header *last;

	route_again(&r, &(struct settings){ .envelope = ENVELOPE_CLOUDEVENTS }, &usual_row, false);
	assert_true(r.ok);
	last = &r.ev->headers[r.ev->n_headers - 1];
	assert_slice(last->name, "ce_postriderreplay");
	assert_slice(last->value, "2026-11-15T10:00:00Z");
}

static void a_replay_may_go_elsewhere_than_its_rows_say(void **state _unused_)
{
	struct row row = row_with(FIELD_TOPIC, "own");

	for (int for_all = 0; for_all <= 1; for_all++) {
		_cleanup_(routed_release) struct routed r;

		route_again(&r, &(struct settings){ .topic = "other.{topic}" }, &row, for_all);
		assert_true(r.ok);
		assert_slice(r.ev->topic, for_all ? "other.own" : "own");
	}
}

static const char *no_spaces(struct slice topic)
{
	return memchr(topic.ptr, ' ', topic.len) ? "has a space" : NULL;
}

static void test_topics_that_a_sink_can_never_take(void **state _unused_)
{
	struct settings s = { .topic = "to {entity_type}" };
	struct row row = { .field = { [FIELD_ID] = "17", [FIELD_ENTITY] = "c", [FIELD_ENTITY_TYPE] = "order" } };
	struct outbox_config o = outbox_of(&s);
	_cleanup_(route_freep) struct route *r = NULL;
	struct batch *b = batch_of(&row, TYPE_TEXT, 0);
	struct error err;

	assert_true(route_compile(&o, &r, &err));
	assert_true(route_row(r, b, 0, &err));
	assert_true(route_mind_topics(r, no_spaces, &err));
	assert_true(route_mind_topics(r, no_spaces, &err));
	assert_false(route_row(r, b, 0, &err));
	assert_int_equal(err.kind, ERROR_REJECTED);
	assert_string_equal(err.message, "row 17 cannot be routed: its topic \"to order\" has a space");
	batch_free(b);
}

static void test_a_topic_of_all_rows_that_a_sink_can_never_take(void **state _unused_)
{
	struct settings s = { .topic = "one for all" };
	struct outbox_config o = outbox_of(&s);
	_cleanup_(route_freep) struct route *r = NULL;
	struct error err;

	assert_true(route_compile(&o, &r, &err));
	assert_false(route_mind_topics(r, no_spaces, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_string_equal(err.message, "outboxes.orders.route.topic \"one for all\" has a space");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_plain_row_fills_the_whole_event),
		cmocka_unit_test(payload_and_key_point_into_the_result),
		cmocka_unit_test(topic_and_key_come_from_templates_and_columns),
		cmocka_unit_test(an_empty_payload_is_a_null_value_only_when_asked_for),
		cmocka_unit_test(bytes_pass_as_they_are),
		cmocka_unit_test(the_id_stands_in_for_a_missing_message_id),
		cmocka_unit_test(times_leave_as_rfc_3339),
		cmocka_unit_test(later_headers_replace_earlier_ones),
		cmocka_unit_test(traceparent_is_a_header),
		cmocka_unit_test(the_debezium_preset_writes_what_its_router_writes),
		cmocka_unit_test(cloudevents_have_their_attributes),
		cmocka_unit_test(braces_in_the_name_of_an_outbox_are_no_template),
		cmocka_unit_test(a_header_of_the_user_replaces_an_attribute),
		cmocka_unit_test(a_rejected_row_says_why_and_keeps_id_and_entity),
		cmocka_unit_test(wrong_templates_name_the_setting_and_the_place),
		cmocka_unit_test(names_are_parts_or_columns_and_never_guessed),
		cmocka_unit_test(other_columns_are_listed_once_in_the_order_of_their_first_use),
		cmocka_unit_test(more_other_columns_than_there_is_room_for_are_refused),
		cmocka_unit_test(a_table_without_a_needed_column_is_noticed_at_the_start),
		cmocka_unit_test(a_letter_is_the_same_message_to_another_topic_with_its_reason),
		cmocka_unit_test(there_is_no_letter_without_a_topic_for_it),
		cmocka_unit_test(a_replay_says_so_and_a_row_cannot_say_otherwise),
		cmocka_unit_test(a_replay_of_a_cloud_event_has_an_attribute_for_it),
		cmocka_unit_test(a_replay_may_go_elsewhere_than_its_rows_say),
		cmocka_unit_test(test_topics_that_a_sink_can_never_take),
		cmocka_unit_test(test_a_topic_of_all_rows_that_a_sink_can_never_take),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
