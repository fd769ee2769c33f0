#include "read/wal_message.h"

#include <string.h>

#include "base/base64.h"
#include "base/buf.h"
#include "base/macros.h"
#include "relay/json_scan.h"
#include "relay/rfc3339.h"

/* Behind the fields. */
enum { OUTBOX = WAL_MESSAGE_FIELDS, N_MEMBERS };

struct reading {
	const struct table *table;
	struct wal_message *message;
	struct slice outbox;            /* that it names */
	bool seen[N_MEMBERS];
	bool refused;                   /* it is JSON, but … */
	struct error why;
};

/* The first reason stays. What is wrong does not matter while the message may be somebody else's. */
static void refuse(struct reading *r, struct slice name, const char *why)
{
	if (!r->refused)
		error_set(&r->why, ERROR_REJECTED, "member %.*s %s", (int)MIN(name.len, 100), name.ptr, why);
	r->refused = true;
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* Readers of a member's value, which is JSON already. False: it is of another kind. */

static bool read_json(struct arena *arena _unused_, struct slice json, struct slice *ret)
{
	*ret = json;
	return true;
}

static bool read_object(struct arena *arena _unused_, struct slice json, struct slice *ret)
{
	if (slice_is(json, "null"))
		return true;
	*ret = json;
	return *json.ptr == '{';
}

static bool read_string(struct arena *arena, struct slice json, struct slice *ret)
{
	struct json_scan j = { .at = json.ptr, .end = json.ptr + json.len };

	return json_scan_string(&j, arena, ret);
}

/* As a column of any type would be printed. */
static bool read_any(struct arena *arena, struct slice json, struct slice *ret)
{
	if (slice_is(json, "null"))
		return true;
	return *json.ptr == '"' ? read_string(arena, json, ret) : read_json(arena, json, ret);
}

static bool read_text(struct arena *arena, struct slice json, struct slice *ret)
{
	return !strchr("{[tf", *json.ptr) && read_any(arena, json, ret);
}

static bool read_rfc3339(struct arena *arena, struct slice json, struct slice *ret)
{
	struct slice text;

	if (slice_is(json, "null"))
		return true;
	return read_string(arena, json, &text) && rfc3339_from_postgres(text, arena, ret);
}

/* PostgreSQL's encode() puts line feeds into what is long. */
static bool read_base64(struct arena *arena, struct slice json, struct slice *ret)
{
	struct slice text;
	char *bytes;

	if (!read_string(arena, json, &text))
		return false;
	bytes = arena_alloc(arena, BASE64_ROOM(text.len));
	ret->ptr = bytes;
	return base64_read(text, bytes, &ret->len);
}

/* ---- Members ----------------------------------------------------------------------------------------------------- */

struct member {
	const char *name;
	int field;
	bool (*read)(struct arena *arena, struct slice json, struct slice *ret);
	const char *otherwise;
};

#define MEMBERS                                                                                              \
	"outbox, message_id, entity_type, entity_id, event_type, topic, headers, traceparent, created_at, payload" \
	", payload_base64"
#define NO_TEXT "is neither text nor a number"

static const struct member members[] = {
	{ "outbox", OUTBOX, read_text, NO_TEXT },
	{ "message_id", FIELD_MESSAGE_ID, read_text, NO_TEXT },
	{ "entity_type", FIELD_ENTITY_TYPE, read_text, NO_TEXT },
	{ "entity_id", FIELD_ENTITY, read_text, NO_TEXT },
	{ "event_type", FIELD_EVENT_TYPE, read_text, NO_TEXT },
	{ "topic", FIELD_TOPIC, read_text, NO_TEXT },
	{ "headers", FIELD_HEADERS, read_object, "is not an object" },
	{ "traceparent", FIELD_TRACEPARENT, read_text, NO_TEXT },
	{ "created_at", FIELD_CREATED_AT, read_rfc3339, "is not a time such as 2026-11-15T09:45:27Z" },
	{ "payload", FIELD_PAYLOAD, read_json, "" },
	{ "payload_base64", FIELD_PAYLOAD, read_base64, "is not base64" },
};

/* What routing's templates name besides is a member too. False: no such thing. */
static bool find_member(const struct table *t, struct slice name, struct member *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		if (!slice_is(name, members[i].name))
			continue;
		*ret = members[i];
		return true;
	}
	for (size_t i = 0; i < t->n_extra; i++) {
		if (!slice_is(name, t->extra[i].name))
			continue;
		*ret = (struct member){ t->extra[i].name, FIELD_EXTRA + (int)i, read_any, "" };
		return true;
	}
	return false;
}

/* Refused rather than passed over: behind a name that nobody knows is data that somebody misses. */
static void take_member(struct reading *r, struct slice name, struct slice json)
{
	struct member member;
	struct slice *value;

	if (!find_member(r->table, name, &member)) {
		refuse(r, name, "is unknown");
		return;
	}
	value = member.field == OUTBOX ? &r->outbox : &r->message->fields[member.field];
	if (r->seen[member.field])
		refuse(r, name, "is there twice");
	else if (!member.read(&r->message->arena, json, value))
		refuse(r, name, member.otherwise);
	r->seen[member.field] = true;
}

static bool scan_member(struct json_scan *j, struct reading *r)
{
	const char *first;
	struct slice name;

	if (!json_scan_string(j, &r->message->arena, &name))
		return false;
	json_scan_space(j);
	if (!json_scan_accept(j, ':'))
		return json_scan_problem(j, "a colon was expected");
	json_scan_space(j);
	first = j->at;
	if (!json_scan_value(j, 1))
		return false;
	take_member(r, name, (struct slice){ first, (size_t)(j->at - first) });
	return true;
}

static bool scan_members(struct json_scan *j, struct reading *r)
{
	json_scan_space(j);
	if (json_scan_accept(j, '}'))
		return true;
	for (;;) {
		if (!scan_member(j, r))
			return false;
		json_scan_space(j);
		if (json_scan_accept(j, '}'))
			return true;
		if (!json_scan_accept(j, ','))
			return json_scan_problem(j, "a comma was expected");
		json_scan_space(j);
	}
}

/* The message may have been written as bytea, and nobody has checked its encoding. An entity that is not UTF-8 would be
 * an error of every statement that has it as a parameter. */
static bool check_encoding(struct json_scan *j)
{
	const char *first = j->at;

	while (j->at < j->end) {
		size_t n = utf8_length((const unsigned char *)j->at, (size_t)(j->end - j->at));

		if (n == 0)
			return json_scan_problem(j, "not UTF-8");
		j->at += n;
	}
	j->at = first;
	return true;
}

static bool scan_message(struct json_scan *j, struct reading *r)
{
	if (!check_encoding(j))
		return false;
	json_scan_space(j);
	if (!json_scan_accept(j, '{'))
		return json_scan_problem(j, "{ was expected");
	if (!scan_members(j, r))
		return false;
	json_scan_space(j);
	return j->at == j->end || json_scan_problem(j, "something follows the object");
}

static bool read_message(struct reading *r, struct slice json, struct error *err)
{
	struct json_scan j = { .at = json.ptr, .end = json.ptr + json.len };

	if (scan_message(&j, r))
		return true;
	return error_set(err, ERROR_REJECTED, "not a JSON object that can be used (byte %zu: %s)",
			 (size_t)(j.at - json.ptr) + 1, j.problem);
}

static bool check_members(struct reading *r, struct error *err)
{
	if (!r->message->fields[FIELD_ENTITY].ptr)
		refuse(r, SLICE_LITERAL("entity_id"), "is missing");
	if (!r->message->fields[FIELD_PAYLOAD].ptr)
		refuse(r, SLICE_LITERAL("payload"), "is missing, and payload_base64 too");
	if (!r->refused)
		return true;
	*err = r->why;
	return error_hint(err, "members are " MEMBERS ", and columns that templates name");
}

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

bool wal_message_read(struct wal_message *m, const struct table *table, struct slice json, const char *outbox,
		      uint64_t lsn, bool *ret_foreign, struct error *err)
{
	struct reading r = { .table = table, .message = m };

	wal_lsn_write(m->id, lsn);
	if (!read_message(&r, json, err))
		return error_prefix(err, "logical message %s", m->id);
	if (r.outbox.ptr && !slice_is(r.outbox, outbox)) {
		*ret_foreign = true;
		return true;
	}
	if (!check_members(&r, err))
		return error_prefix(err, "logical message %s", m->id);
	m->fields[FIELD_ID] = slice_of(m->id);
	*ret_foreign = false;
	return true;
}

void wal_message_release(struct wal_message *m)
{
	arena_release(&m->arena);
	*m = (struct wal_message){ 0 };
}
