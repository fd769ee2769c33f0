#include "keep/overview.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"
#include "keep/node.h"
#include "pg/exec.h"
#include "pg/migrate.h"
#include "pg/table.h"

/* What workers have as rows: shards, and leases on entities. There are no more of these than workers hold at a time. */
#define WITH_OWNED                                                                                              \
	"WITH owned AS (SELECT b.table_name, x.node, x.worker, sum(x.shards) AS shards, sum(x.leases) AS leases FROM" \
	" (SELECT s.outbox, s.node, s.worker, 1 AS shards, 0 AS leases FROM postrider.shard s"                  \
	"  WHERE s.node IS NOT NULL AND s.expires_at > clock_timestamp()"                                       \
	"  UNION ALL SELECT c.outbox, c.node, c.worker, 0, 1 FROM postrider.claim c"                            \
	"  WHERE c.expires_at > clock_timestamp()) AS x"                                                        \
	" JOIN postrider.outbox b ON b.id = x.outbox GROUP BY 1, 2, 3) "

/* What a node of another version writes may have another shape; paths find what is there and never fail. */
static const char select_nodes[] =
	WITH_OWNED "SELECT n.id, n.name, n.version, n.schema, n.pid,"
	" CASE WHEN NOT " NODE_IS_SILENT " THEN 'alive' WHEN " NODE_IS_GONE " THEN 'dead' ELSE 'silent' END,"
	" CASE WHEN n.backend_pid IS NULL THEN NULL WHEN " NODE_IS_GONE " THEN 'gone' ELSE 'open' END,"
	" " PG_RFC3339("n.started_at", "") ", " PG_RFC3339("n.heartbeat_at", ".MS") ","
	" GREATEST((extract(epoch FROM clock_timestamp() - n.heartbeat_at) * 1000)::bigint, 0), n.heartbeat_ms,"
	" (SELECT count(*) FROM jsonb_path_query(n.state, '$.outboxes[*].workers[*]')),"
	" jsonb_path_query_array(n.state, '$.outboxes[*]'),"
	" COALESCE((SELECT jsonb_agg(jsonb_build_object('table', w.table_name, 'worker', w.worker, 'shards', w.shards,"
	"   'leases', w.leases) ORDER BY w.table_name, w.worker) FROM owned w WHERE w.node = n.id), '[]')"
	" FROM postrider.node n ORDER BY n.id";

static const char select_workers[] =
	WITH_OWNED "SELECT n.id, o.item ->> 'name', w.item ->> 'number', w.item ->> 'connected',"
	" w.item ->> 'condition', w.item ->> 'entities', GREATEST(x.shards, x.leases), w.item ->> 'rows',"
	" w.item ->> 'settled', w.item ->> 'claims', w.item ->> 'empty_claims', w.item ->> 'lost',"
	" w.item ->> 'claim_ms', w.item ->> 'error'"
	" FROM postrider.node n"
	" CROSS JOIN jsonb_path_query(n.state, '$.outboxes[*]') WITH ORDINALITY AS o(item, place)"
	" CROSS JOIN jsonb_path_query(o.item, '$.workers[*]') WITH ORDINALITY AS w(item, place)"
	" LEFT JOIN owned x ON x.node = n.id AND x.table_name = o.item ->> 'table'"
	"  AND x.worker::text = w.item ->> 'number'"
	" ORDER BY n.id, o.place, w.place";

static const char select_sinks[] =
	"SELECT n.id, o.item ->> 'name', s.item ->> 'name', s.item ->> 'open_since', s.item ->> 'reason'"
	" FROM postrider.node n"
	" CROSS JOIN jsonb_path_query(n.state, '$.outboxes[*]') WITH ORDINALITY AS o(item, place)"
	" CROSS JOIN jsonb_path_query(o.item, '$.sinks[*] ? (@.open_since != null)') WITH ORDINALITY AS s(item, place)"
	" ORDER BY n.id, o.place, s.place";

#define COUNT_UP_TO_MAX(table) "(SELECT count(*) FROM (SELECT FROM " table " x WHERE x.outbox = w.outbox LIMIT 100000) c)"

static const char select_slots[] =
	"SELECT b.table_name, w.slot, CASE WHEN w.polling_since IS NOT NULL THEN 'polled' WHEN s.slot_name IS NULL THEN 'gone'"
	"   WHEN coalesce(s.wal_status, 'lost') = 'lost' THEN 'lost' WHEN s.active THEN 'active' ELSE 'idle' END,"
	" CASE WHEN NOT pg_is_in_recovery() THEN (pg_current_wal_lsn() - s.restart_lsn)::bigint END, s.wal_status,"
	" s.confirmed_flush_lsn, " COUNT_UP_TO_MAX("postrider.wal_backlog") ", " COUNT_UP_TO_MAX("postrider.parked")
	" FROM postrider.wal w JOIN postrider.outbox b ON b.id = w.outbox"
	" LEFT JOIN pg_replication_slots s ON s.slot_name = w.slot ORDER BY b.table_name";

/* --- one outbox ----------------------------------------------------------------------------------------------- */

/* A condition that a row `o` is still to be published and not scheduled for later. The caller frees. */
static char *is_not_for_later(const struct table *t)
{
	char *pending = table_pending(t), *later;

	if (!t->scheduled.name)
		return pending;
	/* In words of which the planner has statistics: it must see that nearly all rows are, and go along the order. */
	later = mem_printf("%1$s AND (o.%2$s IS NULL OR o.%2$s <= now())", pending, t->scheduled.quoted);
	free(pending);
	return later;
}

/* Never more than so many rows: a backlog may have millions. */
static bool count_pending(PGconn *conn, const struct table *t, struct outbox_overview *o, struct error *err)
{
	_cleanup_(mem_freep) char *waits = is_not_for_later(t);
	_cleanup_(mem_freep) char *sql = mem_printf("SELECT count(*) FROM (SELECT FROM %s o WHERE %s LIMIT %d) AS s", t->name,
						    waits, PENDING_MAX + 1);
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pg_query(conn, "count pending rows", sql, 0, NULL, &res, err))
		return false;
	o->pending = atoll(PQgetvalue(res, 0, 0));
	o->more = o->pending > PENDING_MAX;
	o->pending = o->estimate = MIN(o->pending, PENDING_MAX);
	return true;
}

static bool count_scheduled(PGconn *conn, const struct table *t, struct outbox_overview *o, struct error *err)
{
	_cleanup_(mem_freep) char *sql = NULL;
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	o->next_due_ms = -1;
	if (!t->scheduled.name)
		return true;
	sql = mem_printf("SELECT (SELECT count(*) FROM (SELECT FROM %1$s o WHERE o.%2$s > now() LIMIT %3$d) AS s),"
			 " (SELECT (extract(epoch FROM o.%2$s - now()) * 1000)::bigint FROM %1$s o"
			 "   WHERE o.%2$s > now() AND o.%2$s < 'infinity' ORDER BY o.%2$s LIMIT 1)",
			 t->name, t->scheduled.quoted, PENDING_MAX);
	if (!pg_query(conn, "count scheduled rows", sql, 0, NULL, &res, err))
		return false;
	o->scheduled = atoll(PQgetvalue(res, 0, 0));
	if (!PQgetisnull(res, 0, 1))
		o->next_due_ms = atoll(PQgetvalue(res, 0, 1));
	return true;
}

/* Of very many, how many the planner expects: from the table's size and statistics, without reading it. It has no idea of how
 * many are scheduled, which are counted. */
static bool estimate_pending(PGconn *conn, const struct table *t, struct outbox_overview *o, struct error *err)
{
	_cleanup_(mem_freep) char *pending = table_pending(t), *sql = NULL;
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	const char *rows;

	if (!o->more)
		return true;
	sql = mem_printf("EXPLAIN SELECT FROM %s o WHERE %s", t->name, pending);
	if (!pg_query(conn, "estimate pending rows", sql, 0, NULL, &res, err))
		return false;
	rows = strstr(PQgetvalue(res, 0, 0), " rows=");
	o->estimate = MAX(rows ? atoll(rows + strlen(" rows=")) - o->scheduled : 0, PENDING_MAX);
	return true;
}

static bool has_index_on_order(PGconn *conn, const struct table *t, bool *ret, struct error *err)
{
	_cleanup_(mem_freep) char *oid = mem_printf("%u", t->oid);
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pg_query(conn, "look for an index",
		      "SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a"
		      " ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
		      " WHERE i.indrelid = $1::pg_catalog.oid AND a.attname = $2 AND i.indisvalid AND i.indpred IS NULL",
		      2, (const char *const[]){ oid, t->order.name }, &res, err))
		return false;
	*ret = PQntuples(res) > 0;
	return true;
}

/* The age of the first row in order, as far as the table tells. Among very many rows only an index finds it. */
static bool find_oldest(PGconn *conn, const struct table *t, struct outbox_overview *o, struct error *err)
{
	const struct table_column *created = &t->columns[FIELD_CREATED_AT];
	_cleanup_(mem_freep) char *sql = NULL, *waits = is_not_for_later(t);
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	bool findable = true;

	o->oldest_ms = -1;
	if (!created->name || strncmp(created->type, "timestamp", strlen("timestamp")) != 0)
		return true;
	if (o->more && !has_index_on_order(conn, t, &findable, err))
		return false;
	if (!findable)
		return true;
	sql = mem_printf("SELECT GREATEST((extract(epoch FROM clock_timestamp() - o.%s::timestamptz) * 1000)::bigint, 0)"
			 " FROM %s AS o WHERE %s ORDER BY o.%s LIMIT 1",
			 created->quoted, t->name, waits, t->order.quoted);
	if (!pg_query(conn, "look at the oldest row", sql, 0, NULL, &res, err))
		return false;
	if (PQntuples(res) > 0 && !PQgetisnull(res, 0, 0))
		o->oldest_ms = atoll(PQgetvalue(res, 0, 0));
	return true;
}

#define NEXT_TRY "(min(r.retry_at) FILTER (WHERE r.blocked_at IS NULL))"

/* One whose rows somebody has deleted holds nothing back. */
static bool count_held(PGconn *conn, const struct table *t, struct outbox_overview *o, struct error *err)
{
	_cleanup_(mem_freep) char *sql = NULL, *pending = table_pending(t);
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	sql = mem_printf("SELECT count(*), GREATEST((extract(epoch FROM " NEXT_TRY " - clock_timestamp()) * 1000)::bigint, 0),"
			 " " PG_RFC3339(NEXT_TRY, ".MS") ", count(r.blocked_at) FROM postrider.retry r"
			 " WHERE r.outbox = (SELECT b.id FROM postrider.outbox b WHERE b.table_name = $1)"
			 " AND EXISTS (SELECT FROM %s AS o WHERE o.%s = r.entity::%s AND %s)",
			 t->name, t->columns[FIELD_ENTITY].quoted, t->columns[FIELD_ENTITY].type, pending);
	if (!pg_query(conn, "count held entities", sql, 1, (const char *const[]){ t->name }, &res, err))
		return false;
	o->held = atoll(PQgetvalue(res, 0, 0));
	o->blocked = atoll(PQgetvalue(res, 0, 3));
	o->retry_ms = o->held > o->blocked ? atoll(PQgetvalue(res, 0, 1)) : -1;
	o->retry_at = o->held > o->blocked ? mem_strdup(PQgetvalue(res, 0, 2)) : NULL;
	return true;
}

static bool find_pause(PGconn *conn, const struct table *t, struct outbox_overview *o, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pg_query(conn, "look whether the outbox is paused",
		      "SELECT " PG_RFC3339("p.since", "") ", p.by FROM postrider.pause p JOIN postrider.outbox b ON b.id = p.outbox"
		      " WHERE b.table_name = $1", 1, (const char *const[]){ t->name }, &res, err))
		return false;
	if (PQntuples(res) == 0)
		return true;
	o->paused_since = mem_strdup(PQgetvalue(res, 0, 0));
	o->paused_by = mem_strdup(PQgetvalue(res, 0, 1));
	return true;
}

void overview_read_outbox(PGconn *conn, const struct outbox_config *config, struct outbox_overview *o)
{
	_cleanup_(table_freep) struct table *t = NULL;
	struct error err = { 0 };

	*o = (struct outbox_overview){ .config = config };
	if (!table_open(conn, o->config, NULL, 0, &t, &err) || !count_pending(conn, t, o, &err) ||
	    !count_scheduled(conn, t, o, &err) || !estimate_pending(conn, t, o, &err) || !find_oldest(conn, t, o, &err) ||
	    !count_held(conn, t, o, &err) || !find_pause(conn, t, o, &err))
		o->error = err;
}

void overview_release_outbox(struct outbox_overview *o)
{
	free(o->retry_at);
	free(o->paused_since);
	free(o->paused_by);
}

bool overview_read_slots(PGconn *conn, PGresult **ret, struct error *err)
{
	return pg_query(conn, "read the replication slots", select_slots, 0, NULL, ret, err);
}

/* --- all of it ------------------------------------------------------------------------------------------------ */

bool overview_read(PGconn *conn, const struct config *config, struct overview *ret, struct error *err)
{
	_cleanup_(overview_release) struct overview o = { 0 };

	if (!migrate_version_served(conn, &o.schema, err) ||
	    !pg_query(conn, "read the nodes", select_nodes, 0, NULL, &o.nodes, err) ||
	    !pg_query(conn, "read the workers of the nodes", select_workers, 0, NULL, &o.workers, err) ||
	    !pg_query(conn, "read the sinks of the nodes", select_sinks, 0, NULL, &o.sinks, err) ||
	    !overview_read_slots(conn, &o.slots, err))
		return false;
	o.n_outboxes = config->n_outboxes;
	o.outboxes = mem_new_array(struct outbox_overview, o.n_outboxes);
	for (size_t i = 0; i < o.n_outboxes; i++)
		overview_read_outbox(conn, &config->outboxes[i], &o.outboxes[i]);
	*ret = o;
	o = (struct overview){ 0 };
	return true;
}

void overview_release(struct overview *o)
{
	PQclear(o->nodes);
	PQclear(o->workers);
	PQclear(o->sinks);
	PQclear(o->slots);
	for (size_t i = 0; i < o->n_outboxes; i++)
		overview_release_outbox(&o->outboxes[i]);
	free(o->outboxes);
}
