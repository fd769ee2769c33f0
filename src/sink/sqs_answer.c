#include "sink/sqs_answer.h"

#include <string.h>

#include "aws/members.h"
#include "base/macros.h"

struct reading {
	struct json_scan scan;
	struct arena arena;
	struct sqs_answer *answer;
	bool told[SQS_BATCH_MAX];
};

/* Our numbers are one digit. Others we did not send. */
static int number_of(const char *id)
{
	return id[0] >= '0' && id[0] <= '9' && id[1] == '\0' ? id[0] - '0' : -1;
}

static void settle(struct reading *r, const char *id, enum sqs_fate fate, const struct aws_refusal *why)
{
	int number = number_of(id);

	if (number < 0)
		return;
	r->answer->fate[number] = r->told[number] ? SQS_UNKNOWN : fate;
	r->told[number] = true;
	if (why)
		r->answer->why[number] = *why;
}

static bool take_stored(void *reading)
{
	struct reading *r = reading;
	char id[8];
	const struct aws_member members[] = { AWS_MEMBER("Id", id) };

	if (!aws_members_scan(&r->scan, &r->arena, members, ARRAY_SIZE(members)))
		return false;
	settle(r, id, SQS_STORED, NULL);
	return true;
}

static bool take_refused(void *reading)
{
	struct reading *r = reading;
	struct aws_refusal why;
	char id[8];
	const struct aws_member members[] = {
		AWS_MEMBER("Id", id),
		AWS_MEMBER("Code", why.code),
		AWS_MEMBER("Message", why.message),
	};

	if (!aws_members_scan(&r->scan, &r->arena, members, ARRAY_SIZE(members)))
		return false;
	aws_refusal_trim(&why);
	settle(r, id, SQS_REFUSED, &why);
	return true;
}

static bool take_member(void *reading, struct slice name)
{
	struct reading *r = reading;
	bool is_list = json_scan_peek(&r->scan) == '[';

	if (is_list && slice_is(name, "Successful"))
		return json_scan_elements(&r->scan, take_stored, r);
	if (is_list && slice_is(name, "Failed"))
		return json_scan_elements(&r->scan, take_refused, r);
	return json_scan_value(&r->scan, 1);
}

bool sqs_answer_read(struct slice json, struct sqs_answer *ret)
{
	struct reading r = { .scan = { json.ptr, json.ptr + json.len, NULL }, .answer = ret };
	bool ok;

	memset(ret, 0, sizeof(*ret));
	arena_init(&r.arena);
	json_scan_space(&r.scan);
	ok = json.ptr && json_scan_members(&r.scan, &r.arena, take_member, &r);
	arena_release(&r.arena);
	if (!ok)
		memset(ret, 0, sizeof(*ret));
	return ok;
}
