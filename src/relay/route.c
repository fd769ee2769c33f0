#include "relay/route.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/table.h"
#include "relay/envelope.h"
#include "relay/field.h"
#include "relay/headers.h"
#include "relay/names.h"
#include "relay/rfc3339.h"
#include "relay/template.h"

struct route_header {
	struct slice name;              /* in the settings */
	struct template *value;
};

enum { ROUTE_FAULTS_MAX = 8 };          /* there are fewer types of sinks */

struct route {
	const struct outbox_config *outbox;
	struct template *topic;
	struct template *key;
	struct template *letters;       /* topic of dead letters; NULL: they have none */
	struct template *source;        /* NULL unless the envelope has one */
	struct route_header *headers;
	uint32_t n_headers;
	struct envelope envelope;
	struct names names;
	topic_fault *faults[ROUTE_FAULTS_MAX];  /* of different sinks; the rest is NULL */
	struct header replay;           /* in every message; a NULL name: in none */
	bool topic_for_all;             /* rows do not choose their topic */
};

/* ---- Compiling --------------------------------------------------------------------------------------------------- */

/* `where` is file:line:column, or NULL. */
static bool compile(struct route *r, const char *text, const char *setting, const char *where, struct template **ret,
		    struct error *err)
{
	bool ok;

	r->names.setting = setting;
	ok = template_compile(text, names_resolve, &r->names, ret, err);
	r->names.setting = NULL;
	if (ok)
		return true;
	error_prefix(err, "%s \"%s\"", setting, text);
	return where ? error_prefix(err, "%s", where) : false;
}

static bool compile_setting(struct route *r, const char *name, const char *text, struct template **ret,
			    struct error *err)
{
	_cleanup_(mem_freep) char *setting = mem_printf("outboxes.%s.route.%s", outbox_path(r->outbox), name);

	return compile(r, text ? text : "", setting, NULL, ret, err);
}

static bool compile_topic(struct route *r, struct error *err)
{
	const char *constant;

	if (!compile_setting(r, "topic", r->outbox->route.topic, &r->topic, err))
		return false;
	constant = template_constant(r->topic);
	if (!constant || *constant)
		return true;
	error_set(err, ERROR_CONFIG, "outboxes.%s.route.topic is empty", outbox_path(r->outbox));
	return error_hint(err, "name a topic, or a template such as outbox.event.{entity_type}");
}

/* An outbox may have braces in its name, and they are no holes. The caller frees. */
static char *default_source(const char *outbox)
{
	struct buf b;

	buf_init(&b, sizeof("/postrider/") + 2 * strlen(outbox));
	buf_add_str(&b, "/postrider/");
	for (const char *c = outbox; *c; c++) {
		buf_add_char(&b, *c);
		if (*c == '{' || *c == '}')
			buf_add_char(&b, *c);
	}
	return buf_take(&b);
}

static bool compile_source(struct route *r, struct error *err)
{
	_cleanup_(mem_freep) char *fallback = NULL;
	const char *source = r->outbox->route.source;

	if (r->outbox->route.envelope != ENVELOPE_CLOUDEVENTS)
		return true;
	if (!source || !*source)
		source = fallback = default_source(r->outbox->name);
	return compile_setting(r, "source", source, &r->source, err);
}

static bool compile_letters(struct route *r, struct error *err)
{
	_cleanup_(mem_freep) char *setting = mem_printf("outboxes.%s.failure.dead_letter_topic", outbox_path(r->outbox));
	const char *topic = r->outbox->failure.dead_letter_topic;

	return !topic || !*topic || compile(r, topic, setting, NULL, &r->letters, err);
}

static struct route_header *header_named(struct route *r, struct slice name)
{
	for (uint32_t i = 0; i < r->n_headers; i++)
		if (slice_equal(r->headers[i].name, name))
			return &r->headers[i];
	return NULL;
}

static bool compile_header(struct route *r, const struct config_pair *pair, struct error *err)
{
	_cleanup_(mem_freep) char *setting = mem_printf("outboxes.%s.route.headers.%s", outbox_path(r->outbox), pair->key);
	_cleanup_(template_freep) struct template *value = NULL;
	struct slice name = slice_of(pair->key);
	struct route_header *h = header_named(r, name);

	if (!compile(r, pair->value, setting, pair->where, &value, err))
		return false;
	if (!h) {
		h = &r->headers[r->n_headers++];
		h->name = name;
		envelope_hide(&r->envelope, name);
	}
	template_free(h->value);
	h->value = TAKE_PTR(value);
	return true;
}

static bool compile_headers(struct route *r, struct error *err)
{
	const struct config_map *map = &r->outbox->route.headers;

	r->headers = mem_new_array(struct route_header, map->count);
	for (size_t i = 0; i < map->count; i++)
		if (!compile_header(r, &map->pairs[i], err))
			return false;
	return true;
}

static void need_for_envelope(struct route *r)
{
	_cleanup_(mem_freep) char *setting = mem_printf("outboxes.%s.route.envelope", outbox_path(r->outbox));

	r->names.setting = setting;
	for (enum field f = 0; f < FIELD_EXTRA; f++)
		if (envelope_requires(&r->envelope, f))
			names_need(&r->names, f);
	r->names.setting = NULL;
}

bool route_compile(const struct outbox_config *outbox, struct route **ret, struct error *err)
{
	_cleanup_(route_freep) struct route *r = mem_new(struct route);

	r->outbox = outbox;
	names_init(&r->names, outbox);
	envelope_init(&r->envelope, outbox->preset, outbox->route.envelope);
	if (!compile_topic(r, err) || !compile_setting(r, "key", outbox->route.key, &r->key, err) ||
	    !compile_source(r, err) || !compile_headers(r, err) || !compile_letters(r, err))
		return false;
	need_for_envelope(r);
	*ret = TAKE_PTR(r);
	return true;
}

void route_free(struct route *r)
{
	if (!r)
		return;
	template_free(r->topic);
	template_free(r->key);
	template_free(r->source);
	template_free(r->letters);
	for (uint32_t i = 0; i < r->n_headers; i++)
		template_free(r->headers[i].value);
	free(r->headers);
	names_release(&r->names);
	free(r);
}

void route_freep(struct route **r)
{
	route_free(*r);
}

const char *const *route_extra_columns(const struct route *r, size_t *ret_count)
{
	*ret_count = r->names.n_extra;
	return (const char *const *)r->names.extra;
}

bool route_wants_relay(const struct route *r)
{
	return r->names.wants_relay;
}

const char *route_constant_topic(const struct route *r)
{
	return template_constant(r->topic);
}

bool route_check_table(const struct route *r, const struct table *t, struct error *err)
{
	return names_check_table(&r->names, t, err);
}

static bool mind_topic(const struct route *r, const struct template *t, const char *setting, topic_fault *fault,
		       struct error *err)
{
	const char *constant = t ? template_constant(t) : NULL;
	const char *why = constant ? fault(slice_of(constant)) : NULL;

	return !why || error_set(err, ERROR_CONFIG, "outboxes.%s.%s \"%s\" %s", outbox_path(r->outbox), setting, constant, why);
}

bool route_mind_topics(struct route *r, topic_fault *fault, struct error *err)
{
	int i = 0;

	while (i < ROUTE_FAULTS_MAX - 1 && r->faults[i] && r->faults[i] != fault)
		i++;
	r->faults[i] = fault;
	return mind_topic(r, r->topic, "route.topic", fault, err) &&
	       mind_topic(r, r->letters, "failure.dead_letter_topic", fault, err);
}

void route_mark_replay(struct route *r, const char *time, bool for_all)
{
	r->replay = (struct header){ envelope_replay_header(r->outbox->route.envelope), slice_of(time) };
	r->topic_for_all = for_all;
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static bool reject(const struct event *ev, struct error *err, const char *why)
{
	return error_set(err, ERROR_REJECTED, "row %.*s cannot be routed: %s", (int)MIN(ev->id.len, 200), ev->id.ptr,
			 why);
}

static bool reject_null(const struct event *ev, const char *what, const char *column, struct error *err)
{
	_cleanup_(mem_freep) char *why = mem_printf("its %s needs column %s, which is NULL", what, column);

	return reject(ev, err, why);
}

static const char *fault_of(const struct route *r, struct slice topic)
{
	const char *why = NULL;

	for (int i = 0; i < ROUTE_FAULTS_MAX && r->faults[i] && !why; i++)
		why = r->faults[i](topic);
	return why;
}

static bool reject_topic(const struct event *ev, const char *fault, struct error *err)
{
	_cleanup_(mem_freep) char *why =
		mem_printf("its topic \"%.*s\" %s", (int)MIN(ev->topic.len, 100), ev->topic.ptr, fault);

	return reject(ev, err, why);
}

static bool set_topic(const struct route *r, struct event *ev, const struct slice *values, struct error *err)
{
	const char *fault;

	ev->topic = r->topic_for_all ? SLICE_NULL : values[FIELD_TOPIC];
	if (ev->topic.len == 0)
		ev->topic = template_expand(r->topic, values, &ev->batch->arena);
	if (!ev->topic.ptr)
		return reject_null(ev, "topic", template_missing(r->topic, values), err);
	if (ev->topic.len == 0)
		return reject(ev, err, "its topic is empty");
	/* One that all rows have was looked at already. */
	fault = ev->topic.ptr == template_constant(r->topic) ? NULL : fault_of(r, ev->topic);
	return !fault || reject_topic(ev, fault, err);
}

/* An empty template says that messages have no key, which is not the same as an empty key. */
static void set_key(const struct route *r, struct event *ev, const struct slice *values)
{
	const char *constant = template_constant(r->key);

	if (!constant || *constant)
		ev->key = template_expand(r->key, values, &ev->batch->arena);
}

/* Empty as Debezium's router means it: text of nothing but white space is, JSON's null is not. */
static bool is_empty(struct slice payload, bool binary)
{
	for (size_t i = 0; i < payload.len; i++)
		if (binary || (unsigned char)payload.ptr[i] > ' ')
			return false;
	return true;
}

static void set_payload(const struct route *r, struct event *ev, const struct slice *values, bool binary)
{
	ev->payload = values[FIELD_PAYLOAD];
	if (r->outbox->route.tombstone && is_empty(ev->payload, binary))
		ev->payload = SLICE_NULL;
}

static bool add_envelope(const struct route *r, struct event *ev, struct envelope_facts *facts, struct header_list *l,
			 struct error *err)
{
	struct error why;

	if (r->source) {
		facts->source = template_expand(r->source, facts->values, &ev->batch->arena);
		if (!facts->source.ptr)
			return reject_null(ev, "source", template_missing(r->source, facts->values), err);
	}
	return envelope_add(&r->envelope, facts, l, &why) || reject(ev, err, why.message);
}

static bool add_row_headers(struct event *ev, struct slice json, struct header_list *l, struct error *err)
{
	struct error why;

	if (headers_from_json(json, &ev->batch->arena, l, &why))
		return true;
	return error_set(err, ERROR_REJECTED, "headers of row %.*s are %s", (int)MIN(ev->id.len, 200), ev->id.ptr,
			 why.message);
}

static bool set_headers(const struct route *r, struct event *ev, struct envelope_facts *facts, struct error *err)
{
	struct arena *arena = &ev->batch->arena;
	struct slice json = facts->values[FIELD_HEADERS];
	size_t room = r->envelope.count + r->n_headers + (json.ptr ? headers_json_bound(json) : 0) + 1;
	struct header_list l = { .items = arena_alloc(arena, room * sizeof(struct header)) };

	if (!add_envelope(r, ev, facts, &l, err))
		return false;
	if (json.ptr && !add_row_headers(ev, json, &l, err))
		return false;
	for (uint32_t i = 0; i < r->n_headers; i++) {
		struct slice value = template_expand(r->headers[i].value, facts->values, arena);

		/* The envelope leaves these names out, so only the row's own headers can have them already. */
		if (json.ptr)
			header_list_set(&l, r->headers[i].name, value);
		else
			header_list_add(&l, r->headers[i].name, value);
	}
	if (r->replay.name.ptr)
		header_list_set(&l, r->replay.name, r->replay.value);
	ev->headers = l.items;
	ev->n_headers = l.count;
	return true;
}

/* What templates are expanded over. *ret_timed: the row says when it was written. */
static void read_values(const struct route *r, struct batch *batch, uint32_t row, struct slice *values, bool *ret_timed)
{
	for (int i = 0; i < FIELD_EXTRA + (int)r->names.n_extra; i++)
		values[i] = field_text(batch, batch_row(batch, row), i);
	values[NAMES_RELAY_VALUE] = batch->relay;
	if (!values[FIELD_MESSAGE_ID].ptr)
		values[FIELD_MESSAGE_ID] = values[FIELD_ID];
	*ret_timed = values[FIELD_CREATED_AT].ptr &&
		     rfc3339_from_postgres(values[FIELD_CREATED_AT], &batch->arena, &values[FIELD_CREATED_AT]);
}

bool route_row(const struct route *r, struct batch *batch, uint32_t row, struct error *err)
{
	struct event *ev = &batch->events[row];
	struct slice values[NAMES_VALUES];
	struct envelope_facts facts = { .values = values };

	read_values(r, batch, row, values, &facts.timed);
	ev->id = values[FIELD_ID];
	ev->entity = values[FIELD_ENTITY];
	ev->message_id = values[FIELD_MESSAGE_ID];
	ev->entity_type = values[FIELD_ENTITY_TYPE];
	ev->event_type = values[FIELD_EVENT_TYPE];
	ev->created_at = values[FIELD_CREATED_AT];

	facts.binary = PQftype(batch->rows, FIELD_PAYLOAD) == TYPE_BYTEA;
	set_payload(r, ev, values, facts.binary);
	facts.empty = !ev->payload.ptr;
	set_key(r, ev, values);
	return set_topic(r, ev, values, err) && set_headers(r, ev, &facts, err);
}

/* ---- Letters ----------------------------------------------------------------------------------------------------- */

static void add_reasons(struct event *ev)
{
	struct arena *arena = &ev->batch->arena;
	_cleanup_(mem_freep) char *attempts = mem_printf("%u", ev->attempt + 1);
	struct header_list l = { .items = arena_alloc(arena, (ev->n_headers + 4) * sizeof(struct header)) };

	for (uint32_t i = 0; i < ev->n_headers; i++)
		header_list_add(&l, ev->headers[i].name, ev->headers[i].value);
	header_list_set(&l, SLICE_LITERAL("postrider-dead-topic"), ev->meant_for);
	header_list_set(&l, SLICE_LITERAL("postrider-dead-kind"), slice_of(error_kind_name(ev->reason->kind)));
	header_list_set(&l, SLICE_LITERAL("postrider-dead-error"), arena_copy(arena, slice_of(ev->reason->message)));
	header_list_set(&l, SLICE_LITERAL("postrider-dead-attempts"), arena_copy(arena, slice_of(attempts)));
	ev->headers = l.items;
	ev->n_headers = l.count;
}

bool route_letter(const struct route *r, struct event *ev)
{
	struct slice values[NAMES_VALUES], topic;
	bool timed;

	if (!r->letters)
		return false;
	read_values(r, ev->batch, (uint32_t)(ev - ev->batch->events), values, &timed);
	topic = template_expand(r->letters, values, &ev->batch->arena);
	if (topic.len == 0 || fault_of(r, topic))
		return false;
	ev->letter = ev->alone = true;
	ev->meant_for = ev->topic;
	ev->topic = topic;
	ev->reason = TAKE_PTR(ev->failure);
	add_reasons(ev);
	return true;
}
