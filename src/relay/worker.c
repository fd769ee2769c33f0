#include "relay/worker.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "relay/batch.h"
#include "relay/feed.h"
#include "relay/field.h"
#include "relay/limiter.h"
#include "relay/rfc3339.h"
#include "relay/verdict.h"
#include "relay/window.h"

enum { SUBMIT_CHUNK = 512, LONGEST_WAIT_MS = 10000, FAILURES_LOGGED_PER_SECOND = 1 };

struct worker {
	pthread_t thread;
	struct outbox *outbox;
	uint32_t number;                        /* at the bell */
	struct mailbox mailbox;
	struct window window;
	struct feed feed;
	bool sinks_open;
	struct sink *sinks[WINDOW_STAGES_MAX];
	const struct sink_driver *drivers[WINDOW_STAGES_MAX];
	uint32_t n_sinks;
	struct limiter failures;
	struct sink_counts counts[WINDOW_STAGES_MAX]; /* since the start … */
	struct histogram latency;               /* … as in struct worker_state */
	bool gone;                              /* the worker cannot go on */
	struct error why_broken;                /* written before `broken` is set */
	pthread_mutex_t state_lock;
	struct worker_state state;              /* as of the last turn; guarded by state_lock */

	_Atomic bool ready, broken, ended;
	_Atomic int64_t last_turn_ms;
	_Atomic int64_t drain_deadline_ms;      /* CLOCK_NEVER: not asked to stop */
};

struct worker *worker_new(struct outbox *o)
{
	struct worker *w = mem_new(struct worker);
	bool keeps_order[WINDOW_STAGES_MAX];

	w->outbox = o;
	w->n_sinks = (uint32_t)o->config->n_sinks;
	for (uint32_t i = 0; i < w->n_sinks; i++) {
		w->drivers[i] = sink_driver_find(o->config->sinks[i].type);
		keeps_order[i] = w->drivers[i]->caps & SINK_KEEPS_ORDER;
	}
	mailbox_init(&w->mailbox);
	window_init(&w->window, w->n_sinks, keeps_order);
	for (uint32_t i = 0; i < w->n_sinks; i++)
		w->window.one_stream[i] = w->drivers[i]->caps & SINK_ONE_STREAM;
	w->number = bell_add_worker(&o->bell, &w->mailbox);
	pthread_mutex_init(&w->state_lock, NULL);
	w->state.number = w->number;
	atomic_init(&w->drain_deadline_ms, CLOCK_NEVER);
	feed_init(&w->feed,
		  &(struct feed_env){
			  .driver = o->reader,
			  .reader = { .database = o->database,
				      .outbox = o->config,
				      .table = o->table,
				      .purpose = "worker",
				      .interrupt_fd = w->mailbox.fd,
				      .bell = &o->bell,
				      .pool = o->pool,
				      .hand = &o->hand,
				      .replay = o->replay,
				      .node = o->node,
				      .worker = w->number },
			  .route = o->route,
			  .bell = &o->bell,
			  .worker = w->number,
			  .node = o->node->name,
			  .outcomes = &w->mailbox,
			  .seed = random_seed(),
		  },
		  &w->window);
	return w;
}

/* --- outcomes ------------------------------------------------------------------------------------------------- */

/* A row that goes again is not worth a line of its own, but that rows do is. */
static void log_failure(struct worker *w, const struct event *ev, int64_t now)
{
	uint32_t suppressed;

	if (limiter_allow(&w->failures, FAILURES_LOGGED_PER_SECOND, now, &suppressed))
		log_warn("sink.failed", F_STR("outbox", w->outbox->config->name),
			 F_STR("sink", w->outbox->config->sinks[ev->stage].name), F_SLICE("id", ev->id),
			 F_INT("suppressed", suppressed), F_ERROR(ev->failure));
}

/* The last refusal of a row sends it to the dead-letter topic, where there is one, and no longer where it was meant for. */
static bool becomes_letter(const struct worker *w, struct event *ev)
{
	return ev->state == EVENT_SUBMITTED && !ev->letter &&
	       verdict_hold_kind(&w->outbox->config->failure, ev) == HOLD_BURY && route_letter(w->outbox->route, ev);
}

/* A letter that has arrived, or was refused as well, ends as a row that is given up, for the reason that it had. */
static void end_letter(struct event *ev)
{
	if (!ev->letter || (ev->failure && !verdict_of(ev->failure->kind)->counts))
		return;
	free(ev->failure);
	ev->failure = TAKE_PTR(ev->reason);
}

/* From the row itself where it is a number there, which is much quicker to read. */
static bool created_at(const struct event *ev, int64_t *ret_us)
{
	const struct batch *b = ev->batch;

	return field_time(b->rows, batch_row(b, (uint32_t)(ev - b->events)), FIELD_CREATED_AT, ret_us) ||
	       rfc3339_parse(ev->created_at, ret_us);
}

/* `today_us` is the time of day: created_at is one. */
static void count_passed(struct worker *w, const struct event *ev, int64_t today_us)
{
	int64_t created_us;

	w->counts[ev->stage].acknowledged++;
	if (ev->stage + 1u == w->n_sinks && created_at(ev, &created_us))
		histogram_add(&w->latency, today_us - created_us);
}

static void take_failure(struct worker *w, struct event *ev, int64_t now)
{
	enum window_action action = verdict_of(ev->failure->kind)->action;
	struct sink_counts *counts = &w->counts[ev->stage];

	/* A letter ends with the refusal that it had, which is counted. */
	counts->errors[ev->failure->kind] += !ev->letter;
	if (action == WINDOW_RESEND) {
		counts->resent++;
		log_failure(w, ev, now);
	} else if (becomes_letter(w, ev)) {
		action = WINDOW_RESEND;
	}
	window_failed(&w->window, ev, action);
}

static void take_outcomes(struct worker *w, int64_t now)
{
	struct event *first = mailbox_take(&w->mailbox), *next;
	int64_t today_us = first ? clock_today_us() : 0;

	for (struct event *ev = first; ev; ev = next) {
		next = ev->next;        /* the window may put the event on a list of its own */
		end_letter(ev);
		if (ev->failure) {
			take_failure(w, ev, now);
		} else {
			count_passed(w, ev, today_us);
			window_passed(&w->window, ev);
		}
	}
}

/* --- sinks ---------------------------------------------------------------------------------------------------- */

/* The supervisor is to end the process. */
static void report_broken(struct worker *w, const struct error *why)
{
	if (atomic_load(&w->broken))
		return;
	w->why_broken = *why;
	atomic_store(&w->broken, true);
}

/* Nothing that waiting would mend. */
static void give_up(struct worker *w, const struct error *why)
{
	report_broken(w, why);
	w->gone = true;
}

/* A refusal that ends the process: all workers of the outbox finish what they have, and claim no more. */
static void halt(struct worker *w)
{
	report_broken(w, &w->feed.stop);
	if (!atomic_exchange(&w->outbox->halted, true))
		bell_ring_all(&w->outbox->bell);
}

/* Only once the reader is connected: a sink in the same database wants to know that it is. */
static void open_sinks(struct worker *w)
{
	struct error err = { 0 };
	uint32_t i;

	for (i = 0; i < w->n_sinks; i++) {
		struct sink_env env = {
			.outcomes = &w->mailbox,
			.reader_identity = w->feed.driver->identity(w->feed.reader),
			.last = i == w->n_sinks - 1,
		};

		if (!w->drivers[i]->open(w->outbox->targets[i], &env, &w->sinks[i], &err))
			break;
	}
	if (i < w->n_sinks) {
		error_prefix(&err, "sink %s of outbox %s", w->outbox->config->sinks[i].name, w->outbox->config->name);
		give_up(w, &err);
		return;
	}
	i = w->n_sinks - 1;
	if (w->drivers[i]->rides && w->drivers[i]->rides(w->sinks[i]))
		w->feed.rider = (struct rider){ w->drivers[i], w->sinks[i] };
	w->sinks_open = true;
	atomic_store(&w->ready, true);
}

static void close_sinks(struct worker *w)
{
	for (uint32_t i = 0; i < w->n_sinks; i++)
		if (w->sinks[i])
			w->drivers[i]->close(w->sinks[i]);
}

static void submit_ready(struct worker *w)
{
	struct event *events[SUBMIT_CHUNK];

	for (uint32_t stage = 0; stage < w->n_sinks; stage++) {
		uint32_t n, taken;

		do {
			n = window_submit(&w->window, stage, events, SUBMIT_CHUNK);
			taken = n > 0 ? w->drivers[stage]->submit(w->sinks[stage], events, n) : 0;
			window_unsubmit(&w->window, stage, events + taken, n - taken);
		} while (n == SUBMIT_CHUNK && taken == n);
	}
}

/* Others may be publishing the same rows by now: what has not left is better dropped. */
static void recall_lost(struct worker *w)
{
	if (!w->feed.recall)
		return;
	w->feed.recall = false;
	for (uint32_t i = 0; w->sinks_open && i < w->n_sinks; i++)
		if (w->drivers[i]->recall)
			w->drivers[i]->recall(w->sinks[i]);
}

/* --- the loop ------------------------------------------------------------------------------------------------- */

static void wait_for_something(struct worker *w, int64_t deadline_ms, int64_t now)
{
	struct pollfd fds[2 + WINDOW_STAGES_MAX] = { { .fd = w->mailbox.fd, .events = POLLIN } };
	nfds_t n = 1;
	short events;
	int fd = feed_pollfd(&w->feed, &events);

	if (fd >= 0)
		fds[n++] = (struct pollfd){ .fd = fd, .events = events };
	for (uint32_t i = 0; w->sinks_open && i < w->n_sinks; i++) {
		int64_t wants = CLOCK_NEVER;

		if (!w->drivers[i]->pollfd)
			continue;
		fd = w->drivers[i]->pollfd(w->sinks[i], &events, &wants);
		deadline_ms = MIN(deadline_ms, wants);
		if (fd >= 0)
			fds[n++] = (struct pollfd){ .fd = fd, .events = events };
	}
	deadline_ms = MIN(deadline_ms, atomic_load(&w->drain_deadline_ms));
	poll(fds, n, (int)MAX(MIN(deadline_ms - now, LONGEST_WAIT_MS), 0));
}

static const char *condition(const struct worker *w)
{
	const struct reader_driver *driver = w->feed.driver;

	return feed_connected(&w->feed) && driver->condition ? driver->condition(w->feed.reader) : NULL;
}

static int session(const struct worker *w)
{
	const struct reader_driver *driver = w->feed.driver;

	return feed_connected(&w->feed) && driver->session ? driver->session(w->feed.reader) : 0;
}

/* Once a turn, so that rows pay nothing for being watched. */
static void show_state(struct worker *w)
{
	pthread_mutex_lock(&w->state_lock);
	w->state.connected = feed_connected(&w->feed);
	w->state.condition = condition(w);
	snprintf(w->state.error, sizeof(w->state.error), "%s", w->state.connected ? "" : w->feed.why_lost.message);
	w->state.entities = w->window.n_lanes;
	w->state.rows = w->window.rows;
	w->state.bytes = w->window.bytes;
	w->state.session = session(w);
	w->state.counts = w->feed.counts;
	memcpy(w->state.sinks, w->counts, w->n_sinks * sizeof(w->counts[0]));
	w->state.latency = w->latency;
	pthread_mutex_unlock(&w->state_lock);
}

/* One round. False when the worker is to end. */
static bool turn(struct worker *w)
{
	int64_t now = clock_ms(), deadline, stop_at = atomic_load(&w->drain_deadline_ms);

	atomic_store_explicit(&w->last_turn_ms, now, memory_order_relaxed);
	if (stop_at != CLOCK_NEVER || atomic_load(&w->outbox->halted))
		feed_drain(&w->feed);
	feed_wake(&w->feed, now);
	take_outcomes(w, now);
	for (uint32_t i = 0; w->sinks_open && i < w->n_sinks; i++)
		if (w->drivers[i]->pump)
			w->drivers[i]->pump(w->sinks[i], now);
	feed_turn(&w->feed, now, &deadline);
	recall_lost(w);
	if (!w->sinks_open && feed_connected(&w->feed))
		open_sinks(w);
	if (w->feed.refused.kind != ERROR_NONE)
		give_up(w, &w->feed.refused);
	if (w->feed.stop.kind != ERROR_NONE)
		halt(w);
	if (w->gone)
		return false;
	if (w->sinks_open)
		submit_ready(w);
	if (stop_at != CLOCK_NEVER && (feed_idle(&w->feed) || now >= stop_at))
		return false;
	show_state(w);
	wait_for_something(w, deadline, now);
	return true;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	char name[16];          /* that the kernel keeps, for `top -H` */

	snprintf(name, sizeof(name), "worker-%u", w->number);
	pthread_setname_np(pthread_self(), name);
	while (turn(w))
		;
	if (!feed_idle(&w->feed))
		log_warn("worker.abandoned", F_STR("outbox", w->outbox->config->name), F_INT("worker", w->number),
			 F_INT("rows", w->window.rows), F_STR("meaning", "these rows are published again after the next start"));
	window_abandon(&w->window);
	close_sinks(w);
	feed_release(&w->feed);
	atomic_store(&w->ended, true);
	return NULL;
}

/* --- for the supervisor --------------------------------------------------------------------------------------- */

bool worker_start(struct worker *w, struct error *err)
{
	int rc;

	atomic_store(&w->last_turn_ms, clock_ms());
	rc = pthread_create(&w->thread, NULL, worker_main, w);
	if (rc != 0)
		return error_set(err, ERROR_CONFIG, "could not start a worker thread: %s", strerror(rc));
	return true;
}

bool worker_ready(const struct worker *w)
{
	return atomic_load(&w->ready);
}

bool worker_broken(const struct worker *w, struct error *ret_why)
{
	if (!atomic_load(&w->broken))
		return false;
	*ret_why = w->why_broken;
	return true;
}

bool worker_ended(const struct worker *w)
{
	return atomic_load(&w->ended);
}

int64_t worker_last_turn_ms(const struct worker *w)
{
	return atomic_load_explicit(&w->last_turn_ms, memory_order_relaxed);
}

void worker_snapshot(struct worker *w, struct worker_state *ret)
{
	pthread_mutex_lock(&w->state_lock);
	*ret = w->state;
	pthread_mutex_unlock(&w->state_lock);
}

void worker_drain(struct worker *w, int64_t deadline_ms)
{
	atomic_store(&w->drain_deadline_ms, deadline_ms);
	mailbox_wake(&w->mailbox);
}

void worker_join(struct worker *w, struct worker_totals *totals)
{
	pthread_join(w->thread, NULL);
	totals->claimed += w->feed.counts.claimed;
	totals->settled += w->feed.counts.settled;
	totals->claims += w->feed.counts.claims;
	totals->empty_claims += w->feed.counts.empty_claims;
}

void worker_free(struct worker *w)
{
	struct event *next;

	if (!w)
		return;
	for (struct event *ev = mailbox_take(&w->mailbox); ev; ev = next) {
		next = ev->next;
		window_passed(&w->window, ev);
	}
	/* A sink that could not give back everything within its time still borrows from the rest. */
	if (w->window.rows == 0)
		window_release(&w->window);
	mailbox_release(&w->mailbox);
	pthread_mutex_destroy(&w->state_lock);
	free(w);
}
