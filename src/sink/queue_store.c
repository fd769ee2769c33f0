#include "sink/queue_store.h"

#include <stdlib.h>

#include "base/mem.h"
#include "pg/exec.h"
#include "sink/event_rows.h"

/* Parameters are the columns of an event, see event_rows.h. What the queue's settings do not say yet is as the table has
 * it: a queue that is not there is made with order. Subqueries instead of joins, for the sake of plans: see event_store.c. */
static const char append_sql[] =
	"INSERT INTO postrider.queue_message"
	" (queue, lane, message_id, key, entity_type, entity_id, event_type, payload, headers, created_at)"
	" SELECT g.queue, postrider.lane_of("
	"   coalesce((SELECT q.ordered FROM postrider.queue q WHERE q.name = g.queue), true), g.key, g.message_id),"
	"  g.message_id, g.key, g.entity_type, g.entity_id, g.event_type, g.payload, g.headers::pg_catalog.jsonb,"
	"  g.created_at::pg_catalog.timestamptz"
	" FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),"
	"   pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.text[]),"
	"   pg_catalog.unnest($5::pg_catalog.bytea[]), pg_catalog.unnest($6::pg_catalog.text[]),"
	"   pg_catalog.unnest($7::pg_catalog.text[]), pg_catalog.unnest($8::pg_catalog.text[]),"
	"   pg_catalog.unnest($9::pg_catalog.text[])) WITH ORDINALITY"
	"  AS g(entity_type, entity_id, event_type, message_id, payload, headers, created_at, queue, key, place)"
	" WHERE (SELECT true FROM " QUEUE_TABLE " m WHERE m.queue = g.queue AND m.message_id = g.message_id) IS NULL"
	" ORDER BY g.place"
	" ON CONFLICT (queue, message_id) DO NOTHING";

static bool queue_learn(PGconn *conn, const char *table, struct store **ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	struct store *store;

	if (!pg_query(conn, "look for queues", "SELECT pg_catalog.to_regclass($1) IS NOT NULL", 1, &table, &res, err))
		return false;
	if (PQgetvalue(res, 0, 0)[0] != 't') {
		error_set(err, ERROR_CONFIG, "the database has no queues: the table %s does not exist", table);
		return error_hint(err, "run `postrider init` on it");
	}
	store = mem_new(struct store);
	store->kind = &queue_store_kind;
	store->append = mem_strdup(append_sql);
	store->n_columns = EVENT_COLUMNS;
	store->bytes = 1u << EVENT_PAYLOAD;
	*ret = store;
	return true;
}

static void queue_free(struct store *store)
{
	free(store->append);
	free(store);
}

/* Messages never compete for anything but their id, and there the other one wins; so only a deadlock is left. */
static bool queue_was_outrun(const struct store *store _unused_, const PGresult *res)
{
	return store_was_deadlock(res);
}

/* Whether it may do what append_sql does; and who it is. */
#define FACTS_SQL                                                                                                   \
	"SELECT pg_catalog.has_table_privilege('" QUEUE_TABLE "', 'INSERT')"                                        \
	"  AND pg_catalog.has_table_privilege('" QUEUE_TABLE "', 'SELECT')"                                         \
	"  AND pg_catalog.has_table_privilege('postrider.queue', 'SELECT'),"                                        \
	" pg_catalog.quote_ident(CURRENT_USER)"

static void queue_check(PGconn *conn, const struct store *store, const char *topic, struct finding_list *findings)
{
	_cleanup_(pg_result_clearp) PGresult *facts = NULL, *queue = NULL;
	_cleanup_(mem_freep) char *fix = NULL;
	struct error err;

	if (!pg_query(conn, "look at queues", FACTS_SQL, 0, NULL, &facts, &err)) {
		finding_add_error(findings, &err);
		return;
	}
	if (PQgetvalue(facts, 0, 0)[0] != 't') {
		fix = mem_printf("GRANT SELECT, INSERT ON " QUEUE_TABLE " TO %s; GRANT SELECT ON postrider.queue TO %s;",
				 PQgetvalue(facts, 0, 1), PQgetvalue(facts, 0, 1));
		finding_add(findings, FINDING_FAIL, fix, "this role may not put messages into queues");
		return;
	}
	store_check_statement(conn, store, findings);
	if (!topic)
		return;
	if (!pg_query(conn, "look for the queue", "SELECT q.ordered FROM postrider.queue q WHERE q.name = $1", 1, &topic, &queue,
		      &err))
		finding_add_error(findings, &err);
	else if (PQntuples(queue) == 0)
		finding_add(findings, FINDING_OK, NULL, "queue %s: is made, with order per key, with its first message", topic);
	else
		finding_add(findings, FINDING_OK, NULL, "queue %s: is there, %s order per key", topic,
			    PQgetvalue(queue, 0, 0)[0] == 't' ? "with" : "without");
}

const struct store_kind queue_store_kind = {
	.name = "queue",
	.learn = queue_learn,
	.free = queue_free,
	.was_outrun = queue_was_outrun,
	.check = queue_check,
};
