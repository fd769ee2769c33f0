#include "steer/holder.h"

#include <string.h>

#include "base/macros.h"
#include "pg/exec.h"

/* Advisory locks of this database on a number of 64 bits. */
#define ADVISORY(number)                                                                                        \
	" l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted"                                             \
	" AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"              \
	" AND (l.classid::bigint << 32 | l.objid::bigint) = " number

#define OF_SESSION "l.pid, a.application_name, host(a.client_addr)"

/* Workers say at each beat which session is theirs. */
static const char by_lock[] =
	"SELECT 'lock', " OF_SESSION ", n.id, n.name, n.worker, NULL, NULL"
	" FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid"
	" LEFT JOIN LATERAL (SELECT n.id, n.name, w.item ->> 'number' AS worker FROM postrider.node n"
	"   CROSS JOIN jsonb_path_query(n.state, '$.outboxes[*].workers[*]') w(item)"
	"   WHERE w.item ->> 'session' = l.pid::text LIMIT 1) n ON true"
	" WHERE" ADVISORY("hashtextextended($1::{key_type}::text, {oid})");

static const char by_lease[] =
	"SELECT 'lease', NULL, NULL, NULL, c.node, n.name, c.worker, " PG_RFC3339("c.expires_at", ".MS") ", NULL"
	" FROM postrider.claim c LEFT JOIN postrider.node n ON n.id = c.node"
	" WHERE c.outbox = {outbox} AND c.entity = $1::{key_type}::text AND c.expires_at > clock_timestamp()";

static const char by_shard[] =
	"SELECT 'shard', NULL, NULL, NULL, s.node, n.name, s.worker, " PG_RFC3339("s.expires_at", ".MS") ", s.shard"
	" FROM (SELECT $1::{lane_type}::text AS entity) r"
	" JOIN postrider.shard s ON s.outbox = {outbox} AND s.shard = {shard_of_retry}"
	" LEFT JOIN postrider.node n ON n.id = s.node WHERE s.node IS NOT NULL AND s.expires_at > clock_timestamp()";

/* The node whose workers do not stand by. $1 is not looked at: all entities are his. */
#define BY_LEADER(kind)                                                                                         \
	"SELECT 'leader', " OF_SESSION ", n.id, n.name, NULL, NULL, NULL"                                       \
	" FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid"                                        \
	" LEFT JOIN LATERAL (SELECT n.id, n.name FROM postrider.node n WHERE jsonb_path_exists(n.state,"        \
	"     '$.outboxes[*] ? (@.table == $t).workers[*] ? (@.connected == true && !exists(@.condition))',"    \
	"     jsonb_build_object('t', (SELECT b.table_name FROM postrider.outbox b WHERE b.id = {outbox})))"    \
	"   ORDER BY n.heartbeat_at DESC LIMIT 1) n ON true"                                                    \
	" WHERE $1::text IS NOT NULL AND" ADVISORY("hashtextextended('postrider." kind "', {oid})")

static const char by_dispatcher[] = BY_LEADER("dispatcher");
static const char by_wal[] = BY_LEADER("wal");
static const char by_nobody[] = "SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE $1::text IS NULL";

static const struct {
	const char *reader, *sql;
	bool any_order;                 /* also where rows stand for themselves */
} ways[] = {
	{ "advisory", by_lock, false },   { "skip_locked", by_lock, false },        { "lease", by_lease, false },
	{ "shards", by_shard, true },     { "dispatcher", by_dispatcher, true },    { "wal", by_wal, true },
};

bool holder_read(PGconn *conn, const struct target *t, const char *name, PGresult **ret, struct error *err)
{
	const char *sql = by_nobody;

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
		if (strcmp(ways[i].reader, t->config->reader) == 0 && (t->ordered || ways[i].any_order))
			sql = ways[i].sql;
	return target_query(t, conn, "look who has the entity", sql, 1, (const char *const[]){ name }, ret, err);
}

static const char *value(const PGresult *res, int row, int column)
{
	return PQgetisnull(res, row, column) ? NULL : PQgetvalue(res, row, column);
}

void holder_describe(const PGresult *holders, int row, struct buf *to)
{
	const char *pid = value(holders, row, HOLDER_PID), *node = value(holders, row, HOLDER_NODE);
	const char *name = value(holders, row, HOLDER_NAME), *worker = value(holders, row, HOLDER_WORKER);
	const char *client = value(holders, row, HOLDER_CLIENT), *application = value(holders, row, HOLDER_APPLICATION);

	if (worker)
		buf_printf(to, "worker %s of ", worker);
	if (node)
		buf_printf(to, "node %s (%s)", node, name ? name : "which is gone");
	if (node && pid)
		buf_printf(to, ", whose session is process %s of the server", pid);
	else if (pid)
		buf_printf(to, "process %s of the server (%s%s%s)", pid, application && application[0] ? application : "unnamed",
			   client ? ", from " : "", client ? client : "");
}
