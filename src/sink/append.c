#include "sink/append.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "pg/conn.h"
#include "pg/exec.h"

enum { RETRY_FIRST_MS = 200, RETRY_MAX_MS = 10000, ANSWER_SLACK_MS = 2000 };

void append_init(struct append *a, const struct store_kind *kind, const struct database_config *database,
		 const char *table, struct outcomes *outcomes, struct breaker *breaker)
{
	*a = (struct append){
		.kind = kind, .database = database, .table = table, .outcomes = outcomes, .breaker = breaker
	};
	backoff_init(&a->backoff, RETRY_FIRST_MS, RETRY_MAX_MS, random_seed());
	event_rows_init(&a->rows);
}

void append_release(struct append *a)
{
	struct error why;

	error_set(&why, ERROR_LOST, "the sink was closed while the event was being stored");
	if (a->count > 0)
		outcomes_fail(a->outcomes, a->events + a->at, a->count - a->at, &why);
	dial_cancel(a->dial);
	pg_closep(&a->conn);
	store_free(a->store);
	event_rows_release(&a->rows);
	free(a->events);
	free(a->refused);
}

/* Connecting. */

static void pause_after(struct append *a, int64_t now_ms)
{
	a->retry_at_ms = now_ms + backoff_next(&a->backoff);
}

static void want_connection(struct append *a, int64_t now_ms)
{
	if (a->conn || a->dial)
		return;
	a->wanted = now_ms < a->retry_at_ms;
	if (!a->wanted)
		a->dial = dial_start(a->kind, a->database, a->table);
}

static void finish_dial(struct append *a, int64_t now_ms)
{
	struct store *store;

	if (!dial_finish(TAKE_PTR(a->dial), &a->conn, &store, &a->why_away)) {
		a->away = true;
		breaker_open(a->breaker, &a->why_away);
		pause_after(a, now_ms);
		return;
	}
	breaker_close(a->breaker);
	store_free(a->store);
	a->store = store;
	PQsetnonblocking(a->conn, 1);
}

/* Tells the worker why the server is away, by the only means there is: one event fails. */
static uint32_t report_away(struct append *a, struct event *const events[])
{
	if (!a->away)
		return 0;
	a->away = false;
	outcomes_fail(a->outcomes, events, 1, &a->why_away);
	return 1;
}

bool append_learn(struct append *a, struct event *const events[], int64_t now_ms, uint32_t *ret_taken)
{
	*ret_taken = 0;
	if (a->store)
		return true;
	*ret_taken = report_away(a, events);
	want_connection(a, now_ms);
	return false;
}

void append_relearn(struct append *a, int64_t now_ms)
{
	want_connection(a, now_ms);
}

void append_rest(struct append *a)
{
	if (a->count == 0)
		pg_closep(&a->conn);
}

/* The statement under way. */

static void forget_set(struct append *a)
{
	a->count = a->at = 0;
	a->n_refused = 0;
	a->one_by_one = a->failed = a->outrun = a->recalled = a->unflushed = false;
}

/* A failure that is not about a row: the server is going, or the table is not what it was. Connecting anew finds out. */
static void give_up(struct append *a, const struct error *why, int64_t now_ms)
{
	outcomes_fail(a->outcomes, a->events + a->at, a->count - a->at, why);
	forget_set(a);
	pg_closep(&a->conn);
	pause_after(a, now_ms);
}

bool append_send(struct append *a, PGconn *conn, const char *name, struct event *const events[], uint32_t n,
		 struct error *err)
{
	return event_rows_send(&a->rows, conn, name, a->store->n_columns, a->store->bytes, events, n, err);
}

static void flush(struct append *a)
{
	/* On failure reading says why. */
	a->unflushed = PQflush(a->conn) > 0;
}

/* Sends `n` events from number `at` on. False: it did not work out, and `failed` or the loss of the set says how. */
static bool send_events(struct append *a, uint32_t n, int64_t now_ms)
{
	a->failed = !append_send(a, a->conn, DIAL_STATEMENT, a->events + a->at, n, &a->why);
	if (!a->failed) {
		a->answer_by_ms = now_ms + a->database->statement_timeout_ms + ANSWER_SLACK_MS;
		flush(a);
		return true;
	}
	if (a->why.kind != ERROR_REJECTED)
		give_up(a, &a->why, now_ms);
	return false;
}

/* Has an earlier row of the same entity failed in this pass? Then this one must not be stored before it. */
static bool is_behind_refused(const struct append *a, const struct event *ev)
{
	for (uint32_t i = 0; i < a->n_refused; i++)
		if (slice_equal(a->events[a->refused[i]]->entity, ev->entity))
			return true;
	return false;
}

static void skip_behind_refused(struct append *a)
{
	struct error why;

	error_set(&why, ERROR_LOST, "not stored: an earlier event of its entity was refused");
	for (; a->at < a->count && is_behind_refused(a, a->events[a->at]); a->at++)
		outcomes_fail(a->outcomes, a->events + a->at, 1, &why);
}

static void refuse_one(struct append *a)
{
	a->refused[a->n_refused++] = a->at;
	outcomes_fail(a->outcomes, a->events + a->at, 1, &a->why);
	a->at++;
}

static void send_next_alone(struct append *a, int64_t now_ms)
{
	for (;;) {
		skip_behind_refused(a);
		if (a->at == a->count) {
			forget_set(a);
			return;
		}
		if (send_events(a, 1, now_ms) || a->count == 0)
			return;
		refuse_one(a);
	}
}

static int compare_entities(const void *a, const void *b)
{
	const struct event *x = *(struct event *const *)a, *y = *(struct event *const *)b;
	int order = slice_compare(x->entity_type, y->entity_type);

	if (order == 0)
		order = slice_compare(x->entity, y->entity);
	return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Others store events of the same entities at the same time, which only readers without an order let happen. Who waits for
 * another's entity while that one waits for theirs is in a deadlock; who stores them in one order never is. */
static void sort_by_entity(struct append *a)
{
	qsort(a->events + a->at, a->count - a->at, sizeof(struct event *), compare_entities);
}

/* Whoever was faster has committed, so that trying at once finds the next version; and somebody always is. True: the set is
 * under way again, or nobody waits for it any more. */
static bool send_again(struct append *a, uint32_t n, int64_t now_ms)
{
	struct error why;

	a->outrun = false;
	a->has_company = true;
	sort_by_entity(a);
	if (!a->recalled)
		return send_events(a, n, now_ms) || a->count == 0;
	error_set(&why, ERROR_LOST, "not stored: another worker stored an event of the same entity meanwhile");
	outcomes_fail(a->outcomes, a->events + a->at, a->count - a->at, &why);
	forget_set(a);
	return true;
}

/* The statement under way has ended, well or (failed) not. */
static void conclude(struct append *a, int64_t now_ms)
{
	uint32_t n = a->one_by_one ? 1 : a->count;

	if (a->outrun && send_again(a, n, now_ms))
		return;
	if (a->failed && a->why.kind != ERROR_REJECTED) {
		give_up(a, &a->why, now_ms);
		return;
	}
	backoff_reset(&a->backoff);
	if (!a->failed) {
		outcomes_deliver(a->outcomes, a->events + a->at, n);
		a->at += n;
	} else if (n == 1) {
		refuse_one(a);
	}
	/* What is left, and that is nothing unless the set was refused, goes one by one. */
	a->one_by_one = true;
	send_next_alone(a, now_ms);
}

/* How many events go into one statement. A row that was refused before goes alone: it would take the others with it. */
static uint32_t choose(struct event *const events[], uint32_t n)
{
	uint32_t fit = event_rows_fit(events, n);

	if (events[0]->attempt > 0)
		return 1;
	for (uint32_t i = 1; i < fit; i++)
		if (events[i]->attempt > 0)
			return i;
	return fit;
}

static void keep_set(struct append *a, struct event *const events[], uint32_t n)
{
	if (n > a->room) {
		a->events = mem_resize(a->events, n * sizeof(struct event *));
		a->refused = mem_resize(a->refused, n * sizeof(uint32_t));
		a->room = n;
	}
	memcpy(a->events, events, n * sizeof(struct event *));
	a->count = n;
}

uint32_t append_submit(struct append *a, struct event *const events[], uint32_t n, int64_t now_ms)
{
	uint32_t taken;

	if (n == 0 || a->count > 0)
		return 0;
	if (!a->conn) {
		taken = report_away(a, events);
		want_connection(a, now_ms);
		return taken;
	}
	taken = choose(events, n);
	keep_set(a, events, taken);
	if (a->has_company)
		sort_by_entity(a);
	if (!send_events(a, taken, now_ms) && a->count > 0)
		conclude(a, now_ms);
	return taken;
}

/* Takes in results. True when the statement has ended. */
static bool receive(struct append *a)
{
	while (!PQisBusy(a->conn)) {
		_cleanup_(pg_result_clearp) PGresult *res = PQgetResult(a->conn);

		if (!res)
			return true;
		/* Of several errors the first says why. */
		if (PQresultStatus(res) == PGRES_COMMAND_OK || a->failed)
			continue;
		a->failed = true;
		pg_error(a->conn, res, "append events", &a->why);
		a->outrun = a->kind->was_outrun(a->store, res);
	}
	return false;
}

static void lose_connection(struct append *a, int64_t now_ms)
{
	/* Nothing under way: the server closed an idle connection, and nobody misses it until the next event. */
	if (a->count == 0) {
		pg_closep(&a->conn);
		return;
	}
	/* The server's own word for it, if it had one. What it said of a row counts for nothing now. */
	receive(a);
	if (!a->failed || a->why.kind == ERROR_REJECTED || a->outrun)
		pg_error(a->conn, NULL, "append events", &a->why);
	give_up(a, &a->why, now_ms);
}

/* The server ends a statement that takes too long, and says so. Who hears nothing talks to a connection that leads nowhere. */
static void lose_silent_connection(struct append *a, int64_t now_ms)
{
	error_set(&a->why, ERROR_TRANSPORT, "append events: the server did not answer in %lld ms",
		  (long long)(a->database->statement_timeout_ms + ANSWER_SLACK_MS));
	shutdown(PQsocket(a->conn), SHUT_RDWR);
	give_up(a, &a->why, now_ms);
}

static void pump_connection(struct append *a, int64_t now_ms)
{
	if (a->unflushed)
		flush(a);
	if (!PQconsumeInput(a->conn)) {
		lose_connection(a, now_ms);
		return;
	}
	if (a->count > 0 && receive(a))
		conclude(a, now_ms);
	if (a->count > 0 && now_ms >= a->answer_by_ms)
		lose_silent_connection(a, now_ms);
	if (a->conn && PQstatus(a->conn) == CONNECTION_BAD)
		lose_connection(a, now_ms);
}

void append_recall(struct append *a)
{
	struct error why;

	error_set(&why, ERROR_LOST, "not stored: the claim on its entity is gone");
	a->recalled = a->count > 0;
	if (a->unflushed) {
		/* The server commits no half of a statement. Closing would still send the other half if it can. */
		shutdown(PQsocket(a->conn), SHUT_RDWR);
		outcomes_fail(a->outcomes, a->events + a->at, a->count - a->at, &why);
		forget_set(a);
		pg_closep(&a->conn);
	} else if (a->one_by_one && a->at + 1 < a->count) {
		outcomes_fail(a->outcomes, a->events + a->at + 1, a->count - a->at - 1, &why);
		a->count = a->at + 1;
	}
}

void append_pump(struct append *a, int64_t now_ms)
{
	if (a->dial && dial_is_over(a->dial))
		finish_dial(a, now_ms);
	if (a->conn)
		pump_connection(a, now_ms);
	else if (a->wanted)
		want_connection(a, now_ms);
}

int append_pollfd(const struct append *a, short *ret_events, int64_t *ret_deadline_ms)
{
	*ret_deadline_ms = CLOCK_NEVER;
	*ret_events = POLLIN;
	if (a->dial)
		return dial_fd(a->dial);
	if (a->conn) {
		if (a->count > 0)
			*ret_deadline_ms = a->answer_by_ms;
		*ret_events = a->unflushed ? POLLIN | POLLOUT : POLLIN;
		return PQsocket(a->conn);
	}
	if (a->wanted)
		*ret_deadline_ms = a->retry_at_ms;
	return -1;
}
