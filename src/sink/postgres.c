/* The sink `postgres`: an event store (event_store.h), reached in one of two ways.
 *
 * It *rides* when it is the last sink and lies in the database that the reader settles in: events are acknowledged at
 * once, and their INSERT travels in the transaction that deletes them from the outbox, so each arrives exactly once.
 * Otherwise it appends over a connection of its own (append.h) and acknowledges when its commit is on disk; a repeated
 * event is recognised by its message id, so the store has it once here too.
 *
 * When a ride fails because of what a row says, it is the worker that finds the row by settling them one by one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/finding.h"
#include "base/mem.h"
#include "pg/conn.h"
#include "pg/conninfo.h"
#include "pg/exec.h"
#include "sink/append.h"
#include "sink/outcome.h"
#include "sink/ride.h"
#include "sink/sink.h"

struct sink_target {
	const struct database_config *database;
	const char *table;
	bool with_outbox;               /* the database of the outbox, as the same user */
	struct breaker breaker;
};

struct sink {
	struct outcomes outcomes;
	struct append append;

	/* Only when it rides. */
	bool rides;
	struct ride ride;
	struct ride_statement insert;
};

/* The same place by the settings. When in doubt no: the own connection is right everywhere. */
static bool same_database(const struct database_config *a, const struct database_config *b)
{
	static const char *const place[] = { "host", "hostaddr", "port", "dbname", "user", "service" };
	_cleanup_(conninfo_release) struct conninfo x = { 0 }, y = { 0 };
	struct error ignored;

	if (!conninfo_build(a, "event store", &x, &ignored) || !conninfo_build(b, "event store", &y, &ignored))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(place); i++) {
		const char *v = conninfo_get(&x, place[i]), *w = conninfo_get(&y, place[i]);

		if (strcmp(v ? v : "", w ? w : "") != 0)
			return false;
	}
	return true;
}

static bool postgres_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err)
{
	const struct database_config *own = &config->postgres.database;
	_cleanup_(mem_freep) char *schema = NULL, *table = NULL;
	struct sink_target *t;

	if (!pg_split_qualified(config->postgres.table, &schema, &table, err))
		return false;
	t = mem_new(struct sink_target);
	breaker_init(&t->breaker);
	t->table = config->postgres.table;
	t->with_outbox = !own->url[0] || same_database(own, config->outbox_database);
	t->database = own->url[0] ? own : config->outbox_database;
	*ret = t;
	return true;
}

static void postgres_target_close(struct sink_target *t)
{
	if (!t)
		return;
	breaker_release(&t->breaker);
	free(t);
}

static struct breaker *postgres_breaker(struct sink_target *t)
{
	return &t->breaker;
}

static void postgres_check(struct sink_target *t, const char *topic _unused_, struct finding_list *findings)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;
	_cleanup_(event_store_freep) struct event_store *store = NULL;
	struct error err;

	if (dial_connect(t->database, -1, &conn, &err) && event_store_learn(conn, t->table, &store, &err))
		event_store_check(conn, store, findings);
	else
		finding_add_error(findings, &err);
}

static bool postgres_open(struct sink_target *t, const struct sink_env *env, struct sink **ret,
			  struct error *err _unused_)
{
	struct sink *s = mem_new(struct sink);

	s->outcomes.box = env->outcomes;
	s->rides = t->with_outbox && env->reader_identity && env->last;
	append_init(&s->append, t->database, t->table, &s->outcomes, &t->breaker);
	*ret = s;
	return true;
}

static void postgres_close(struct sink *s)
{
	if (!s)
		return;
	append_release(&s->append);
	ride_statement_forget(&s->insert);
	ride_release(&s->ride);
	free(s);
}

static uint32_t postgres_submit(struct sink *s, struct event *const events[], uint32_t n)
{
	int64_t now_ms = clock_ms();
	uint32_t taken;

	if (n == 0 || outcomes_unread(&s->outcomes))
		return 0;
	if (!s->rides)
		return append_submit(&s->append, events, n, now_ms);
	if (!append_learn(&s->append, events, now_ms, &taken))
		return taken;
	outcomes_deliver(&s->outcomes, events, n);
	return n;
}

static int postgres_pollfd(const struct sink *s, short *ret_events, int64_t *ret_deadline_ms)
{
	return append_pollfd(&s->append, ret_events, ret_deadline_ms);
}

static void postgres_pump(struct sink *s, int64_t now_ms)
{
	append_pump(&s->append, now_ms);
	/* To know the table is all that a rider needs a connection for. */
	if (s->rides)
		append_rest(&s->append);
}

/* A ride keeps nothing: what it acknowledged is in the window, which the claims' end has emptied. */
static void postgres_recall(struct sink *s)
{
	append_recall(&s->append);
}

static bool postgres_rides(const struct sink *s)
{
	return s->rides;
}

/* False leaves the connection with commands whose results nobody counts: the reader must close it. Where rows are does not
 * matter here: they are stored by what they say, and those that are there already are known by their message id. */
static bool postgres_ride(struct sink *s, PGconn *conn, struct event *const events[], uint32_t n, bool moved _unused_,
			  uint32_t *ret_results, struct error *err)
{
	uint32_t results = 0;

	if (!s->append.store)
		return error_set(err, ERROR_BUG, "events are settled that the event store has not taken");
	if (ride_repeats(&s->ride, events[0])) {
		ride_statement_forget(&s->insert);
		append_relearn(&s->append, clock_ms());
	}
	if (!ride_prepare(&s->insert, conn, s->append.store->insert, "append events", &results, err))
		return false;
	for (uint32_t at = 0, set; at < n; at += set, results++) {
		set = event_store_fit(events + at, n - at);
		if (!event_store_send(conn, s->append.store, s->insert.name, &s->append.rows, events + at, set, err))
			return false;
	}
	*ret_results = results;
	return true;
}

extern const struct sink_driver sink_postgres;
const struct sink_driver sink_postgres = {
	.name = "postgres",
	.summary = "an event store in PostgreSQL: a version per entity, each message id once",
	.caps = SINK_KEEPS_ORDER | SINK_ONE_STREAM | SINK_RIDES,
	.target_open = postgres_target_open,
	.target_close = postgres_target_close,
	.breaker = postgres_breaker,
	.check = postgres_check,
	.open = postgres_open,
	.close = postgres_close,
	.submit = postgres_submit,
	.pollfd = postgres_pollfd,
	.pump = postgres_pump,
	.recall = postgres_recall,
	.rides = postgres_rides,
	.ride = postgres_ride,
};
