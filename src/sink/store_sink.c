#include "sink/store_sink.h"

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

struct sink_target {
	const struct store_kind *kind;
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
static bool same_database(const struct store_kind *kind, const struct database_config *a,
			  const struct database_config *b)
{
	static const char *const place[] = { "host", "hostaddr", "port", "dbname", "user", "service" };
	_cleanup_(conninfo_release) struct conninfo x = { 0 }, y = { 0 };
	struct error ignored;

	if (!conninfo_build(a, kind->name, &x, &ignored) || !conninfo_build(b, kind->name, &y, &ignored))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(place); i++) {
		const char *v = conninfo_get(&x, place[i]), *w = conninfo_get(&y, place[i]);

		if (strcmp(v ? v : "", w ? w : "") != 0)
			return false;
	}
	return true;
}

struct sink_target *store_target_new(const struct store_kind *kind, const struct database_config *own,
				     const struct database_config *outbox, const char *table)
{
	struct sink_target *t = mem_new(struct sink_target);

	breaker_init(&t->breaker);
	t->kind = kind;
	t->table = table;
	t->with_outbox = !own->url[0] || same_database(kind, own, outbox);
	t->database = own->url[0] ? own : outbox;
	return t;
}

void store_sink_target_close(struct sink_target *t)
{
	if (!t)
		return;
	breaker_release(&t->breaker);
	free(t);
}

struct breaker *store_sink_breaker(struct sink_target *t)
{
	return &t->breaker;
}

void store_sink_check(struct sink_target *t, const char *topic, struct finding_list *findings)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;
	_cleanup_(store_freep) struct store *store = NULL;
	struct error err;

	if (dial_connect(t->kind, t->database, -1, &conn, &err) && t->kind->learn(conn, t->table, &store, &err))
		t->kind->check(conn, store, topic, findings);
	else
		finding_add_error(findings, &err);
}

bool store_sink_open(struct sink_target *t, const struct sink_env *env, struct sink **ret,
			  struct error *err _unused_)
{
	struct sink *s = mem_new(struct sink);

	s->outcomes.box = env->outcomes;
	s->rides = t->with_outbox && env->reader_identity && env->last;
	append_init(&s->append, t->kind, t->database, t->table, &s->outcomes, &t->breaker);
	*ret = s;
	return true;
}

void store_sink_close(struct sink *s)
{
	if (!s)
		return;
	append_release(&s->append);
	ride_statement_forget(&s->insert);
	ride_release(&s->ride);
	free(s);
}

uint32_t store_sink_submit(struct sink *s, struct event *const events[], uint32_t n)
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

int store_sink_pollfd(const struct sink *s, short *ret_events, int64_t *ret_deadline_ms)
{
	return append_pollfd(&s->append, ret_events, ret_deadline_ms);
}

void store_sink_pump(struct sink *s, int64_t now_ms)
{
	append_pump(&s->append, now_ms);
	/* To know the table is all that a rider needs a connection for. */
	if (s->rides)
		append_rest(&s->append);
}

/* A ride keeps nothing: what it acknowledged is in the window, which the claims' end has emptied. */
void store_sink_recall(struct sink *s)
{
	append_recall(&s->append);
}

bool store_sink_rides(const struct sink *s)
{
	return s->rides;
}

/* False leaves the connection with commands whose results nobody counts: the reader must close it. Where rows are does not
 * matter here: they are stored by what they say, and those that are there already are known by their message id. */
bool store_sink_ride(struct sink *s, PGconn *conn, struct event *const events[], uint32_t n, bool moved _unused_,
		     uint32_t *ret_results, struct error *err)
{
	uint32_t results = 0;

	if (!s->append.store)
		return error_set(err, ERROR_BUG, "events are settled that the %s has not taken", s->append.kind->name);
	if (ride_repeats(&s->ride, events[0])) {
		ride_statement_forget(&s->insert);
		append_relearn(&s->append, clock_ms());
	}
	if (!ride_prepare(&s->insert, conn, s->append.store->append, "append events", &results, err))
		return false;
	for (uint32_t at = 0, set; at < n; at += set, results++) {
		set = event_rows_fit(events + at, n - at);
		if (!append_send(&s->append, conn, s->insert.name, events + at, set, err))
			return false;
	}
	*ret_results = results;
	return true;
}
