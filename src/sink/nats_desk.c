#include "sink/nats_desk.h"

#include <string.h>

#include "base/clock.h"
#include "sink/nats_errors.h"

enum {
	SLOW_FIRST_MS = 100, SLOW_MAX_MS = 5000,        /* pauses while a stream is full */
	PATIENCE = 12,                                  /* so much longer while others are answered: the way is slow */
	STUCK_MS = 2000,                                /* later than late */
};

void desk_init(struct desk *d, int64_t ack_timeout_ms, struct breaker *breaker, struct mailbox *outcomes)
{
	*d = (struct desk){ .ack_timeout_ms = ack_timeout_ms, .breaker = breaker, .outcomes = outcomes };
	flight_init(&d->flight);
	backoff_init(&d->slow, SLOW_FIRST_MS, SLOW_MAX_MS, random_seed());
	pthread_mutex_init(&d->lock, NULL);
}

void desk_release(struct desk *d)
{
	pthread_mutex_destroy(&d->lock);
}

static void post(struct desk *d, struct event *ev, const struct error *why)
{
	ev->failure = why ? error_copy(why) : NULL;
	mailbox_post(d->outcomes, ev);
}

/* --- the worker's side ------------------------------------------------------------------------------------------- */

/* Tells the worker why NATS is away, by the only means there is: one event fails. */
static uint32_t report_away(struct desk *d, struct event *const events[])
{
	if (!d->untold)
		return 0;
	d->untold = false;
	post(d, events[0], &d->why_away);
	return 1;
}

bool desk_submit(struct desk *d, struct event *const events[], uint32_t n, int64_t now_ms, uint32_t *ret_taken)
{
	uint32_t taken = 0;
	bool was_empty;

	pthread_mutex_lock(&d->lock);
	was_empty = d->flight.n_queued == 0;
	if (n > 0 && !d->open)
		taken = report_away(d, events);
	else if (now_ms >= d->pause_until_ms && !d->recalled)
		while (taken < n && flight_add(&d->flight, events[taken]))
			taken++;
	was_empty = was_empty && d->flight.n_queued > 0;
	pthread_mutex_unlock(&d->lock);
	*ret_taken = taken;
	return was_empty;
}

int64_t desk_deadline(struct desk *d, int64_t now_ms)
{
	int64_t deadline = CLOCK_NEVER;

	pthread_mutex_lock(&d->lock);
	if (d->open && now_ms < d->pause_until_ms)
		deadline = d->pause_until_ms;
	else if (flight_count(&d->flight) > 0)
		deadline = now_ms + STUCK_MS;
	pthread_mutex_unlock(&d->lock);
	return deadline;
}

void desk_recall(struct desk *d)
{
	struct event *ev;
	struct error why;

	error_set(&why, ERROR_LOST, "not sent: the claim on its entity is gone");
	pthread_mutex_lock(&d->lock);
	while ((ev = flight_unqueue(&d->flight)))
		post(d, ev, &why);
	d->recalled = d->open && flight_count(&d->flight) > 0;
	pthread_mutex_unlock(&d->lock);
}

/* Under the lock. */
static bool is_late(const struct desk *d, int64_t before_ms)
{
	return d->answered_ms < before_ms && flight_oldest(&d->flight) < before_ms;
}

bool desk_is_stuck(struct desk *d, int64_t now_ms)
{
	bool stuck;

	pthread_mutex_lock(&d->lock);
	stuck = flight_count(&d->flight) > 0 && is_late(d, now_ms - d->ack_timeout_ms - STUCK_MS);
	pthread_mutex_unlock(&d->lock);
	return stuck;
}

/* --- the courier's side ------------------------------------------------------------------------------------------ */

void desk_open(struct desk *d)
{
	breaker_close(d->breaker);
	pthread_mutex_lock(&d->lock);
	d->open = true;
	d->untold = d->recalled = false;
	d->pause_until_ms = 0;
	pthread_mutex_unlock(&d->lock);
	mailbox_wake(d->outcomes);
}

void desk_close(struct desk *d)
{
	pthread_mutex_lock(&d->lock);
	d->open = d->recalled = false;
	pthread_mutex_unlock(&d->lock);
}

void desk_say_away(struct desk *d, const struct error *why)
{
	breaker_open(d->breaker, why);
	pthread_mutex_lock(&d->lock);
	d->why_away = *why;
	d->untold = true;
	pthread_mutex_unlock(&d->lock);
	mailbox_wake(d->outcomes);
}

void desk_return_all(struct desk *d, const struct error *why)
{
	struct event *ev;

	pthread_mutex_lock(&d->lock);
	while ((ev = flight_take(&d->flight, NULL)) || (ev = flight_unqueue(&d->flight)))
		post(d, ev, why);
	pthread_mutex_unlock(&d->lock);
}

bool desk_send(struct desk *d, desk_packer *pack, void *context, uint64_t *ret_number)
{
	bool packed = false;
	struct event *ev;
	struct error why;

	pthread_mutex_lock(&d->lock);
	while (!packed && !d->recalled && (ev = flight_send(&d->flight, clock_ms(), ret_number))) {
		packed = pack(context, ev, *ret_number, &why);
		if (!packed)
			post(d, flight_land(&d->flight, *ret_number), &why);
	}
	pthread_mutex_unlock(&d->lock);
	return packed;
}

void desk_fail(struct desk *d, uint64_t number, const struct error *why)
{
	struct event *ev;

	pthread_mutex_lock(&d->lock);
	ev = flight_land(&d->flight, number);
	if (ev)
		post(d, ev, why);
	pthread_mutex_unlock(&d->lock);
}

bool desk_is_idle(struct desk *d)
{
	bool idle;

	pthread_mutex_lock(&d->lock);
	idle = flight_count(&d->flight) == 0;
	pthread_mutex_unlock(&d->lock);
	return idle;
}

bool desk_take_recall(struct desk *d)
{
	bool recalled;

	pthread_mutex_lock(&d->lock);
	recalled = d->recalled;
	d->recalled = false;
	pthread_mutex_unlock(&d->lock);
	return recalled;
}

bool desk_is_silent(struct desk *d, int64_t now_ms, struct error *why)
{
	struct event *ev;
	bool silent;

	error_set(why, ERROR_TRANSPORT, "NATS did not acknowledge in %lld ms", (long long)d->ack_timeout_ms);
	pthread_mutex_lock(&d->lock);
	silent = is_late(d, now_ms - d->ack_timeout_ms);
	while (!silent && (ev = flight_expire(&d->flight, now_ms - PATIENCE * d->ack_timeout_ms)))
		post(d, ev, why);
	pthread_mutex_unlock(&d->lock);
	return silent;
}

/* --- what the server says ---------------------------------------------------------------------------------------- */

static void slow_down(struct desk *d, const struct error *why)
{
	int64_t now = clock_ms();

	/* The answers to all that was on its way say the same. */
	if (now >= d->pause_until_ms)
		d->pause_until_ms = now + backoff_next(&d->slow);
	breaker_open(d->breaker, why);
}

static void refuse(struct desk *d, struct event *ev, const struct nats_answer *answer)
{
	struct error why;

	if (answer->refused)
		nats_code_error(&why, answer->code, answer->class, answer->description);
	else
		nats_code_error(&why, NATS_NO_RESPONDERS, 0, "the answer names no stream");
	error_prefix(&why, "subject %.*s", (int)MIN(ev->topic.len, 200), ev->topic.ptr);
	if (why.kind == ERROR_THROTTLED || why.kind == ERROR_TRANSPORT)
		slow_down(d, &why);
	post(d, ev, &why);
}

void desk_answer(struct desk *d, uint64_t number, const struct nats_answer *answer)
{
	struct event *ev;

	pthread_mutex_lock(&d->lock);
	d->answered_ms = clock_ms();
	ev = flight_land(&d->flight, number);
	if (ev && !answer->refused && answer->stream[0]) {
		backoff_reset(&d->slow);
		breaker_close(d->breaker);
		post(d, ev, NULL);
	} else if (ev) {
		refuse(d, ev, answer);
	}
	pthread_mutex_unlock(&d->lock);
}

/* It comes in a line of its own, without the number of the message. */
void desk_deny(struct desk *d, const char *text)
{
	static const char before[] = "Publish to \"";
	const char *at = strstr(text, before);
	struct slice subject;
	struct event *ev;
	struct error why;

	if (!at)
		return;
	nats_status_error(&why, NATS_NOT_PERMITTED, text);
	at += strlen(before);
	subject = (struct slice){ at, strcspn(at, "\"") };
	pthread_mutex_lock(&d->lock);
	d->answered_ms = clock_ms();
	while ((ev = flight_take(&d->flight, &subject)))
		post(d, ev, &why);
	pthread_mutex_unlock(&d->lock);
}
