/* Claims that take rows one by one, the lowest first, with the row locks of the transaction that they run in. An entity
 * means nothing here.
 *
 * The workers of a process share a hand (hand.h): a claim goes on where the last one ended, because in front of that
 * there are only rows that others have locked, and index entries of rows that are deleted. It is a hint: a row that
 * commits late may be lower. So a claim that comes to the end makes the next one begin at the lowest row; one that
 * finds nothing at all is repeated from there at once; and now and then a claim begins there in any case, for under a
 * lasting backlog the end never comes. */
#ifndef POSTRIDER_READ_TAKE_H
#define POSTRIDER_READ_TAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "pg/pipeline.h"
#include "read/held.h"
#include "read/reader.h"
#include "read/schedule.h"

/* --- SQL ------------------------------------------------------------------------------------------------------ */

/* A refused row is held back alone: its id is the key of its entry. */
#define TAKE_IS_FREE HELD_IS_FREE("o.{lane}::text", HELD_NOT_YET)
#define TAKE_OF_RETRY(column)                                                                                   \
	"CASE WHEN NOT " HELD_NONE " THEN (SELECT r." column " FROM " HELD_ENTRY_OF("o.{lane}::text") ") END"

/* What stands behind the fields of the table, counted from the end. */
enum { TAKE_ADDRESS = 1, TAKE_PLACE, TAKE_ATTEMPTS, TAKE_HELD, TAKE_LARGE, TAKE_LOCKED };

#define TAKE_FIELDS                                                                                             \
	"(SELECT (pg_relation_size({toast}) > 0)::int), " TAKE_OF_RETRY("entity") ", " TAKE_OF_RETRY("attempts")           \
	", {if_scheduled}CASE WHEN NOT o.postrider_due THEN {end}o.{order}::text{if_scheduled} END{end}"
/* Where the table has rows whose time has come, half as many of these come first, and say no place: the hand does not
 * follow them. */
#define TAKE_ROWS(after)                                                                                        \
	"{if_scheduled} FROM (SELECT o.* FROM (SELECT o.*, o.ctid AS postrider_ctid, true AS postrider_due"     \
	"   FROM {table} o WHERE" TAKE_IS_FREE " AND {due} ORDER BY o.{scheduled}"                              \
	"   LIMIT ($1::int + 1) / 2 FOR UPDATE SKIP LOCKED) o"                                                  \
	"  UNION ALL SELECT o.* FROM (SELECT o.*, o.ctid, false{end}"                                           \
	" FROM {table} o WHERE" after TAKE_IS_FREE " AND {at_once_in_order} ORDER BY o.{order} LIMIT $1::int FOR UPDATE SKIP LOCKED" \
	"{if_scheduled}) o) o{end}"

/* $1 rows; $2 where to go on. With `>=` rows of the same place are not passed over; what was taken there is locked. */
#define TAKE_FROM_LOWEST ""
#define TAKE_FROM_HAND " o.{order} >= $2::{order_type} AND"

#define TAKE_SQL(after)                                                                                         \
	"SELECT {fields}, NULL::int, " TAKE_FIELDS ", o.{if_scheduled}postrider_{end}ctid" TAKE_ROWS(after)

/* The same, and no more than so many bytes: only where there are values too large for their pages. What is locked and
 * not returned is nobody's until the transaction ends, which is soon. */
#define TAKE_SQL_LARGE(after, bytes)                                                                            \
	"SELECT {fields}, o.postrider_locked::int, " TAKE_FIELDS ", o.postrider_ctid"                                \
	" FROM (SELECT o.*, count(*) OVER () AS postrider_locked,"                                              \
	"         sum(coalesce(pg_column_size(o.{payload}), 0)) OVER (ROWS UNBOUNDED PRECEDING) AS postrider_bytes" \
	"       FROM (SELECT o.*{else}, o.ctid AS postrider_ctid{end}" TAKE_ROWS(after) ") o) o"                           \
	" WHERE o.postrider_bytes - coalesce(pg_column_size(o.{payload}), 0) < " bytes "::bigint"

/* Entries whose row is no longer there: somebody deleted it, and nobody will ever publish it and clear the entry. By a
 * count for each, which no planner can turn into a walk over the whole table. */
#define TAKE_SQL_FORGET                                                                                         \
	"DELETE FROM postrider.retry r WHERE r.outbox = {outbox} AND r.entity = r.row_id"                       \
	" AND (SELECT count(*) FROM (SELECT FROM {table} o WHERE o.{id} = r.row_id::{id_type} AND {pending} LIMIT 1) o) = 0"

/* Statements of the reader's table, from a number on. */
enum { TAKE_LOWEST, TAKE_ON, TAKE_LOWEST_LARGE, TAKE_ON_LARGE, TAKE_NEXT_DUE, TAKE_STATEMENTS_COUNT };

#define TAKE_STATEMENTS(first_number)                                                                           \
	[(first_number) + TAKE_LOWEST] = { "postrider_take", "claim rows", TAKE_SQL(TAKE_FROM_LOWEST) },        \
	[(first_number) + TAKE_ON] = { "postrider_take_on", "claim rows", TAKE_SQL(TAKE_FROM_HAND) },           \
	[(first_number) + TAKE_LOWEST_LARGE] = { "postrider_take_large", "claim rows",                          \
						 TAKE_SQL_LARGE(TAKE_FROM_LOWEST, "$2") },                      \
	[(first_number) + TAKE_ON_LARGE] = { "postrider_take_on_large", "claim rows",                           \
					     TAKE_SQL_LARGE(TAKE_FROM_HAND, "$3") },                    \
	[(first_number) + TAKE_NEXT_DUE] = SCHEDULE_STATEMENT

/* --- the taking worker ---------------------------------------------------------------------------------------- */

struct take {
	const struct reader_env *env;
	int first_statement;
	bool has_hand;                  /* we look, and others of this process wait for it */
	bool large_rows;                /* some row is too large for its page, so claims must be limited by bytes */
	uint32_t asked_rows;
	size_t asked_bytes;
	bool from_lowest;               /* where the claim under way began … */
	int64_t lowest_ms;              /* … and when one last began there */
	struct retry *retries;
	uint32_t retries_room;
};

void take_init(struct take *t, const struct reader_env *env, int first_statement);
void take_release(struct take *t);

/* Queues a claim. */
bool take_send(struct take *t, struct pipeline *p, const struct exchange *x, int64_t now_ms, struct error *err);
/* The answer; takes over `res`. False: it found nothing, but did not begin at the lowest row: to be sent again. Not for
 * TAKE_NEXT_DUE, which is schedule_take's. */
bool take_rows(struct take *t, PGresult *res, struct answer *answer);
bool take_send_again(struct take *t, struct pipeline *p, int64_t now_ms, struct error *err);

#endif
