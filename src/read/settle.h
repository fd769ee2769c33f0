/* Settling, which is the same for all readers of a table: in one transaction a sink's own writes, what is no longer held
 * back, what is held back from now on, what becomes a dead letter, and the DELETE.
 *
 * The statements stand at the head of each reader's table of statements, at the numbers below, in one of two flavours.
 * Marked ones leave a number behind, the exchange's own, in the setting postrider.settled when every row was found and
 * deleted; what gives claims back travels in the same pipeline, before anybody here knows whether that was so, and
 * compares. A rolled back transaction leaves no mark. Plain ones are for readers whose claims do not end with a settle. */
#ifndef POSTRIDER_READ_SETTLE_H
#define POSTRIDER_READ_SETTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "keep/node.h"
#include "pg/pipeline.h"
#include "read/reader.h"

enum {
	SETTLE_DELETE,
	SETTLE_DELETE_BY_KEY,
	SETTLE_HOLD,
	SETTLE_BURY,
	SETTLE_SKIP,
	SETTLE_CLEAR,
	SETTLE_PASS,
	SETTLE_STATEMENTS,              /* the first number that is the reader's own */
};

/* By address, because that needs no index and so no luck with the planner, to which an outbox mostly looks empty; the id
 * makes sure that the row is still the same one, and IS TRUE keeps that test from becoming a join. A row that was moved
 * meanwhile (an UPDATE, VACUUM FULL) is not found: then this does not count as settled, and the rest is deleted by key.
 * $1 where the rows were when they were read, $2 their ids. */
#define SETTLE_SQL_DELETE                                                                                       \
	"{settle} WHERE o.ctid = ANY ($1::tid[]) AND (o.{id} IN (SELECT unnest($2::{ids}))) IS TRUE"

/* $1 entities, $2 ids. Rows that are not there were deleted by somebody else. With both columns given each row is one
 * descent in an index, whichever the planner takes. */
#define SETTLE_SQL_DELETE_BY_KEY                                                                                \
	"{settle} WHERE o.ctid = ANY (ARRAY("                                                                   \
	"    SELECT p.ctid FROM unnest($1::text[]::{key_type}[], $2::{ids}) u(e, i)"                            \
	"    CROSS JOIN LATERAL (SELECT p.ctid FROM {table} p WHERE p.{key} = u.e AND p.{id} = u.i LIMIT 1) p))" \
	"  AND (o.{id} IN (SELECT unnest($2::{ids}))) IS TRUE"

/* An entry that a person has made: rows that were on their way then do not end it, whatever becomes of them. */
#define SETTLE_IS_PARKED "(r.row_id IS NULL AND r.blocked_at IS NOT NULL)"

/* $1 entity, $2 id, $3 attempts, $4 kind, $5 error, $6 delay in ms, $7 whether nobody tries again by himself */
#define SETTLE_SQL_HOLD                                                                                         \
	"INSERT INTO postrider.retry AS r (outbox, entity, row_id, attempts, kind, error,"                      \
	"    first_failed_at, last_failed_at, retry_at, blocked_at)"                                            \
	" VALUES ({outbox}, coalesce($1::text, ''), $2::text, $3::int, $4::text, $5::text, now(), now(),"       \
	"    now() + $6::bigint * interval '1 millisecond', CASE WHEN $7::bool THEN now() END)"                 \
	" ON CONFLICT (outbox, entity) DO UPDATE SET row_id = excluded.row_id, attempts = excluded.attempts,"   \
	"    kind = excluded.kind, error = excluded.error, last_failed_at = now(), retry_at = excluded.retry_at," \
	"    blocked_at = excluded.blocked_at,"                                                                 \
	"    first_failed_at = CASE WHEN r.row_id = excluded.row_id THEN r.first_failed_at ELSE now() END"      \
	" WHERE NOT " SETTLE_IS_PARKED

/* What is known of every dead letter, whatever reader had the row. */
enum {
	BURY_ENTITY,
	BURY_LANE,                      /* whose entry in postrider.retry is the row's */
	BURY_ID,
	BURY_MESSAGE_ID,
	BURY_ENTITY_TYPE,
	BURY_EVENT_TYPE,
	BURY_TOPIC,
	BURY_ATTEMPTS,
	BURY_KIND,
	BURY_ERROR,
	BURY_PARAMS,
};
#define BURY_COLUMNS                                                                                            \
	"outbox, entity, row_id, message_id, entity_type, event_type, topic, attempts, kind, error, first_failed_at"
#define BURY_VALUES                                                                                             \
	"{outbox}, coalesce($1::text, ''), $3::text, $4::text, $5::text, $6::text, $7::text, $8::int, $9::text," \
	" $10::text, coalesce((SELECT r.first_failed_at FROM postrider.retry r"                                 \
	"   WHERE r.outbox = {outbox} AND r.entity = $2::text AND r.row_id = $3::text), now())"

/* The row moves, as it is. One that somebody has deleted meanwhile leaves no letter. */
#define SETTLE_SQL_GONE                                                                                         \
	"gone AS (DELETE FROM {table} o WHERE o.{id} = $3::text::{id_type}"                                     \
	"   AND ($1::text IS NULL OR o.{key} = $1::text::{key_type}) RETURNING o.*)"
#define SETTLE_SQL_LETTER                                                                                       \
	"INSERT INTO postrider.dead_letter (" BURY_COLUMNS ", row) SELECT " BURY_VALUES ", row_to_json(gone) FROM gone RETURNING 1"
/* All nodes are told, so that they note when its entity goes on. */
#define BURY_TELL "pg_notify('" STEERING_CHANNEL "', '{outbox}')"

/* Not marked or archived, as it would be if it were published. $1 entity, $2 id */
#define SETTLE_SQL_SKIP                                                                                         \
	"DELETE FROM {table} o WHERE o.{id} = $2::text::{id_type} AND ($1::text IS NULL OR o.{key} = $1::text::{key_type})"

/* The same in both flavours. */
#define SETTLE_NOTES                                                                                            \
	[SETTLE_PASS] = { "postrider_pass", "note that entities have gone on",                                  \
		/* $1 entities */                                                                               \
		"UPDATE postrider.dead_letter d SET passed_at = now()"                                          \
		" WHERE d.outbox = {outbox} AND d.entity = ANY ($1::text[]) AND d.passed_at IS NULL" },         \
	[SETTLE_CLEAR] = { "postrider_clear", "clear retries",                                                  \
		/* $1 entities */                                                                               \
		"DELETE FROM postrider.retry r WHERE r.outbox = {outbox} AND r.entity = ANY ($1::text[])"       \
		" AND NOT " SETTLE_IS_PARKED }

#define SETTLE_PLAIN                                                                                            \
	[SETTLE_DELETE] = { "postrider_settle", "settle published rows",                                        \
		"{settle_begin}" SETTLE_SQL_DELETE "{settle_end}" },                                            \
	[SETTLE_DELETE_BY_KEY] = { "postrider_settle_by_key", "settle published rows",                          \
		"{settle_begin}" SETTLE_SQL_DELETE_BY_KEY "{settle_end}" },                                     \
	[SETTLE_HOLD] = { "postrider_hold", "hold back a failing entity", SETTLE_SQL_HOLD },                    \
	[SETTLE_BURY] = { "postrider_bury", "move a row to the dead letters",                                   \
		"WITH " SETTLE_SQL_GONE ", buried AS (" SETTLE_SQL_LETTER ") SELECT " BURY_TELL " FROM buried" }, \
	[SETTLE_SKIP] = { "postrider_skip", "drop a row", SETTLE_SQL_SKIP },                                    \
	SETTLE_NOTES

/* The last parameter of each is the number of the exchange; before it in the first, how many rows. `local` is 'true' when
 * the mark is not to outlive the transaction. */
#define SETTLE_MARKED(local)                                                                                    \
	[SETTLE_DELETE] = { "postrider_settle", "settle published rows",                                        \
		"WITH gone AS (" SETTLE_SQL_DELETE " RETURNING {gone}){archived}"                               \
		" SELECT count(*) = $3::bigint, set_config('postrider.settled',"                                \
		"   CASE WHEN count(*) = $3::bigint THEN $4::text ELSE '' END, " local ") FROM gone" },         \
	[SETTLE_DELETE_BY_KEY] = { "postrider_settle_by_key", "settle published rows",                          \
		"WITH gone AS (" SETTLE_SQL_DELETE_BY_KEY " RETURNING {gone}){archived}"                        \
		" SELECT true, set_config('postrider.settled', $3::text, " local "), count(*) FROM gone" },     \
	[SETTLE_HOLD] = { "postrider_hold", "hold back a failing entity",                                       \
		"WITH held AS (" SETTLE_SQL_HOLD " RETURNING 1)"                                                \
		" SELECT count(*), set_config('postrider.settled', $8::text, " local ") FROM held" },           \
	[SETTLE_BURY] = { "postrider_bury", "move a row to the dead letters",                                   \
		"WITH " SETTLE_SQL_GONE ", buried AS (" SETTLE_SQL_LETTER ")"                                   \
		" SELECT count(*), " BURY_TELL ", set_config('postrider.settled', $11::text, " local ") FROM buried" }, \
	[SETTLE_SKIP] = { "postrider_skip", "drop a row",                                                       \
		"WITH gone AS (" SETTLE_SQL_SKIP " RETURNING 1)"                                                \
		" SELECT count(*), set_config('postrider.settled', $3::text, " local ") FROM gone" },           \
	SETTLE_NOTES

struct settle {
	bool marked;                    /* which flavour the statements have */
	uint32_t id_type;               /* of ids as they are read */
	uint32_t n_rows;                /* of the DELETE under way */
	bool by_key;                    /* some rows were no longer where they had been read */

	/* Parameters that are arrays, kept for their memory. */
	struct buf addresses, entities, ids, cleared;
	struct buf passing;             /* entities that go on */
	struct buf releasing;           /* entities whose last row in the window this settles or holds */
};

void settle_init(struct settle *s, bool marked);
void settle_release(struct settle *s);

/* Looks through the exchange, which decides what `releasing` and `cleared` hold; then queues the statements, without the
 * end of the transaction. `number` is the mark. */
void settle_collect(struct settle *s, const struct exchange *x);
/* For who has other ways to settle, but the same list of what is held back: one hold, and all that is no longer. */
bool settle_send_hold(const struct settle *s, struct pipeline *p, const struct hold *h, const char *number,
		      struct error *err);
bool settle_send_clear(const struct settle *s, struct pipeline *p, struct error *err);
bool settle_send_pass(const struct settle *s, struct pipeline *p, struct error *err);
/* The parameters of a burial; `attempts` is room for a number. */
void settle_bury_params(const struct hold *h, char attempts[static 16], struct param params[static BURY_PARAMS]);
bool settle_send(struct settle *s, struct pipeline *p, const struct exchange *x, const char *number, struct error *err);

/* True when the result was one of settling; then the answer says what became of it. A settle that failed leaves everything
 * as it was; one that did not find all rows has deleted those that it found, and is repeated by key. */
bool settle_take(struct settle *s, struct pipeline *p, int statement, const PGresult *res, struct answer *answer);

#endif
