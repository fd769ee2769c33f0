#include "relay/headers.h"

#include <string.h>

#include "relay/json_scan.h"

void header_list_set(struct header_list *l, struct slice name, struct slice value)
{
	for (uint32_t i = 0; i < l->count; i++) {
		if (slice_equal(l->items[i].name, name)) {
			l->items[i].value = value;
			return;
		}
	}
	header_list_add(l, name, value);
}

/* Every member has a colon. */
uint32_t headers_json_bound(struct slice json)
{
	const char *end = json.ptr + json.len;
	uint32_t n = 0;

	for (const char *p = json.ptr; n < HEADERS_JSON_MAX && (p = memchr(p, ':', (size_t)(end - p))); p++)
		n++;
	return n;
}

/* Checked JSON without the white space between its tokens. */
static struct slice compact(struct slice checked, struct arena *arena)
{
	char *text = arena_alloc(arena, checked.len + 1), *to = text;
	bool inside = false;

	for (size_t i = 0; i < checked.len; i++) {
		char c = checked.ptr[i];

		if (!inside && (c == ' ' || c == '\t' || c == '\n' || c == '\r'))
			continue;
		*to++ = c;
		if (c == '"')
			inside = !inside;
		else if (c == '\\')
			*to++ = checked.ptr[++i];
	}
	return (struct slice){ text, (size_t)(to - text) };
}

static bool read_value(struct json_scan *j, struct arena *arena, struct slice *ret)
{
	const char *first = j->at;
	int kind = json_scan_peek(j);

	if (kind == '"')
		return json_scan_string(j, arena, ret);
	if (!json_scan_value(j, 1))
		return false;
	*ret = (struct slice){ first, (size_t)(j->at - first) };
	if (kind == 'n')
		*ret = SLICE_NULL;
	else if (kind == '{' || kind == '[')
		*ret = compact(*ret, arena);
	return true;
}

static bool read_member(struct json_scan *j, struct arena *arena, struct header *ret)
{
	if (!json_scan_string(j, arena, &ret->name))
		return false;
	json_scan_space(j);
	if (!json_scan_accept(j, ':'))
		return json_scan_problem(j, "a colon was expected");
	json_scan_space(j);
	return read_value(j, arena, &ret->value);
}

static bool read_members(struct json_scan *j, struct arena *arena, struct header_list *l)
{
	struct header h;

	json_scan_space(j);
	if (json_scan_accept(j, '}'))
		return true;
	for (int n = 0; n < HEADERS_JSON_MAX; n++) {
		if (!read_member(j, arena, &h))
			return false;
		header_list_set(l, h.name, h.value);
		json_scan_space(j);
		if (json_scan_accept(j, '}'))
			return true;
		if (!json_scan_accept(j, ','))
			return json_scan_problem(j, "a comma was expected");
		json_scan_space(j);
	}
	return json_scan_problem(j, "too many headers");
}

static bool read_document(struct json_scan *j, struct arena *arena, struct header_list *l)
{
	json_scan_space(j);
	if (json_scan_accept(j, '{')) {
		if (!read_members(j, arena, l))
			return false;
	} else if (json_scan_peek(j) != 'n' || !json_scan_value(j, 1)) {
		return json_scan_problem(j, "{ was expected");
	}
	json_scan_space(j);
	return j->at == j->end || json_scan_problem(j, "something follows the object");
}

bool headers_from_json(struct slice json, struct arena *arena, struct header_list *l, struct error *err)
{
	struct json_scan j = { .at = json.ptr, .end = json.ptr + json.len };

	if (read_document(&j, arena, l))
		return true;
	return error_set(err, ERROR_REJECTED, "not a JSON object that can be used (byte %zu: %s)",
			 (size_t)(j.at - json.ptr) + 1, j.problem);
}
