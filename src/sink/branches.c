/* The sink of an outbox that has branches: it moves each row into the tables of the branches that take it.
 *
 * It always rides: rows are acknowledged at once, and copied (branch_plan.h) by the transaction that settles them. So each row
 * is in its branches exactly once, and each branch, which is an outbox of its own, goes on without waiting for the others. A
 * row that no branch takes is settled.
 *
 * What is copied how is learnt from the catalogue before the first row, in a thread beside the worker's loop, and again when
 * the same rows come twice: somebody may have changed a table. */
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/errand.h"
#include "base/finding.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/conn.h"
#include "pg/exec.h"
#include "pg/table.h"
#include "relay/batch.h"
#include "sink/branch_plan.h"
#include "sink/breaker.h"
#include "sink/only.h"
#include "sink/outcome.h"
#include "sink/ride.h"
#include "sink/sink.h"

enum { RETRY_FIRST_MS = 200, RETRY_MAX_MS = 10000 };
#define PARAM_CEILING ((size_t)256 << 20)

struct sink_target {
	const struct outbox_config *outbox;
	const struct database_config *database;
	struct breaker breaker;
	_Atomic uint64_t unmatched;     /* rows that no branch took; those that were settled twice count twice */
};

/* Learning the plan, in a thread of its own. What it writes is read after it has ended. */
struct lesson {
	struct errand errand;
	const struct sink_target *target;
	struct branch_plan *plan;       /* NULL: `why` says why */
	struct error why;
};

struct sink {
	struct sink_target *target;
	struct outcomes outcomes;
	struct branch_plan *plan;       /* NULL: not learnt yet */
	struct lesson *lesson;          /* NULL: none is under way */
	struct backoff backoff;
	int64_t retry_at_ms;
	bool wanted;                    /* as soon as that time has come */
	bool failed;                    /* `why` has not been reported */
	struct error why;

	struct ride ride;
	struct ride_statement (*statements)[BRANCH_WAYS];       /* of each branch */
	struct buf places, ids;         /* parameters, kept for their memory */
};

static bool branches_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err _unused_)
{
	struct sink_target *t = mem_new(struct sink_target);

	t->outbox = config->branches.outbox;
	t->database = config->outbox_database;
	breaker_init(&t->breaker);
	*ret = t;
	return true;
}

static void branches_target_close(struct sink_target *t)
{
	if (!t)
		return;
	breaker_release(&t->breaker);
	free(t);
}

static struct breaker *branches_breaker(struct sink_target *t)
{
	return &t->breaker;
}

static uint64_t branches_unmatched(const struct sink_target *t)
{
	return atomic_load_explicit(&t->unmatched, memory_order_relaxed);
}

static bool branches_open(struct sink_target *t, const struct sink_env *env, struct sink **ret, struct error *err)
{
	struct sink *s;

	if (!env->reader_identity) {
		error_set(err, ERROR_CONFIG, "rows cannot move into branches through a pooler that shares connections");
		return error_hint(err, "connect to PostgreSQL itself, or to a pooler in session mode");
	}
	s = mem_new(struct sink);
	s->target = t;
	s->outcomes.box = env->outcomes;
	s->statements = mem_alloc(t->outbox->n_branches * sizeof(*s->statements));
	for (size_t i = 0; i < t->outbox->n_branches; i++)
		for (int way = 0; way < BRANCH_WAYS; way++)
			s->statements[i][way] = (struct ride_statement){ 0 };
	backoff_init(&s->backoff, RETRY_FIRST_MS, RETRY_MAX_MS, random_seed());
	buf_init(&s->places, PARAM_CEILING);
	buf_init(&s->ids, PARAM_CEILING);
	*ret = s;
	return true;
}

/* The transaction before this one was rolled back, and what it was to prepare may not be. */
static void forget_statements(struct sink *s)
{
	for (size_t i = 0; i < s->target->outbox->n_branches; i++)
		for (int way = 0; way < BRANCH_WAYS; way++)
			ride_statement_forget(&s->statements[i][way]);
}

/* --- learning ------------------------------------------------------------------------------------------------------ */

static void learn(void *arg)
{
	struct lesson *lesson = arg;
	const struct sink_target *t = lesson->target;
	_cleanup_(pg_closep) PGconn *conn = NULL;

	if (pg_connect(t->database, "branches", lesson->errand.interrupt_fd, &conn, &lesson->why))
		branch_plan_learn(conn, t->outbox, &lesson->plan, &lesson->why);
}

static void want_plan(struct sink *s, int64_t now_ms)
{
	if (s->lesson)
		return;
	s->wanted = now_ms < s->retry_at_ms;
	if (s->wanted)
		return;
	s->lesson = mem_new(struct lesson);
	s->lesson->target = s->target;
	errand_start(&s->lesson->errand, learn, s->lesson, &s->lesson->why);
}

static void finish_lesson(struct sink *s, int64_t now_ms)
{
	struct lesson *lesson = TAKE_PTR(s->lesson);

	errand_end(&lesson->errand);
	if (lesson->plan) {
		branch_plan_free(s->plan);
		s->plan = lesson->plan;
		backoff_reset(&s->backoff);
		breaker_close(&s->target->breaker);
	} else {
		s->why = lesson->why;
		s->failed = true;
		s->retry_at_ms = now_ms + backoff_next(&s->backoff);
		breaker_open(&s->target->breaker, &s->why);
	}
	free(lesson);
}

static void branches_close(struct sink *s)
{
	if (!s)
		return;
	if (s->lesson) {
		errand_interrupt(&s->lesson->errand);
		finish_lesson(s, clock_ms());
	}
	forget_statements(s);
	free(s->statements);
	ride_release(&s->ride);
	branch_plan_free(s->plan);
	buf_release(&s->places);
	buf_release(&s->ids);
	free(s);
}

/* Tells the worker why nothing moves, by the only means there is: one event fails. */
static uint32_t report_failure(struct sink *s, struct event *const events[])
{
	if (!s->failed)
		return 0;
	s->failed = false;
	outcomes_fail(&s->outcomes, events, 1, &s->why);
	return 1;
}

static uint32_t branches_submit(struct sink *s, struct event *const events[], uint32_t n)
{
	uint32_t taken;

	if (n == 0 || outcomes_unread(&s->outcomes))
		return 0;
	if (s->plan) {
		outcomes_deliver(&s->outcomes, events, n);
		return n;
	}
	taken = report_failure(s, events);
	want_plan(s, clock_ms());
	return taken;
}

static int branches_pollfd(const struct sink *s, short *ret_events, int64_t *ret_deadline_ms)
{
	if (s->lesson) {
		*ret_events = POLLIN;
		return s->lesson->errand.over_fd;
	}
	if (s->wanted)
		*ret_deadline_ms = s->retry_at_ms;
	return -1;
}

static void branches_pump(struct sink *s, int64_t now_ms)
{
	if (s->lesson && errand_is_over(&s->lesson->errand))
		finish_lesson(s, now_ms);
	else if (s->wanted && now_ms >= s->retry_at_ms)
		want_plan(s, now_ms);
}

/* --- riding -------------------------------------------------------------------------------------------------------- */

static bool branches_rides(const struct sink *s _unused_)
{
	return true;
}

/* What of these events the branch takes, as parameters of its statement. */
static void collect(struct sink *s, const struct outbox_config *branch, struct event *const events[], uint32_t n,
		    enum branch_way way)
{
	array_begin(&s->places, way == BRANCH_BY_KEY ? TYPE_TEXT : TYPE_TID);
	array_begin(&s->ids, PQftype(events[0]->batch->rows, FIELD_ID));
	for (uint32_t i = 0; i < n; i++) {
		const struct event *ev = events[i];

		if (!only_takes(&branch->only, ev))
			continue;
		array_add(&s->places, way == BRANCH_BY_KEY ? ev->entity : ev->address);
		array_add(&s->ids, ev->raw_id);
	}
}

static bool is_taken(const struct outbox_config *outbox, const struct event *ev)
{
	for (size_t i = 0; i < outbox->n_branches; i++)
		if (only_takes(&outbox->branches[i].only, ev))
			return true;
	return false;
}

static void count_unmatched(struct sink_target *t, struct event *const events[], uint32_t n)
{
	uint64_t unmatched = 0;

	for (uint32_t i = 0; i < n; i++)
		unmatched += !is_taken(t->outbox, events[i]);
	if (unmatched > 0)
		atomic_fetch_add_explicit(&t->unmatched, unmatched, memory_order_relaxed);
}

static bool copy(struct sink *s, PGconn *conn, size_t branch, enum branch_way way, uint32_t *results, struct error *err)
{
	static const char doing[] = "move rows into a branch";
	const char *const values[] = { s->places.data, s->ids.data };
	const int lengths[] = { (int)s->places.len, (int)s->ids.len }, formats[] = { 1, 1 };
	struct ride_statement *statement = &s->statements[branch][way];

	if (array_count(&s->ids) == 0)
		return true;
	if (!ride_prepare(statement, conn, s->plan->copies[branch].sql[way], doing, results, err))
		return false;
	if (!PQsendQueryPrepared(conn, statement->name, 2, values, lengths, formats, 0))
		return pg_error(conn, NULL, doing, err);
	(*results)++;
	return true;
}

/* False leaves the connection with commands whose results nobody counts: the reader must close it. */
static bool branches_ride(struct sink *s, PGconn *conn, struct event *const events[], uint32_t n, bool moved,
			  uint32_t *ret_results, struct error *err)
{
	const struct outbox_config *outbox = s->target->outbox;
	enum branch_way way = moved ? BRANCH_BY_KEY : BRANCH_BY_ADDRESS;
	bool repeats = ride_repeats(&s->ride, events[0]);
	uint32_t results = 0;

	if (!s->plan)
		return error_set(err, ERROR_BUG, "rows are settled that no branch has taken");
	if (repeats || moved)
		forget_statements(s);
	if (repeats && !moved)
		want_plan(s, clock_ms());
	for (size_t i = 0; i < outbox->n_branches; i++) {
		collect(s, &outbox->branches[i], events, n, way);
		if (!copy(s, conn, i, way, &results, err))
			return false;
	}
	if (!repeats)
		count_unmatched(s->target, events, n);
	*ret_results = results;
	return true;
}

static void branches_check(struct sink_target *t, const char *topic _unused_, struct finding_list *findings)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;
	struct branch_plan *plan = NULL;
	struct error err;

	if (!pg_connect(t->database, "branches", -1, &conn, &err) || !branch_plan_learn(conn, t->outbox, &plan, &err))
		finding_add_error(findings, &err);
	else
		finding_add(findings, FINDING_OK, NULL, "outbox %s: rows move into %zu branches", t->outbox->name,
			    t->outbox->n_branches);
	branch_plan_free(plan);
}

extern const struct sink_driver sink_branches;
const struct sink_driver sink_branches = {
	.name = "branches",
	.summary = "the branches of an outbox",
	.caps = SINK_KEEPS_ORDER | SINK_ONE_STREAM | SINK_RIDES,
	.target_open = branches_target_open,
	.target_close = branches_target_close,
	.breaker = branches_breaker,
	.check = branches_check,
	.unmatched = branches_unmatched,
	.open = branches_open,
	.close = branches_close,
	.submit = branches_submit,
	.pollfd = branches_pollfd,
	.pump = branches_pump,
	.rides = branches_rides,
	.ride = branches_ride,
};
