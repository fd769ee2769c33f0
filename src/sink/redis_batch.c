#include "sink/redis_batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sink/redis_entry.h"
#include "sink/redis_errors.h"
#include "sink/redis_link.h"

/* A row that was refused before goes alone: it would discard the others once more. */
static bool may_join(const struct redis_batch *b, const struct event *ev, size_t bytes)
{
	return b->count < REDIS_BATCH_EVENTS && bytes < REDIS_BATCH_BYTES && !ev->alone && !b->events[0]->alone;
}

uint32_t redis_batch_begin(struct redis_batch *b, struct event *const events[], uint32_t n)
{
	size_t bytes = 0;

	*b = (struct redis_batch){ 0 };
	for (uint32_t i = 0; i < n; i++) {
		size_t size = redis_entry_bytes(events[i]);

		if (size > REDIS_ENTRY_MAX_BYTES || (i > 0 && !may_join(b, events[i], bytes)))
			break;
		b->events[b->count++] = events[i];
		bytes += size;
	}
	return b->count;
}

void redis_batch_write(const struct redis_batch *b, int64_t max_len, struct buf *text)
{
	buf_add_command(text, (const char *const[]){ "MULTI" }, 1);
	for (uint32_t i = 0; i < b->count; i++)
		buf_add_xadd(text, b->events[i], max_len);
	buf_add_command(text, (const char *const[]){ "EXEC" }, 1);
}

static bool is_about_server(const struct error *why)
{
	return why && (why->kind == ERROR_TRANSPORT || why->kind == ERROR_THROTTLED);
}

static void blame_event(struct redis_batch *b, uint32_t i, const redisReply *reply)
{
	struct error err;

	if (reply->type != REDIS_REPLY_ERROR || b->why[i])
		return;
	redis_error_set(&err, redis_reply_text(reply));
	b->why[i] = error_copy(&err);
	b->refused++;
	/* The rows ahead of it must arrive first, and they cannot in a transaction that it discards. */
	if (!is_about_server(&err))
		b->events[i]->alone = true;
}

static void blame_whole(struct redis_batch *b, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_ERROR)
		redis_error_set(&b->whole, redis_reply_text(reply));
	else
		error_set(&b->whole, ERROR_LOST, "Redis answered a transaction with something else");
}

static void take_executed(struct redis_batch *b, const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == b->count) {
		b->executed = true;
		for (uint32_t i = 0; i < b->count; i++)
			blame_event(b, i, reply->element[i]);
	} else if (b->refused == 0 && b->whole.kind == ERROR_NONE) {
		blame_whole(b, reply);
	}
}

void redis_batch_take(struct redis_batch *b, const redisReply *reply)
{
	uint32_t number = b->replies++;

	if (number == 0 && reply->type == REDIS_REPLY_ERROR)
		blame_whole(b, reply);
	else if (number > 0 && number <= b->count)
		blame_event(b, number - 1, reply);
	else if (number > b->count)
		take_executed(b, reply);
}

bool redis_batch_is_answered(const struct redis_batch *b)
{
	return b->replies == b->count + 2;
}

bool redis_batch_is_stored(const struct redis_batch *b)
{
	return b->executed && b->refused < b->count;
}

void redis_batch_void(struct redis_batch *b, const struct error *why)
{
	b->executed = false;
	b->whole = *why;
}

bool redis_batch_has_trouble(const struct redis_batch *b, struct error *ret)
{
	for (uint32_t i = 0; i < b->count && b->refused > 0; i++) {
		if (is_about_server(b->why[i])) {
			*ret = *b->why[i];
			return true;
		}
	}
	/* A connection that ended because of what a row said is no outage. */
	if (b->whole.kind == ERROR_NONE || b->refused > 0)
		return false;
	*ret = b->whole;
	return true;
}

static bool is_behind_refused(const struct redis_batch *b, uint32_t number)
{
	for (uint32_t i = 0; i < number; i++)
		if (b->why[i] && slice_equal(b->events[i]->entity, b->events[number]->entity))
			return true;
	return false;
}

/* Why an event failed, or NULL. */
static const struct error *judge(const struct redis_batch *b, uint32_t i, struct error *scratch)
{
	if (is_behind_refused(b, i) && (b->why[i] || !b->executed)) {
		error_set(scratch, ERROR_LOST, "not stored: an earlier event of its entity was refused");
		return scratch;
	}
	if (b->why[i] || b->executed)
		return b->why[i];
	if (b->whole.kind != ERROR_NONE)
		return &b->whole;
	error_set(scratch, ERROR_LOST, "not stored: Redis discarded the transaction because of another event");
	return scratch;
}

void redis_batch_conclude(struct redis_batch *b, struct outcomes *outcomes)
{
	struct error scratch;

	if (b->executed && b->refused == 0) {
		outcomes_deliver(outcomes, b->events, b->count);
	} else {
		for (uint32_t i = 0; i < b->count; i++) {
			const struct error *why = judge(b, i, &scratch);

			if (why)
				outcomes_fail(outcomes, b->events + i, 1, why);
			else
				outcomes_deliver(outcomes, b->events + i, 1);
		}
	}
	for (uint32_t i = 0; i < b->count && b->refused > 0; i++)
		free(b->why[i]);
	b->count = 0;
}
