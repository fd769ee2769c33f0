#include "read/lease_sql.h"

#include "read/session.h"
#include "read/walk.h"

/* Claims with an entity and a token of u, found by key. By address, because that needs no luck with the planner; and the
 * token again, because somebody may take the claim over before it is locked. */
#define CLAIMS_OF(pairs, tokens)                                                                                \
	" WHERE c.ctid = ANY (ARRAY(SELECT k.ctid FROM (" pairs ") u(e, t)"                                     \
	"   CROSS JOIN LATERAL (SELECT k.ctid FROM postrider.claim k"                                           \
	"     WHERE k.outbox = {outbox} AND k.entity = u.e AND k.token = u.t LIMIT 1) k))"                      \
	"  AND (c.token IN (" tokens ")) IS TRUE"

/* $6 token, which is the number of the exchange, $7 node, $8 worker, $9 lease in ms, $10 entities that the statement before it
 * releases if all was settled.
 *
 * Under the lock the entity is looked at once more, with a new snapshot. One that was claimed since this statement began would
 * otherwise be met by the INSERT, which would wait for its owner, who may be waiting for us. */
#define LOCKED                                                                                                  \
	"free(e, n) AS MATERIALIZED ("                                                                          \
	"  SELECT c.e, c.n FROM candidate c WHERE CASE"                                                         \
	"    WHEN " WALK_IS_OURS " THEN false"                                                                  \
	"    WHEN c.e::text IN (SELECT unnest($10::text[]))"                                                     \
	"         AND current_setting('postrider.settled', true) IS DISTINCT FROM $6::bigint::text THEN false"  \
	"    WHEN EXISTS (SELECT FROM postrider.claim k WHERE k.outbox = {outbox} AND k.entity = c.e::text"     \
	"      AND k.expires_at > clock_timestamp()) THEN false"                                                \
	"    WHEN " WALK_IS_HELD_BACK " THEN false"                                                             \
	"    ELSE pg_try_advisory_xact_lock(hashtextextended(c.e::text, {oid}))"                                \
	"      AND postrider.is_free({outbox}, c.e::text) END"                                                  \
	"  LIMIT $3::int"                                                                                       \
	"), got(entity) AS ("                                                                                   \
	"  INSERT INTO postrider.claim AS k (outbox, entity, node, worker, token, expires_at)"                  \
	"  SELECT {outbox}, f.e::text, $7::bigint, $8::int, $6::bigint,"                                        \
	"    clock_timestamp() + $9::bigint * interval '1 millisecond' FROM free f"                             \
	"  ON CONFLICT (outbox, entity) DO UPDATE SET node = excluded.node, worker = excluded.worker,"          \
	"    token = excluded.token, locked_at = excluded.locked_at, expires_at = excluded.expires_at"          \
	"    WHERE k.expires_at <= clock_timestamp()"                                                           \
	"  RETURNING k.entity"                                                                                  \
	"), locked(e, n) AS ("                                                                                  \
	"  SELECT f.e, f.n FROM free f WHERE f.e::text IN (SELECT g.entity FROM got g) ORDER BY f.n"            \
	"), "

const struct statement lease_statements[ST_COUNT] = {
	SETTLE_MARKED("true"),
	[ST_SETTINGS] = SESSION_SETTINGS,

	[ST_FORGET] = { "postrider_forget", "give back earlier claims",
		/* $1 node, $2 worker */
		"DELETE FROM postrider.claim c WHERE c.outbox = {outbox} AND c.node = $1::bigint AND c.worker = $2::int" },

	[ST_RENEW] = { "postrider_renew", "renew claims",
		/* $1 entities, $2 a token of this connection, $3 lease in ms */
		"UPDATE postrider.claim c SET expires_at = clock_timestamp() + $3::bigint * interval '1 millisecond'"
		" WHERE c.ctid = ANY (ARRAY(SELECT k.ctid FROM unnest($1::text[]) u(e)"
		"   CROSS JOIN LATERAL (SELECT k.ctid FROM postrider.claim k"
		"     WHERE k.outbox = {outbox} AND k.entity = u.e LIMIT 1) k))"
		"  AND c.token >> 32 = $2::bigint >> 32 AND c.expires_at > clock_timestamp()" },

	[ST_FENCE] = { "postrider_fence", "settle under the claims",
		/* $1 entities, $2 their tokens, $3 how many */
		"SELECT postrider.insist((SELECT count(*) FROM unnest($1::text[], $2::bigint[]) u(e, t)"
		"   CROSS JOIN LATERAL (SELECT FROM postrider.claim k WHERE k.outbox = {outbox} AND k.entity = u.e"
		"     AND k.token = u.t AND k.expires_at > clock_timestamp() LIMIT 1) k), $3::bigint)" },

	[ST_RELEASE] = { "postrider_release", "release settled entities",
		/* $1 entities whose last row is settled, $2 their tokens, $3 number of the exchange; $4 entities that had
		 * no row for us, $5 the token of these */
		"DELETE FROM postrider.claim c"
		CLAIMS_OF("SELECT * FROM unnest($1::text[], $2::bigint[])"
			  "   WHERE current_setting('postrider.settled', true) = $3::text"
			  " UNION ALL SELECT unnest($4::text[]), $5::bigint",
			  "SELECT unnest($2::bigint[] || $5::bigint)") },

	[ST_CLAIM] = { "postrider_claim", "claim entities",
		WALK_CANDIDATES LOCKED WALK_TAKEN_BY_WALK("free") },
	[ST_CLAIM_FRONT] = { "postrider_claim_front", "claim entities",
		FRONT_CANDIDATES LOCKED WALK_TAKEN_AT_FRONT("free") },

	[ST_READ] = { "postrider_read", "read rows", WALK_SQL_READ },
	[ST_READ_LARGE] = { "postrider_read_large", "read rows", WALK_SQL_READ_LARGE },
	FRONT_STATEMENTS(ST_FRONT),
};
