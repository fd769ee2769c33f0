#include "sink/nats_answer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "relay/json_scan.h"

/* Members that we know, at the top or inside the one that is called error. */
enum member { MEMBER_OTHER, MEMBER_ERROR, MEMBER_CODE, MEMBER_CLASS, MEMBER_DESCRIPTION, MEMBER_STREAM, MEMBER_STREAMS };

static const struct {
	bool inside_error;
	const char *name;
	enum member member;
} members[] = {
	{ false, "error", MEMBER_ERROR },
	{ true, "err_code", MEMBER_CODE },
	{ true, "code", MEMBER_CLASS },
	{ true, "description", MEMBER_DESCRIPTION },
	{ false, "stream", MEMBER_STREAM },
	{ false, "streams", MEMBER_STREAMS },
};

struct reading {
	struct json_scan scan;
	struct arena arena;
	struct nats_answer *answer;
};

static enum member which(struct slice name, bool inside_error)
{
	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		if (members[i].inside_error == inside_error && slice_is(name, members[i].name))
			return members[i].member;
	return MEMBER_OTHER;
}

static bool read_text(struct reading *r, char *ret, size_t size)
{
	struct slice text;

	if (json_scan_peek(&r->scan) != '"')
		return json_scan_value(&r->scan, 1);
	if (!json_scan_string(&r->scan, &r->arena, &text))
		return false;
	snprintf(ret, size, "%.*s", (int)MIN(text.len, size - 1), text.ptr);
	return true;
}

static bool read_number(struct reading *r, int *ret)
{
	const char *first = r->scan.at;
	char digits[16];

	if (!json_scan_value(&r->scan, 1))
		return false;
	snprintf(digits, sizeof(digits), "%.*s", (int)MIN(r->scan.at - first, 15), first);
	*ret = (int)strtol(digits, NULL, 10);
	return true;
}

/* Names of streams; the first is enough. */
static bool read_first(struct reading *r)
{
	struct json_scan before = r->scan;

	if (json_scan_accept(&r->scan, '[')) {
		json_scan_space(&r->scan);
		if (!read_text(r, r->answer->stream, sizeof(r->answer->stream)))
			r->answer->stream[0] = '\0';
	}
	r->scan = before;
	return json_scan_value(&r->scan, 1);
}

static bool take_inside_error(void *reading, struct slice name);

static bool read_member(struct reading *r, enum member member)
{
	struct nats_answer *a = r->answer;

	switch (member) {
	case MEMBER_ERROR:
		a->refused = true;
		return json_scan_members(&r->scan, &r->arena, take_inside_error, r);
	case MEMBER_CODE:
		return read_number(r, &a->code);
	case MEMBER_CLASS:
		return read_number(r, &a->class);
	case MEMBER_DESCRIPTION:
		return read_text(r, a->description, sizeof(a->description));
	case MEMBER_STREAM:
		return read_text(r, a->stream, sizeof(a->stream));
	case MEMBER_STREAMS:
		return read_first(r);
	case MEMBER_OTHER:
		break;
	}
	return json_scan_value(&r->scan, 1);
}

static bool take_top(void *reading, struct slice name)
{
	return read_member(reading, which(name, false));
}

static bool take_inside_error(void *reading, struct slice name)
{
	return read_member(reading, which(name, true));
}

bool nats_answer_read(struct slice json, struct nats_answer *ret)
{
	struct reading r = { .scan = { json.ptr, json.ptr + json.len, NULL }, .answer = ret };
	bool ok;

	*ret = (struct nats_answer){ 0 };
	arena_init(&r.arena);
	json_scan_space(&r.scan);
	ok = json.ptr && json_scan_members(&r.scan, &r.arena, take_top, &r);
	arena_release(&r.arena);
	return ok;
}
