#include "aws/members.h"

#include <stdio.h>

#include "base/macros.h"

struct reading {
	struct json_scan *scan;
	struct arena *arena;
	const struct aws_member *members;
	uint32_t n;
};

static const struct aws_member *find(const struct reading *r, struct slice name)
{
	for (uint32_t i = 0; i < r->n; i++)
		if (slice_is(name, r->members[i].name))
			return &r->members[i];
	return NULL;
}

static bool take(void *reading, struct slice name)
{
	struct reading *r = reading;
	const struct aws_member *m = find(r, name);
	struct slice text;

	if (!m || json_scan_peek(r->scan) != '"')
		return json_scan_value(r->scan, 1);
	if (!json_scan_string(r->scan, r->arena, &text))
		return false;
	snprintf(m->ret, m->room, "%.*s", (int)MIN(text.len, m->room - 1), text.ptr);
	return true;
}

bool aws_members_scan(struct json_scan *j, struct arena *arena, const struct aws_member members[], uint32_t n)
{
	struct reading r = { j, arena, members, n };

	for (uint32_t i = 0; i < n; i++)
		members[i].ret[0] = '\0';
	return json_scan_members(j, arena, take, &r);
}

bool aws_members_read(struct slice json, const struct aws_member members[], uint32_t n)
{
	struct json_scan j = { .at = json.ptr, .end = json.ptr + json.len };
	struct arena arena;
	bool ok;

	arena_init(&arena);
	json_scan_space(&j);
	ok = aws_members_scan(&j, &arena, members, n);
	arena_release(&arena);
	return ok;
}
