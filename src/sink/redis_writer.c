#include "sink/redis_writer.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sink/redis_entry.h"
#include "sink/redis_errors.h"

enum {
	RETRY_FIRST_MS = 200,
	RETRY_MAX_MS = 10000,
	SLOWEST_BYTES_PER_MS = 100,     /* a large batch over a slow line is not silence */
	KEPT_BYTES = 4 << 20,           /* a buffer that had to grow larger is given back */
};
#define TEXT_CEILING ((size_t)1 << 30)

void redis_writer_init(struct redis_writer *w, const struct redis_server *server, struct outcomes *outcomes,
		       struct breaker *breaker)
{
	*w = (struct redis_writer){ .server = server, .outcomes = outcomes, .breaker = breaker };
	backoff_init(&w->backoff, RETRY_FIRST_MS, RETRY_MAX_MS, random_seed());
	buf_init(&w->text, TEXT_CEILING);
}

static void disconnect(struct redis_writer *w)
{
	redis_link_freep(&w->link);
	w->waits = false;
}

static void drop_batch(struct redis_writer *w, const char *why)
{
	struct error err;

	error_set(&err, ERROR_LOST, "%s", why);
	if (w->batch.count > 0) {
		redis_batch_void(&w->batch, &err);
		redis_batch_conclude(&w->batch, w->outcomes);
	}
	disconnect(w);
}

void redis_writer_release(struct redis_writer *w)
{
	drop_batch(w, "the sink was closed before Redis answered");
	redis_dial_cancel(w->dial);
	buf_release(&w->text);
}

void redis_writer_recall(struct redis_writer *w)
{
	if (w->batch.count > 0 && w->link->unflushed)
		drop_batch(w, "not stored: the claim on its entity is gone");
}

/* Connecting. */

static void want_connection(struct redis_writer *w, int64_t now_ms)
{
	if (w->link || w->dial)
		return;
	w->wanted = now_ms < w->retry_at_ms;
	if (!w->wanted)
		w->dial = redis_dial_start(w->server);
}

static void pause_after(struct redis_writer *w, const struct error *why, int64_t now_ms)
{
	breaker_open(w->breaker, why);
	w->retry_at_ms = now_ms + backoff_next(&w->backoff);
}

static void finish_dial(struct redis_writer *w, int64_t now_ms)
{
	if (redis_dial_finish(TAKE_PTR(w->dial), &w->link, &w->why_away))
		return;
	w->away = true;
	pause_after(w, &w->why_away, now_ms);
}

/* Tells the worker why the server is away, by the only means there is: one event fails. */
static uint32_t report_away(struct redis_writer *w, struct event *const events[])
{
	if (!w->away)
		return 0;
	w->away = false;
	outcomes_fail(w->outcomes, events, 1, &w->why_away);
	return 1;
}

/* The batch under way. */

static void conclude(struct redis_writer *w, int64_t now_ms)
{
	struct error why;

	if (redis_batch_has_trouble(&w->batch, &why)) {
		/* After a failover the same address may lead to another server. */
		disconnect(w);
		pause_after(w, &why, now_ms);
	} else {
		breaker_close(w->breaker);
		backoff_reset(&w->backoff);
	}
	redis_batch_conclude(&w->batch, w->outcomes);
}

static void add_wait(struct redis_writer *w)
{
	const struct redis_config *c = w->server->config;
	char replicas[24], timeout[24];

	snprintf(replicas, sizeof(replicas), "%" PRId64, c->wait_replicas);
	snprintf(timeout, sizeof(timeout), "%" PRId64, c->wait_timeout_ms);
	buf_add_command(&w->text, (const char *const[]){ "WAIT", replicas, timeout }, 3);
	w->waits = true;
}

/* Sends the text. When that fails, reading finds out why. */
static void send_text(struct redis_writer *w, int64_t now_ms)
{
	const struct redis_config *c = w->server->config;
	struct error ignored;

	w->answer_by_ms = now_ms + c->answer_timeout_ms + (w->waits ? c->wait_timeout_ms : 0) +
			  (int64_t)(w->text.len / SLOWEST_BYTES_PER_MS);
	redis_link_send(w->link, (struct slice){ buf_str(&w->text), w->text.len }, &ignored);
	if (w->text.room > KEPT_BYTES)
		buf_release(&w->text);
	buf_clear(&w->text);
}

static void send_batch(struct redis_writer *w, int64_t now_ms)
{
	redis_batch_write(&w->batch, w->server->config->max_len, &w->text);
	if (w->server->config->wait_replicas > 0)
		add_wait(w);
	send_text(w, now_ms);
}

static uint32_t refuse_first(struct redis_writer *w, struct event *const events[])
{
	struct error why;

	error_set(&why, ERROR_REJECTED, "the event has %zu bytes, and an entry of a stream at most %zu",
		  redis_entry_bytes(events[0]), REDIS_ENTRY_MAX_BYTES);
	outcomes_fail(w->outcomes, events, 1, &why);
	return 1;
}

uint32_t redis_writer_submit(struct redis_writer *w, struct event *const events[], uint32_t n, int64_t now_ms)
{
	uint32_t taken;

	if (n == 0 || w->batch.count > 0)
		return 0;
	if (!w->link) {
		taken = report_away(w, events);
		want_connection(w, now_ms);
		return taken;
	}
	taken = redis_batch_begin(&w->batch, events, n);
	if (taken == 0)
		return refuse_first(w, events);
	send_batch(w, now_ms);
	return taken;
}

/* True when the batch is over: enough replicas have it, or there is nothing to have. */
static bool take_wait(struct redis_writer *w, const redisReply *reply, int64_t now_ms)
{
	int64_t wanted = w->server->config->wait_replicas;
	struct error why;

	w->waits = false;
	if (!redis_batch_is_stored(&w->batch) || (reply->type == REDIS_REPLY_INTEGER && reply->integer >= wanted))
		return true;
	if (reply->type == REDIS_REPLY_ERROR) {
		redis_error_set(&why, redis_reply_text(reply));
		redis_batch_void(&w->batch, &why);
		return true;
	}
	error_set(&why, ERROR_TRANSPORT, "stored, but only %lld of %lld replicas have it", (long long)reply->integer,
		  (long long)wanted);
	error_hint(&why, "see to the replicas, or lower wait_replicas");
	breaker_open(w->breaker, &why);
	add_wait(w);
	send_text(w, now_ms);
	return false;
}

/* True when the batch is over. */
static bool take_reply(struct redis_writer *w, const redisReply *reply, int64_t now_ms)
{
	if (redis_batch_is_answered(&w->batch))
		return take_wait(w, reply, now_ms);
	redis_batch_take(&w->batch, reply);
	return redis_batch_is_answered(&w->batch) && !w->waits;
}

static bool take_replies(struct redis_writer *w, int64_t now_ms, struct error *err)
{
	while (w->batch.count > 0) {
		_cleanup_(redis_reply_freep) redisReply *reply = NULL;

		if (!redis_link_next(w->link, &reply, err))
			return false;
		if (!reply)
			return true;
		if (take_reply(w, reply, now_ms))
			conclude(w, now_ms);
	}
	return true;
}

static void lose_link(struct redis_writer *w, const struct error *why, int64_t now_ms)
{
	/* Nothing under way: the server closed an idle connection, and nobody misses it until the next event. */
	if (w->batch.count > 0) {
		redis_batch_void(&w->batch, why);
		conclude(w, now_ms);
	}
	disconnect(w);
}

static bool exchange(struct redis_writer *w, int64_t now_ms, struct error *err)
{
	struct error ignored;
	bool alive;

	/* What cannot be sent is no reason to leave unread what the server said. */
	if (w->link->unflushed)
		redis_link_flush(w->link, &ignored);
	alive = redis_link_read(w->link, err);
	return take_replies(w, now_ms, alive ? err : &ignored) && alive;
}

static void pump_link(struct redis_writer *w, int64_t now_ms)
{
	struct error why;

	if (!exchange(w, now_ms, &why)) {
		lose_link(w, &why, now_ms);
	} else if (w->batch.count > 0 && now_ms >= w->answer_by_ms) {
		error_set(&why, ERROR_TRANSPORT, "Redis did not answer in %lld ms",
			  (long long)w->server->config->answer_timeout_ms);
		lose_link(w, &why, now_ms);
	}
}

void redis_writer_pump(struct redis_writer *w, int64_t now_ms)
{
	if (w->dial && redis_dial_is_over(w->dial))
		finish_dial(w, now_ms);
	if (w->link)
		pump_link(w, now_ms);
	else if (w->wanted)
		want_connection(w, now_ms);
}

int redis_writer_pollfd(const struct redis_writer *w, short *ret_events, int64_t *ret_deadline_ms)
{
	*ret_deadline_ms = CLOCK_NEVER;
	*ret_events = POLLIN;
	if (w->dial)
		return redis_dial_fd(w->dial);
	if (w->link) {
		if (w->batch.count > 0)
			*ret_deadline_ms = w->answer_by_ms;
		*ret_events = w->link->unflushed ? POLLIN | POLLOUT : POLLIN;
		return redis_link_fd(w->link);
	}
	if (w->wanted)
		*ret_deadline_ms = w->retry_at_ms;
	return -1;
}
