/* The window under random schedules. Each seed makes a small world: a table, sinks that delay, fail and lose answers,
 * and a reader that settles, holds back, is refused and loses its connection. After each step the window is compared
 * with the model of window_model.h. When something is wrong the seed is named, and
 *
 *     POSTRIDER_TEST_SEED=<seed> test_window_random
 *
 * runs that schedule again and prints each step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "relay/batch.h"
#include "relay/verdict.h"
#include "window_model.h"
#include "window_sinks.h"

enum { SEEDS = 4000, STEPS_MAX = 20000, SECONDS_MAX = 60 };

/* --- the worker ----------------------------------------------------------------------------------------------- */

/* The rows ahead have entered the stage before, and nobody is there who should not be. */
static void check_turn(struct world *w, const struct copy *c, uint32_t stage)
{
	const struct entity *e = c->entity;

	if (c->where != IN_LANE || c->stage != stage || e->failed)
		broken(w, "it is not the turn of %s/%u at sink %u", e->name, c->index, stage);
	for (uint32_t i = 0; i < e->n_lane; i++) {
		const struct copy *other = e->lane[i];
		bool beside = other->where == SUBMITTED && other->stage == stage;

		if (other->index < c->index && other->stage <= stage && !beside)
			broken(w, "%s/%u enters sink %u ahead of %s/%u", e->name, c->index, stage, e->name,
			       other->index);
		if (beside && (!w->sinks[stage].keeps_order || c->ev->alone || other->went_alone))
			broken(w, "%s/%u enters sink %u beside %s/%u", e->name, c->index, stage, e->name, other->index);
	}
}

static void worker_submits(struct world *w, uint32_t stage)
{
	struct event *events[16];
	uint32_t max = 1 + below(w, ARRAY_SIZE(events)), n = window_submit(&w->w, stage, events, max), taken;

	if (n == 0)
		return;
	w->touched = true;
	for (uint32_t i = 0; i < n; i++) {
		check_turn(w, copy_of(events[i]), stage);
		copy_of(events[i])->where = SUBMITTED;
		copy_of(events[i])->went_alone = events[i]->alone;
	}
	taken = sink_takes(w, stage, events, n);
	for (uint32_t i = taken; i < n; i++)
		copy_of(events[i])->where = IN_LANE;
	trace(w, "sink %u takes %u of %u rows from %s/%u on", stage, taken, n, copy_of(events[0])->entity->name,
	      copy_of(events[0])->index);
	window_unsubmit(&w->w, stage, events + taken, n - taken);
}

static void worker_reads_mail(struct world *w)
{
	w->touched |= w->n_mail > 0;
	for (uint32_t i = 0; i < w->n_mail; i++) {
		struct mail *m = &w->mail[i];
		struct event *ev = m->copy->ev;

		trace(w, "the worker hears of %s/%u", m->copy->entity->name, m->copy->index);
		if (m->ok) {
			model_passed(w, m->copy);
			window_passed(&w->w, ev);
			continue;
		}
		w->sinks[m->stage].failures_unread--;
		m->copy->entity->failures_unread[m->stage]--;
		model_failed(w, m->copy, verdict_of(m->kind)->action);
		window_failed(&w->w, ev, verdict_of(m->kind)->action);
	}
	w->n_mail = 0;
}

/* --- the reader: claims --------------------------------------------------------------------------------------- */

static void fill_event(struct world *w, struct batch *b, struct event *ev, struct entity *e, uint32_t index)
{
	static const char zeros[300];
	struct copy *c = mem_new(struct copy);

	/* In the batch, so that whoever looks after the row has left is caught. */
	ev->entity = ev->lane_key = arena_copy(&b->arena, slice_of(e->name));
	ev->payload = (struct slice){ zeros, below(w, sizeof(zeros)) };
	ev->address = (struct slice){ (const char *)c, 0 };
	ev->attempt = e->retry_row == index ? e->attempts : 0;
	ev->alone = ev->attempt > 0;
	*c = (struct copy){ .ev = ev, .entity = e, .index = index, .bytes = event_bytes(ev) };
	c->made_before = w->made_last;
	w->made_last = c;
	if (w->now >= e->routable_from[index])
		return;
	ev->failure = mem_new(struct error);
	error_set(ev->failure, ERROR_CONFIG, "no topic");
}

static void admit(struct world *w, struct batch *b)
{
	for (uint32_t i = 0; i < b->count; i++) {
		struct copy *c = copy_of(&b->events[i]);

		c->entity->lane[c->entity->n_lane++] = c;
		window_admit(&w->w, &b->events[i]);
	}
	for (uint32_t i = 0; i < b->count; i++) {
		if (!b->events[i].failure)
			continue;
		trace(w, "%s/%u cannot be routed", copy_of(&b->events[i])->entity->name, copy_of(&b->events[i])->index);
		model_refused(copy_of(&b->events[i]));
		window_refused(&w->w, &b->events[i]);
	}
}

struct picked {
	struct entity *entity;
	uint32_t index;
};

static uint32_t pick_rows(struct world *w, struct entity *e, uint32_t from, struct picked rows[])
{
	uint32_t n = 0;

	while (n < w->rows_per_entity_claim && from + n < e->n_written) {
		rows[n] = (struct picked){ e, from + n };
		n++;
	}
	return n;
}

static void admit_picked(struct world *w, const struct picked rows[], uint32_t n)
{
	struct batch *b;

	if (n == 0)
		return;
	w->touched = true;
	trace(w, "%u rows claimed from %s/%u on", n, rows[0].entity->name, rows[0].index);
	b = batch_new(NULL, n);
	for (uint32_t i = 0; i < n; i++)
		fill_event(w, b, &b->events[i], rows[i].entity, rows[i].index);
	admit(w, b);
}

static void server_claims(struct world *w)
{
	struct picked rows[ENTITIES_MAX * ROWS_MAX];
	uint32_t n = 0, start = below(w, w->n_entities), wanted = 1 + below(w, 12);

	for (uint32_t i = 0; i < w->n_entities && n < wanted; i++) {
		struct entity *e = &w->entities[(start + i) % w->n_entities];
		uint32_t before = n;

		if (e->claimed || e->retry_at > w->now)
			continue;
		n += pick_rows(w, e, e->n_settled, rows + n);
		e->claimed = n > before;
	}
	admit_picked(w, rows, n);
}

/* Further rows of an entity that is ours already, as a reader that owns entities for long would fetch them. Such a
 * reader knows which entities it holds back: no row comes behind a held one. */
static void server_reads_ahead(struct world *w)
{
	struct entity *e = &w->entities[below(w, w->n_entities)];
	struct picked rows[ROWS_MAX];
	struct copy *last = e->n_lane > 0 ? e->lane[e->n_lane - 1] : NULL;

	if (last && !e->failed && last->where != HELD && !last->taken)
		admit_picked(w, rows, pick_rows(w, e, last->index + 1, rows));
}

/* --- the reader: settling ------------------------------------------------------------------------------------- */

static void mark_taken(struct event_list l, bool taken)
{
	for (struct event *ev = l.first; ev; ev = ev->next)
		copy_of(ev)->taken = taken;
}

/* As feed.c does it. */
static void exchange_begins(struct world *w)
{
	w->x.done = window_take(&w->w.delivered, w->one_by_one > 0 ? 1 : UINT32_MAX);
	w->x.held = (struct event_list){ 0 };
	if (w->w.delivered.count == 0 && (w->one_by_one == 0 || w->x.done.count == 0))
		w->x.held = window_take(&w->w.held, UINT32_MAX);
	mark_taken(w->x.done, true);
	mark_taken(w->x.held, true);
	w->x.claims = below(w, 4) > 0;
	w->x.under_way = w->touched = true;
	w->x.due = w->now + below(w, 12);
	trace(w, "exchange begins: %u delivered, %u held", w->x.done.count, w->x.held.count);
}

static bool transaction_accepts(const struct world *w)
{
	for (const struct event *ev = w->x.done.first; ev; ev = ev->next)
		if (w->now < copy_of(ev)->entity->accepted_from[copy_of(ev)->index])
			return false;
	return true;
}

static void server_deletes(struct world *w, const struct event *ev)
{
	const struct copy *c = copy_of(ev);
	struct entity *e = c->entity;

	trace(w, "%s/%u is settled", e->name, c->index);
	if (c->index != e->n_settled)
		broken(w, "%s/%u is settled before %s/%u", e->name, c->index, e->name, e->n_settled);
	for (uint32_t stage = 0; stage < w->n_stages; stage++)
		if (e->n_arrived[stage] <= c->index)
			broken(w, "%s/%u is settled and sink %u lacks it", e->name, c->index, stage);
	e->n_settled++;
	if (window_ends_lane(ev) != (e->lane[e->n_lane - 1] == c))
		broken(w, "%s/%u ends its lane or does not", e->name, c->index);
	if (window_ends_lane(ev))
		e->claimed = false;
}

static void server_holds(struct world *w, const struct event *ev)
{
	const struct copy *c = copy_of(ev);
	struct entity *e = c->entity;

	trace(w, "%s/%u is held back", e->name, c->index);
	if (c->index != e->n_settled)
		broken(w, "%s/%u is recorded as held before %s/%u is settled", e->name, c->index, e->name,
		       e->n_settled);
	e->attempts = ev->attempt + verdict_of(ev->failure->kind)->counts;
	e->retry_row = c->index;
	e->retry_at = w->now + 1 + below(w, 60);
	e->claimed = false;
}

static void server_commits(struct world *w)
{
	for (const struct event *ev = w->x.done.first; ev; ev = ev->next)
		server_deletes(w, ev);
	for (const struct event *ev = w->x.held.first; ev; ev = ev->next)
		server_holds(w, ev);
}

static void rows_leave(struct world *w, struct event_list l)
{
	for (struct event *ev = l.first, *next; ev; ev = next) {
		next = ev->next;
		model_done(w, copy_of(ev));
		window_done(&w->w, ev);
	}
}

static void settle_fails(struct world *w, enum error_kind kind)
{
	uint32_t n_done = w->x.done.count, n = n_done + w->x.held.count;
	struct event *first = w->x.done.first;

	trace(w, "settling fails: %s", error_kind_name(kind));
	mark_taken(w->x.done, false);
	mark_taken(w->x.held, false);
	window_return(&w->w.delivered, w->x.done);
	window_return(&w->w.held, w->x.held);
	if (kind != ERROR_REJECTED || n_done == 0)
		return;
	if (n > 1) {
		w->one_by_one = n_done;
		return;
	}
	w->one_by_one -= w->one_by_one > 0;
	trace(w, "%s/%u is refused by the settling transaction", copy_of(first)->entity->name, copy_of(first)->index);
	first->failure = mem_new(struct error);
	error_set(first->failure, ERROR_REJECTED, "duplicate key");
	model_refused(copy_of(first));
	window_refused(&w->w, first);
}

static void connection_is_lost(struct world *w)
{
	trace(w, "connection lost");
	w->touched = true;
	if (w->x.under_way && below(w, 2) && transaction_accepts(w))
		server_commits(w);      /* and the answer never comes */
	w->x = (struct fake_exchange){ 0 };
	w->one_by_one = 0;
	model_abandon(w);
	window_abandon(&w->w);
}

static void exchange_ends(struct world *w)
{
	if (w->now < w->x.due)
		return;
	w->x.under_way = false;
	w->touched = true;
	if (!transaction_accepts(w)) {
		settle_fails(w, ERROR_REJECTED);
	} else if (mishap(w, w->percent.refuse_settle)) {
		settle_fails(w, below(w, 2) ? ERROR_TRANSPORT : ERROR_NONE);
	} else {
		server_commits(w);
		if (w->one_by_one > 0 && w->x.done.count > 0)
			w->one_by_one--;
		rows_leave(w, w->x.done);
		rows_leave(w, w->x.held);
	}
	/* Also when settling failed: that was another transaction. */
	if (w->x.claims)
		server_claims(w);
}

/* --- schedules ------------------------------------------------------------------------------------------------ */

static void somebody_writes(struct world *w)
{
	struct entity *e = &w->entities[below(w, w->n_entities)];

	e->n_written += 1 + below(w, 3);
	e->n_written = MIN(e->n_written, e->n_rows);
}

static void take_a_step(struct world *w)
{
	uint32_t stage = below(w, w->n_stages);

	switch (below(w, 10)) {
	case 0:
		w->now += 1 + below(w, 4);
		let_ghosts_arrive(w);
		return;
	case 1:
		somebody_writes(w);
		if (mishap(w, w->percent.away))
			w->sinks[stage].away_until = w->now + below(w, 50);
		return;
	case 2:
	case 3:
		worker_reads_mail(w);
		break;
	case 4:
	case 5:
		worker_submits(w, stage);
		break;
	case 6:
		if (w->x.under_way)
			exchange_ends(w);
		else
			exchange_begins(w);
		if (below(w, 100) < w->percent.read_ahead)
			server_reads_ahead(w);
		break;
	case 7:
		if (mishap(w, w->percent.lose))
			connection_is_lost(w);
		break;
	default:
		sink_works(w, stage);
		return;                 /* the window does not know yet */
	}
	if (w->touched)
		check(w);
	w->touched = false;
}

static bool everything_is_settled(const struct world *w)
{
	for (uint32_t i = 0; i < w->n_entities; i++)
		if (w->entities[i].n_settled < w->entities[i].n_rows)
			return false;
	return w->w.rows == 0;
}

/* Half of the worlds have none of a kind of mishap, so that each meets each other both with and without the rest. */
static uint32_t maybe_percent(struct world *w, uint32_t max)
{
	return below(w, 2) ? 0 : 1 + below(w, max);
}

static void create_entity(struct world *w, struct entity *e, uint32_t number, uint32_t rows_max)
{
	snprintf(e->name, sizeof(e->name), "e%u", number);
	e->n_rows = 1 + below(w, rows_max);
	e->n_written = below(w, e->n_rows + 1);
	e->retry_row = UINT32_MAX;
	for (uint32_t i = 0; i < e->n_rows; i++) {
		if (below(w, 100) < w->percent.unroutable)
			e->routable_from[i] = below(w, CALM_AFTER_MS);
		if (below(w, 100) < w->percent.unaccepted)
			e->accepted_from[i] = below(w, CALM_AFTER_MS);
	}
}

static void create(struct world *w, uint64_t seed)
{
	bool keeps_order[STAGES_MAX], many;

	*w = (struct world){ .seed = seed, .random = seed };
	w->percent.fail = maybe_percent(w, 40);
	w->percent.lose = maybe_percent(w, 10);
	w->percent.refuse_settle = maybe_percent(w, 40);
	w->percent.unroutable = maybe_percent(w, 30);
	w->percent.unaccepted = maybe_percent(w, 30);
	w->percent.away = maybe_percent(w, 20);
	w->percent.read_ahead = maybe_percent(w, 60);
	w->percent.alone = maybe_percent(w, 80);
	w->n_stages = 1 + below(w, STAGES_MAX);
	for (uint32_t i = 0; i < w->n_stages; i++) {
		w->sinks[i].keeps_order = keeps_order[i] = below(w, 3) > 0;
		w->sinks[i].takes_while_failing = below(w, 2);
		w->sinks[i].reports_in_order = below(w, 3) == 0;
	}
	window_init(&w->w, w->n_stages, keeps_order);
	many = below(w, 100) == 0;      /* more lanes than the window has buckets at first */
	w->n_entities = many ? ENTITIES_MAX : 1 + below(w, 4);
	w->rows_per_entity_claim = below(w, 2) ? ROWS_MAX : 1 + below(w, ROWS_MAX);
	for (uint32_t i = 0; i < w->n_entities; i++)
		create_entity(w, &w->entities[i], i, many ? 2 : ROWS_MAX);
}

static void destroy(struct world *w)
{
	window_release(&w->w);
	for (struct copy *c = w->made_last, *before; c; c = before) {
		before = c->made_before;
		free(c);
	}
}

static void run(uint64_t seed, bool traced)
{
	static struct world w;

	create(&w, seed);
	w.traced = traced;
	while (!everything_is_settled(&w)) {
		shared->step = ++w.step;
		if (w.step > STEPS_MAX)
			broken(&w, "stuck: %u rows in the window, and not all are settled", w.w.rows);
		take_a_step(&w);
	}
	for (uint32_t i = 0; i < w.n_entities; i++)
		for (uint32_t stage = 0; stage < w.n_stages; stage++)
			if (w.entities[i].n_arrived[stage] != w.entities[i].n_rows)
				broken(&w, "sink %u lacks rows of %s", stage, w.entities[i].name);
	destroy(&w);
}

/* A child of its own, so that a crash, a failed assertion or an endless loop names its seed too. */
static void whatever_happens_rows_are_settled_in_order_and_none_is_lost(void **state _unused_)
{
	const char *chosen = getenv("POSTRIDER_TEST_SEED");
	uint64_t first = chosen ? strtoull(chosen, NULL, 10) : 1, last = chosen ? first : SEEDS;
	int status;
	pid_t child;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	fflush(stdout);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		alarm(SECONDS_MAX);
		/* Not cmocka's handler, which would go on with the next test. */
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		signal(SIGFPE, SIG_DFL);
		signal(SIGILL, SIG_DFL);
		for (shared->seed = first; shared->seed <= last; shared->seed++)
			run(shared->seed, chosen != NULL);
		exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status))
		snprintf(shared->message, sizeof(shared->message), "%s", strsignal(WTERMSIG(status)));
	else if (status != 0 && !shared->message[0])
		snprintf(shared->message, sizeof(shared->message), "see above");
	if (status != 0)
		fail_msg("step %llu: %s\n    POSTRIDER_TEST_SEED=%llu runs it again", (unsigned long long)shared->step,
			 shared->message, (unsigned long long)shared->seed);
	munmap(shared, sizeof(*shared));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whatever_happens_rows_are_settled_in_order_and_none_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
