/* The statements of keep/heart.c, the columns of their answers, and what keep/entry.c shares with them. */
#ifndef POSTRIDER_KEEP_HEART_SQL_H
#define POSTRIDER_KEEP_HEART_SQL_H

#include "keep/node.h"

/* Our session, as far as it says that we live. $1: the backend's pid as libpq has it, NULL where a pooler is known to
 * be in between; where one is not known, the pids differ. */
#define OWN_SESSION                                                                             \
	"(SELECT a.pid, a.backend_start FROM (SELECT) AS one"                                   \
	" LEFT JOIN pg_stat_get_activity(pg_backend_pid()) a ON a.pid = $1::integer) AS s"

/* Only who has been connected for as long as the other one may be silent can tell. */
#define MAY_JUDGE(connected_ms) connected_ms "::bigint > 3 * n.heartbeat_ms"
/* A node whose session nobody can look for. */
#define IS_FORGOTTEN "(n.backend_pid IS NULL AND n.heartbeat_at < clock_timestamp() - interval '5 minutes')"
#define NODE_IS_DEAD(connected_ms)                                                              \
	"(" NODE_IS_SILENT " AND " MAY_JUDGE(connected_ms) " AND (" NODE_IS_GONE " OR " IS_FORGOTTEN "))"

/* Always one row or more: whether our own row was there, which program the schema needs, and each other node. */
static const char sql_beat[] =
	"WITH beat AS (UPDATE postrider.node n SET heartbeat_at = clock_timestamp(), state = $3::jsonb,"
	"  backend_pid = s.pid, backend_start = s.backend_start"
	" FROM " OWN_SESSION " WHERE n.id = $2::bigint RETURNING n.id)"
	" SELECT (SELECT count(*) FROM beat),"
	"  (SELECT max(COALESCE(m.serves, m.version)) FROM postrider.migration m WHERE m.version > $4::integer),"
	"  o.id, o.name, o.version, o.gone, o.silent, o.silent AND (o.gone OR o.forgotten)"
	" FROM (SELECT) AS one LEFT JOIN (SELECT n.id, n.name, n.version, " NODE_IS_GONE " AS gone,"
	"  " NODE_IS_SILENT " AND " MAY_JUDGE("$5") " AS silent, " IS_FORGOTTEN " AS forgotten"
	"  FROM postrider.node n WHERE n.id <> $2::bigint) AS o ON true ORDER BY o.id";

enum { BEAT_MINE, BEAT_NEEDS, BEAT_ID, BEAT_NAME, BEAT_VERSION, BEAT_GONE, BEAT_SILENT, BEAT_DEAD };

/* Locked rows are left out, so that two hearts do not wait for each other and a claim that somebody takes over this
 * moment stays his. One that beats again meanwhile no longer meets the condition once it is locked. What a node held
 * whose session was never known expires by itself. $1: our number; $2: how long we have been connected. */
static const char sql_bury[] =
	"WITH dead AS (SELECT n.id, n.backend_pid IS NOT NULL AS certain FROM postrider.node n WHERE n.id <> $1::bigint"
	"  AND " NODE_IS_DEAD("$2") " FOR UPDATE SKIP LOCKED),"
	" claims AS (DELETE FROM postrider.claim c USING (SELECT k.outbox, k.entity, k.node FROM postrider.claim k"
	"   JOIN dead d ON k.node = d.id WHERE d.certain FOR UPDATE OF k SKIP LOCKED) AS k"
	"  WHERE c.outbox = k.outbox AND c.entity = k.entity AND c.node = k.node RETURNING c.node),"
	" shards AS (UPDATE postrider.shard t SET expires_at = LEAST(t.expires_at, now()) FROM dead d"
	"  WHERE t.node = d.id AND d.certain RETURNING t.node),"
	" members AS (DELETE FROM postrider.shard_member m USING dead d WHERE m.node = d.id AND d.certain),"
	" buried AS (DELETE FROM postrider.node n USING dead d WHERE n.id = d.id RETURNING n.id, n.name, n.version,"
	"  (extract(epoch FROM clock_timestamp() - n.heartbeat_at) * 1000)::bigint AS silent_ms)"
	" SELECT b.id, b.name, b.version, b.silent_ms, (SELECT count(*) FROM claims c WHERE c.node = b.id),"
	"  (SELECT count(*) FROM shards t WHERE t.node = b.id) FROM buried b";

enum { BURY_ID, BURY_NAME, BURY_VERSION, BURY_SILENT_MS, BURY_CLAIMS, BURY_SHARDS };

static const char sql_leave[] =
	"WITH node AS (DELETE FROM postrider.node WHERE id = $1::bigint),"
	" claims AS (DELETE FROM postrider.claim WHERE node = $1::bigint),"
	" members AS (DELETE FROM postrider.shard_member WHERE node = $1::bigint)"
	" UPDATE postrider.shard SET expires_at = LEAST(expires_at, now()) WHERE node = $1::bigint";

#endif
