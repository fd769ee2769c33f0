#include "read/advisory_sql.h"

const struct advisory_statement advisory_statements[ST_COUNT] = {
	[ST_SETTLE] = { "postrider_settle", "settle published rows",
		/* $1 where the rows were when they were read, $2 their ids, $3 number of the exchange, $4 how many.
		 *
		 * By address, because that needs no index and so no luck with the planner, to which an outbox mostly looks empty;
		 * the id makes sure that the row is still the same one, and IS TRUE keeps that test from becoming a join. A row
		 * that was moved meanwhile (an UPDATE, VACUUM FULL) is not found: then this does not count as settled, and the
		 * exchange is repeated by key. */
		"WITH gone AS (DELETE FROM {table} o WHERE o.ctid = ANY ($1::tid[])"
		"  AND (o.{id} IN (SELECT unnest($2::{ids}))) IS TRUE RETURNING 1)"
		" SELECT count(*) = $4::bigint,"
		"   set_config('postrider.settled', CASE WHEN count(*) = $4::bigint THEN $3::text ELSE '' END, false) FROM gone" },

	[ST_SETTLE_BY_KEY] = { "postrider_settle_by_key", "settle published rows",
		/* $1 entities, $2 ids, $3 number of the exchange. Rows that are not there were deleted by somebody else. With both
		 * columns given each row is one descent in an index, whichever the planner takes. */
		"WITH gone AS (DELETE FROM {table} o WHERE o.ctid = ANY (ARRAY("
		"    SELECT p.ctid FROM unnest($1::text[]::{key_type}[], $2::{ids}) u(e, i)"
		"    CROSS JOIN LATERAL (SELECT p.ctid FROM {table} p WHERE p.{key} = u.e AND p.{id} = u.i LIMIT 1) p))"
		"  AND (o.{id} IN (SELECT unnest($2::{ids}))) IS TRUE RETURNING 1)"
		" SELECT true, set_config('postrider.settled', $3::text, false), count(*) FROM gone" },

	[ST_HOLD] = { "postrider_hold", "hold back a failing entity",
		/* $1 entity, $2 id, $3 attempts, $4 kind, $5 error, $6 delay in ms, $7 number of the exchange */
		"WITH held AS (INSERT INTO postrider.retry AS r (outbox, entity, row_id, attempts, kind, error,"
		"    first_failed_at, last_failed_at, retry_at)"
		" VALUES ({outbox}, $1::text, $2::text, $3::int, $4::text, $5::text, now(), now(),"
		"    now() + $6::bigint * interval '1 millisecond')"
		" ON CONFLICT (outbox, entity) DO UPDATE SET row_id = excluded.row_id, attempts = excluded.attempts,"
		"    kind = excluded.kind, error = excluded.error, last_failed_at = now(), retry_at = excluded.retry_at,"
		"    first_failed_at = CASE WHEN r.row_id = excluded.row_id THEN r.first_failed_at ELSE now() END"
		" RETURNING 1)"
		" SELECT count(*), set_config('postrider.settled', $7::text, false) FROM held" },

	[ST_CLEAR] = { "postrider_clear", "clear retries",
		/* $1 entities */
		"DELETE FROM postrider.retry r WHERE r.outbox = {outbox} AND r.entity = ANY ($1::text[])" },

	[ST_UNLOCK] = { "postrider_unlock", "unlock settled entities",
		/* $1 entities of settled rows, $2 number of the exchange, $3 entities that had no row for us */
		"SELECT count(*) FILTER (WHERE pg_advisory_unlock(hashtextextended(u.e, {oid})))"
		" FROM (SELECT unnest($1::text[]) WHERE current_setting('postrider.settled', true) = $2::text"
		"       UNION ALL SELECT unnest($3::text[])) u(e)" },

	[ST_CLAIM] = { "postrider_claim", "claim entities",
		/* $1 hand, $2 how many entities, $3 entities held by this session, $4 those that the unlock above releases if the
		 * settle committed, $5 number of the exchange, $6 whether to start at some other place than the hand.
		 *
		 * Walks distinct entities by index from the hand to the end, then from the start to the hand: one index descent
		 * each, however many rows an entity has, and no more of them than are needed. CASE fixes the order of the tests:
		 * the lock is tried last, and only for entities that pass all others. */
		"WITH RECURSIVE hand(h) AS MATERIALIZED ("
		"  SELECT CASE WHEN $6::bool THEN coalesce("
		"    (SELECT o.{key} FROM {table} o TABLESAMPLE SYSTEM ({sample})"
		"      WHERE o.{key} IS NOT NULL ORDER BY random() LIMIT 1), $1::{key_type})"
		"  ELSE $1::{key_type} END"
		"), ahead(e) AS ("
		"  (SELECT o.{key} FROM {table} o WHERE o.{key} > (SELECT h FROM hand) ORDER BY o.{key} LIMIT 1)"
		"  UNION ALL"
		"  SELECT (SELECT o.{key} FROM {table} o WHERE o.{key} > a.e ORDER BY o.{key} LIMIT 1)"
		"    FROM ahead a WHERE a.e IS NOT NULL"
		"), behind(e) AS ("
		"  (SELECT o.{key} FROM {table} o WHERE o.{key} IS NOT NULL ORDER BY o.{key} LIMIT 1)"
		"  UNION ALL"
		"  SELECT (SELECT o.{key} FROM {table} o WHERE o.{key} > b.e ORDER BY o.{key} LIMIT 1)"
		"    FROM behind b, hand WHERE b.e IS NOT NULL AND (h IS NULL OR b.e < h)"
		"), candidate(e, n) AS MATERIALIZED ("
		"  SELECT w.e, row_number() OVER () FROM ("
		"      SELECT a.e FROM ahead a WHERE a.e IS NOT NULL"
		"      UNION ALL"
		"      SELECT b.e FROM behind b, hand WHERE b.e IS NOT NULL AND (h IS NULL OR b.e <= h)) w"
		"  LIMIT 1000"
		"), locked(e, n) AS ("
		"  SELECT c.e, c.n FROM candidate c WHERE CASE"
		"    WHEN c.e::text IN (SELECT unnest($3::text[])) THEN false"
		"    WHEN c.e::text IN (SELECT unnest($4::text[]))"
		"         AND current_setting('postrider.settled', true) IS DISTINCT FROM $5::text THEN false"
		"    WHEN (SELECT count(*) > 0 FROM postrider.retry r WHERE r.outbox = {outbox})"
		"         AND EXISTS (SELECT FROM postrider.retry r WHERE r.outbox = {outbox} AND r.entity = c.e::text"
		"                   AND r.retry_at > now()"
		"                   AND EXISTS (SELECT FROM {table} o WHERE o.{key} = c.e AND o.{id} = r.row_id::{id_type}))"
		"         THEN false"
		"    ELSE pg_try_advisory_lock(hashtextextended(c.e::text, {oid})) END"
		"  LIMIT $2::int"
		"), taken AS MATERIALIZED ("
		"  SELECT array_agg(l.e) AS entities, count(*)::int AS n, max(l.n) AS looked,"
		"    pg_backend_pid() AS pid, pg_relation_size({toast}) AS toast,"
		"    set_config('postrider.claim', coalesce(array_agg(l.e)::text, '{}'), false) FROM locked l"
		"), seen AS ("      /* all there was to look at, when that was not enough */
		"  SELECT max(c.n) AS looked, (array_agg(c.e ORDER BY c.n DESC))[1] AS last FROM candidate c"
		") SELECT e.e::text, e.n, r.row_id, r.attempts, t.pid, t.toast,"
		"   CASE WHEN t.n = $2::int THEN t.entities[t.n] ELSE (SELECT s.last FROM seen s) END::text,"
		"   CASE WHEN t.n = $2::int THEN t.looked ELSE coalesce((SELECT s.looked FROM seen s), 0) END,"
		"   t.n < $2::int AND coalesce((SELECT s.looked FROM seen s), 0) < 1000"
		" FROM taken t LEFT JOIN unnest(t.entities) WITH ORDINALITY e(e, n) ON true"
		"   LEFT JOIN postrider.retry r ON r.outbox = {outbox} AND r.entity = e.e::text" },

	/* Rows of one entity come in order because each entity's are found by its own ordered walk of the index. That the key is
	 * named in the order too, where it is the same for all, keeps the planner from walking the index on {order} alone: to
	 * its statistics an outbox is mostly empty, and any way through an empty table seems short. */
	[ST_READ] = { "postrider_read", "read rows",
		/* $1 rows, $2 rows of one entity */
		"SELECT {fields}, c.n::int, o.postrider_ctid"
		" FROM unnest(current_setting('postrider.claim')::{key_type}[]) WITH ORDINALITY c(e, n)"
		" CROSS JOIN LATERAL (SELECT o.*, o.ctid AS postrider_ctid FROM {table} o"
		"   WHERE o.{key} = c.e ORDER BY o.{key}, o.{order} LIMIT $2::int) o"
		" LIMIT $1::int" },

	[ST_READ_LARGE] = { "postrider_read_large", "read rows",
		/* the same, and $3 bytes: adding up what is stored takes as long as reading, so only where it may be much */
		"SELECT {fields}, o.postrider_n::int, o.postrider_ctid"
		" FROM (SELECT o.*, c.n AS postrider_n,"
		"         sum(pg_column_size(o.{payload})) OVER (ROWS UNBOUNDED PRECEDING) AS postrider_bytes"
		"       FROM unnest(current_setting('postrider.claim')::{key_type}[]) WITH ORDINALITY c(e, n)"
		"       CROSS JOIN LATERAL (SELECT o.*, o.ctid AS postrider_ctid FROM {table} o"
		"         WHERE o.{key} = c.e ORDER BY o.{key}, o.{order} LIMIT $2::int) o"
		"       LIMIT $1::int) o"
		" WHERE o.postrider_bytes IS NULL OR o.postrider_bytes - pg_column_size(o.{payload}) < $3::bigint" },
};
