#include "relay/feed.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "relay/verdict.h"

enum { RECONNECT_FIRST_MS = 200, RECONNECT_MAX_MS = 10000, REFUSALS_LOGGED_PER_SECOND = 5 };
enum {
	MISSES_MAX = 8,
	AFTER_MISSES_MS = 20,           /* at least; … */
	SEARCH_SHARE = 10,              /* … no more than this part of the time is spent on claims that get nothing */
	HOLD_SLACK_MS = 100,
};
enum { STALLED_AFTER_MS = 500, STALLED_LOOK_MS = 1000, HAND_PATIENCE_MS = 500 };

static void use_driver(struct feed *f, const struct reader_driver *driver)
{
	const struct reader_env *env = &f->env.reader;

	f->driver = f->admission.driver = driver;
	f->admission.keeps_order = reader_keeps_order(driver, env->outbox);
	/* Three beats before the server takes us for frozen. */
	f->beat_ms = env->database->idle_session_timeout_ms > 0 ? env->database->idle_session_timeout_ms / 3 : CLOCK_NEVER;
	if (driver->beat_ms)
		f->beat_ms = MIN(f->beat_ms, driver->beat_ms(env));
}

void feed_init(struct feed *f, const struct feed_env *env, struct window *window)
{
	*f = (struct feed){ .env = *env, .window = window, .hungry = true };
	f->admission = (struct admission){
		.route = env->route,
		.outcomes = env->outcomes,
		.node = env->node,
		.worker = env->worker,
	};
	f->claim_rows = (uint32_t)env->reader.outbox->batch_size;
	use_driver(f, env->driver);
	backoff_init(&f->backoff, RECONNECT_FIRST_MS, RECONNECT_MAX_MS, random_next(&f->env.seed));
}

void feed_release(struct feed *f)
{
	if (f->reader)
		f->driver->close(f->reader);
	free(f->done);
	free(f->holds);
}

bool feed_connected(const struct feed *f)
{
	return f->reader != NULL;
}

bool feed_idle(const struct feed *f)
{
	return !f->busy && f->window->rows == f->window->orphans;
}

void feed_drain(struct feed *f)
{
	f->draining = true;
	f->hungry = false;
}

/* --- the connection ------------------------------------------------------------------------------------------- */

static const char *outbox_name(const struct feed *f)
{
	return f->env.reader.outbox->name;
}

/* Without its connection nothing is ours: others may claim it this moment. Rows on their way out arrive once more. */
static void lose(struct feed *f, const struct error *err, int64_t now)
{
	if (f->reader)
		f->driver->close(f->reader);
	f->reader = NULL;
	f->busy = false;
	f->n_done = f->n_holds = f->one_by_one = 0;
	window_abandon(f->window);
	f->recall = f->window->orphans > 0;
	f->retry_at_ms = now + backoff_next(&f->backoff);
	f->why_lost = *err;
	if (f->lost)
		return;
	f->lost = true;
	if (err->kind == ERROR_TRANSPORT || err->kind == ERROR_LOST)
		log_warn("database.lost", F_STR("outbox", outbox_name(f)), F_INT("worker", f->env.worker), F_ERROR(err));
	else
		log_error("database.refused", F_STR("outbox", outbox_name(f)), F_INT("worker", f->env.worker), F_ERROR(err));
}

static int64_t holds_until(const struct feed *f)
{
	return f->driver->holds_until ? f->driver->holds_until(f->reader) : CLOCK_NEVER;
}

void feed_wake(struct feed *f, int64_t now)
{
	struct error err = { 0 };

	if (!f->reader || now < holds_until(f))
		return;
	error_set(&err, ERROR_LOST, "the claims ran out: this process did not run for a while, or the database did not answer");
	lose(f, &err, now);
}

/* Waiting does not help. */
static bool is_final(const struct feed *f, const struct error *err)
{
	if (f->answered)
		return err->kind == ERROR_CONFIG && f->driver->ends_when_refused;
	return err->kind == ERROR_CONFIG || err->kind == ERROR_AUTH;
}

/* The reader of the settings, or the one that it leaves its work to. */
static void choose_driver(struct feed *f)
{
	const struct reader_driver *driver = f->env.driver;
	const struct reader_driver *other = driver->instead ? driver->instead(&f->env.reader) : NULL;

	use_driver(f, other ? other : driver);
}

static void reconnect(struct feed *f, int64_t now)
{
	struct error err = { 0 };

	if (now < f->retry_at_ms)
		return;
	choose_driver(f);
	if (!f->driver->open(&f->env.reader, &f->reader, &err)) {
		/* Somebody woke us to do something else first. */
		if (err.kind == ERROR_LOST)
			return;
		if (is_final(f, &err))
			f->refused = err;
		lose(f, &err, clock_ms());
		return;
	}
	f->admission.session++;
	f->settle_failing = false;
	f->hungry = !f->draining;
	f->last_exchange_ms = now;
}

/* --- before an exchange --------------------------------------------------------------------------------------- */

static uint32_t in_flight(const struct feed *f)
{
	return f->window->rows - f->window->delivered.count - f->window->held.count;
}

/* Nothing that was claimed is on its way any more. Orphans are, but belong to claims that are gone. */
static bool all_arrived(const struct feed *f)
{
	return in_flight(f) == f->window->orphans;
}

/* Two claims fit into the window, so that one can be fetched while the other is on its way. */
static bool has_room(const struct feed *f)
{
	const struct outbox_config *o = f->env.reader.outbox;
	/* Where each row is settled for itself, settling is what others wait for, and a crash repeats what waits. */
	uint32_t rows = o->settle == SETTLE_EACH_ROW ? f->window->rows - f->window->orphans : in_flight(f);

	if (f->driver->settles_whole)
		return all_arrived(f);
	return rows + f->claim_rows <= 2 * (uint32_t)o->batch_max &&
	       f->window->bytes <= (size_t)o->in_flight_bytes / 2 &&
	       (f->driver->entities_max == 0 || f->window->n_lanes <= f->driver->entities_max / 2);
}

/* Settling waits for company only while more is being fetched anyway. */
static bool should_settle(const struct feed *f)
{
	uint32_t waiting = f->window->delivered.count + f->window->held.count;

	if (waiting == 0)
		return false;
	if (f->driver->settles_whole)
		return all_arrived(f);
	if (f->env.reader.outbox->settle == SETTLE_EACH_ROW)
		return true;
	return !f->hungry || in_flight(f) == 0 || has_room(f) ||
	       waiting >= (uint32_t)f->env.reader.outbox->batch_max / 2;
}

static void log_hold(struct feed *f, const struct hold *h, int64_t now)
{
	const struct event *ev = h->event;
	uint32_t suppressed;

	if (!limiter_allow(&f->refusals, REFUSALS_LOGGED_PER_SECOND, now, &suppressed))
		return;
	if (h->kind == HOLD_BLOCK)
		log_error("entity.blocked", F_STR("outbox", outbox_name(f)), F_SLICE("id", ev->id),
			  F_SLICE("entity", ev->entity), F_SLICE("topic", ev->topic), F_INT("attempts", h->attempts),
			  F_STR("next", "postrider entity unblock"), F_INT("suppressed", suppressed), F_ERROR(ev->failure));
	else if (hold_is_end(h))
		log_error(h->kind == HOLD_BURY ? "row.dead" : "row.skipped", F_STR("outbox", outbox_name(f)),
			  F_SLICE("id", ev->id), F_SLICE("entity", ev->entity), F_SLICE("topic", event_own_topic(ev)),
			  F_INT("attempts", h->attempts), F_INT("suppressed", suppressed), F_ERROR(ev->failure));
	else
		log_error("row.refused", F_STR("outbox", outbox_name(f)), F_SLICE("id", ev->id),
			  F_SLICE("entity", ev->entity), F_SLICE("topic", ev->topic), F_INT("attempts", h->attempts),
			  F_INT("retry_in_ms", h->delay_ms), F_INT("suppressed", suppressed), F_ERROR(ev->failure));
}

static void note_stop(struct feed *f, const struct event *ev)
{
	if (f->stop.kind != ERROR_NONE)
		return;
	f->stop = *ev->failure;
	error_prefix(&f->stop, "row %.*s of outbox %s was refused, and failure.then is stop", (int)MIN(ev->id.len, 100),
		     ev->id.ptr, outbox_name(f));
}

static void take_holds(struct feed *f, int64_t now)
{
	struct event_list held = window_take(&f->window->held, UINT32_MAX);

	if (held.count > f->holds_room) {
		f->holds_room = held.count;
		f->holds = mem_resize(f->holds, held.count * sizeof(*f->holds));
	}
	f->n_holds = 0;
	for (struct event *ev = held.first; ev; ev = ev->next) {
		struct hold *h = &f->holds[f->n_holds++];

		*h = verdict_hold(&f->env.reader.outbox->failure, ev, &f->env.seed);
		if (h->kind == HOLD_STOP)
			note_stop(f, ev);
		if (h->kind == HOLD_BURY)
			bell_set_letters(f->env.bell, true);
		/* The database counts the delay from when it hears of it. */
		if (h->kind == HOLD_RETRY)
			bell_due(f->env.bell, now + h->delay_ms + HOLD_SLACK_MS);
		if (!f->settle_failing)
			log_hold(f, h, now);
	}
}

static void take_done(struct feed *f)
{
	bool singly = f->one_by_one > 0 ||
		      (f->env.reader.outbox->settle == SETTLE_EACH_ROW && !f->driver->settles_whole);
	struct event_list done = window_take(&f->window->delivered, singly ? 1 : UINT32_MAX);

	if (done.count > f->done_room) {
		f->done_room = done.count;
		f->done = mem_resize(f->done, done.count * sizeof(*f->done));
	}
	f->n_done = 0;
	for (struct event *ev = done.first; ev; ev = ev->next)
		f->done[f->n_done++] = ev;
}

/* True when this exchange makes rows free that could not be claimed before: more of the entities that it gives back. A
 * reader that reads ahead has passed over none, except those behind a row that was refused. */
static bool gives_rows_back(const struct feed *f)
{
	bool any = f->n_holds > 0 || (f->n_done > 0 && !f->driver->reads_ahead);

	for (uint32_t i = 0; i < f->n_done && !any; i++)
		any = f->done[i]->retried;
	return any;
}

static void begin(struct feed *f, bool claim, bool has_hand, int64_t now)
{
	struct exchange x = { .rider = f->rider, .window = f->window, .letters = bell_has_letters(f->env.bell) };
	struct error err = { 0 };
	/* A beat comes at any time: to settle a part then would end the transaction that holds the rest. */
	bool may_settle = now >= f->retry_at_ms && (!f->driver->settles_whole || all_arrived(f));

	f->n_done = f->n_holds = 0;
	if (may_settle)
		take_done(f);
	/* A held row ends its lane: what is delivered ahead of it must be settled before, or with it. */
	if (may_settle && f->window->delivered.count == 0 && (f->one_by_one == 0 || f->n_done == 0))
		take_holds(f, now);
	x.done = f->done;
	x.n_done = f->n_done;
	x.holds = f->holds;
	x.n_holds = f->n_holds;
	if (claim) {
		size_t budget = (size_t)f->env.reader.outbox->in_flight_bytes;

		x.want_rows = f->claim_rows;
		x.has_hand = has_hand;
		x.want_bytes = budget > f->window->bytes ? budget - f->window->bytes : 1;
		f->seen_rings = bell_rings(f->env.bell);
		f->claim_began_us = clock_us();
	} else if (gives_rows_back(f)) {
		f->hungry = !f->draining;
	}
	f->asked_rows = x.want_rows;
	f->busy = true;
	f->gives_back = false;
	f->last_exchange_ms = now;
	if (!f->driver->begin(f->reader, &x, &err))
		lose(f, &err, now);
}

/* --- after an exchange ---------------------------------------------------------------------------------------- */

static void finish_settled(struct feed *f)
{
	for (uint32_t i = 0; i < f->n_done; i++)
		window_done(f->window, f->done[i]);
	for (uint32_t i = 0; i < f->n_holds; i++) {
		f->counts.holds[f->holds[i].kind]++;
		window_done(f->window, f->holds[i].event);
	}
	f->counts.settled += f->n_done;
	if (f->one_by_one > 0 && f->n_done > 0)
		f->one_by_one--;
	if (f->settle_failing)
		log_info("settle.back", F_STR("outbox", outbox_name(f)), F_INT("worker", f->env.worker));
	f->settle_failing = false;
}

static void give_back_unsettled(struct feed *f)
{
	struct event_list done = { 0 }, held = { 0 };

	/* Still linked as they were taken. */
	if (f->n_done > 0)
		done = (struct event_list){ f->done[0], f->done[f->n_done - 1], f->n_done };
	if (f->n_holds > 0)
		held = (struct event_list){ f->holds[0].event, f->holds[f->n_holds - 1].event, f->n_holds };
	window_return(&f->window->delivered, done);
	window_return(&f->window->held, held);
}

/* Not all is settled, and the rows are still ours. Either the rider's side refuses one of them, which settling them singly
 * finds, or the server could not do it now (a lock, a missing right) and will be asked again. */
static void retry_settle(struct feed *f, const struct error *why, int64_t now)
{
	uint32_t n_done = f->n_done, n_holds = f->n_holds;

	give_back_unsettled(f);
	if (why->kind == ERROR_NONE)
		return;
	if (why->kind == ERROR_REJECTED && n_done > 0 && n_done + n_holds > 1) {
		f->one_by_one = n_done;
		return;
	}
	if (why->kind == ERROR_REJECTED && n_done == 1) {
		struct event *refused = f->done[0];

		f->one_by_one -= f->one_by_one > 0;
		refused->failure = error_copy(why);
		window_refused(f->window, refused);
		return;
	}
	f->retry_at_ms = now + backoff_next(&f->backoff);
	if (!f->settle_failing) {
		log_warn("settle.failed", F_STR("outbox", outbox_name(f)), F_INT("worker", f->env.worker), F_ERROR(why));
		f->settle_failing = true;
	}
}

/* An answer shows that all is well again, which a connection alone does not. */
static void recovered(struct feed *f)
{
	if (f->lost)
		log_info("database.back", F_STR("outbox", outbox_name(f)), F_INT("worker", f->env.worker),
			 F_INT("tries", f->backoff.tries));
	f->lost = false;
	f->answered = true;
	backoff_reset(&f->backoff);
}

/* Whether to claim again at once. Everything in reach may be claimed by others; looking again and again does not change
 * that, so after some misses we wait a little. */
static void judge_claim(struct feed *f, const struct answer *a, uint32_t rows, int64_t now)
{
	f->misses = rows > 0 ? 0 : f->misses + 1;
	f->hungry = !a->exhausted && !f->draining;
	bell_claimed(f->env.bell, rows, now);
	if (a->look_again_ms > 0)
		bell_due(f->env.bell, now + a->look_again_ms);
	if (a->due_in_ms > 0)
		bell_due(f->env.bell, now + a->due_in_ms);
	if (f->hungry && f->misses >= MISSES_MAX) {
		f->hungry = false;
		bell_due(f->env.bell, now + MAX(AFTER_MISSES_MS, SEARCH_SHARE * (clock_us() - f->claim_began_us) / 1000));
	}
	if (a->exhausted)
		f->claim_rows = (uint32_t)f->env.reader.outbox->batch_size;
	if (!f->hungry || rows == 0)
		return;
	f->claim_rows = MIN(f->claim_rows * 2, (uint32_t)f->env.reader.outbox->batch_max);
	/* There is more than one worker's share. */
	if (f->driver->divides)
		return;
	bell_ring(f->env.bell);
	f->seen_rings++;
}

static void digest(struct feed *f, struct answer *a, int64_t now)
{
	uint32_t rows = answer_rows(a);

	f->busy = false;
	if (!a->settled) {
		retry_settle(f, &a->settle_error, now);
	} else if (!f->settle_failing || f->n_done + f->n_holds > 0) {  /* else a beat, which proves nothing */
		recovered(f);
		finish_settled(f);
	}
	f->n_done = f->n_holds = 0;
	if (f->asked_rows == 0) {
		f->hungry |= a->gained && !f->draining;
		PQclear(a->rows);
		return;
	}
	f->counts.claims++;
	f->counts.looked += a->looked;
	f->counts.lost += a->lost;
	histogram_add(&f->counts.claim_time, clock_us() - f->claim_began_us);
	f->counts.empty_claims += rows == 0;
	log_debug("claim.answered", F_STR("outbox", outbox_name(f)), F_INT("worker", f->env.worker), F_INT("rows", rows),
		  F_INT("looked", a->looked), F_INT("lost", a->lost), F_INT("us", clock_us() - f->claim_began_us));
	judge_claim(f, a, rows, now);
	if (rows > 0)
		f->counts.claimed += admit_rows(&f->admission, a, f->window);
	else
		PQclear(a->rows);
}

static void receive(struct feed *f, int64_t now)
{
	struct error err = { 0 };
	struct answer answer;
	bool complete;

	if (!f->driver->receive(f->reader, &complete, &answer, &err))
		lose(f, &err, now);
	else if (complete)
		digest(f, &answer, now);
}

/* --- the turn ------------------------------------------------------------------------------------------------- */

/* True when rows are on their way and none has arrived for a while: the sink is away. Claiming more then, at every ring of
 * the bell, would only load the database. */
static bool is_stalled(struct feed *f, int64_t now)
{
	if (f->counts.settled != f->progress || in_flight(f) == 0) {
		f->progress = f->counts.settled;
		f->progress_ms = now;
	}
	return now - f->progress_ms >= STALLED_AFTER_MS;
}

/* When to wake without being called by anybody. */
static int64_t rest(struct feed *f, int64_t now)
{
	int64_t until = CLOCK_NEVER;

	if (f->busy)
		return CLOCK_NEVER;
	if (f->beat_ms != CLOCK_NEVER)
		until = f->last_exchange_ms + f->beat_ms;
	if (f->retry_at_ms > now)
		return MIN(until, f->retry_at_ms);
	if (f->waiting_since_ms != 0)
		until = MIN(until, f->waiting_since_ms + HAND_PATIENCE_MS);
	if (is_stalled(f, now))
		return MIN(until, now + STALLED_LOOK_MS);
	if (!f->draining && !f->paused && !f->hungry && has_room(f)) {
		int64_t look;

		if (!bell_sleep(f->env.bell, f->env.worker, f->seen_rings, now, &look)) {
			f->hungry = true;
			return now;
		}
		until = MIN(until, look);
	}
	return until;
}

/* Under a backlog workers claim one after the other; whose turn it is not is woken when it is. But nobody waits for long:
 * the one who has the hand may be stuck with its connection, and the hand is only a hint. */
static bool wait_for_turn(struct feed *f, int64_t now, bool *ret_has_hand)
{
	if (f->driver->takes_turns && f->claim_rows > (uint32_t)f->env.reader.outbox->batch_size) {
		*ret_has_hand = hand_take(f->env.reader.hand, f->env.outcomes);
		if (!*ret_has_hand && f->waiting_since_ms == 0)
			f->waiting_since_ms = now;
		if (!*ret_has_hand && now - f->waiting_since_ms < HAND_PATIENCE_MS)
			return false;
	}
	f->waiting_since_ms = 0;
	return true;
}

/* True when an outbox has just been paused: then one more exchange gives back what was claimed and had no row. */
static bool notice_pause(struct feed *f)
{
	bool was = f->paused;

	f->paused = bell_is_paused(f->env.bell);
	if (was && !f->paused)
		f->hungry = !f->draining;       /* whatever rang meanwhile */
	return f->paused && !was;
}

void feed_turn(struct feed *f, int64_t now, int64_t *ret_deadline_ms)
{
	bell_awake(f->env.bell, f->env.worker);
	f->gives_back |= notice_pause(f);
	if (!f->reader && !f->draining)
		reconnect(f, now);
	if (!f->reader) {
		*ret_deadline_ms = f->retry_at_ms;
		return;
	}
	receive(f, now);
	if (f->reader && !f->busy) {
		/* While a settle that failed waits, there are only beats. */
		bool waits = now < f->retry_at_ms, settle = !waits && should_settle(f), has_hand = false;
		/* When there is something to settle, a claim costs no trip of its own. */
		bool claim = !waits && (f->hungry || (settle && !f->driver->reads_ahead)) && !f->draining && !f->paused &&
			     has_room(f);

		if (claim)
			claim = wait_for_turn(f, now, &has_hand);
		else
			f->waiting_since_ms = 0;
		if (settle || claim || f->gives_back || now - f->last_exchange_ms >= f->beat_ms)
			begin(f, claim, has_hand, now);
	}
	*ret_deadline_ms = f->reader ? rest(f, now) : f->retry_at_ms;
	if (f->reader)
		*ret_deadline_ms = MIN(*ret_deadline_ms, holds_until(f));
}

int feed_pollfd(const struct feed *f, short *ret_events)
{
	return f->reader ? f->driver->pollfd(f->reader, ret_events) : -1;
}
