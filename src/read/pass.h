/* Claims that read on in order: page after page of one or several parts of an outbox that belong to the reader, without
 * waiting until earlier pages are settled.
 *
 * A page begins behind the last row of the page before it, as far as that is below the horizon (read/horizon.h): up to
 * there no row is still to come. Rows above the horizon are read again with each page, because one that commits late may
 * now stand between them; the window passes over those that are in flight. Now and then a page begins at the lowest row
 * that is there, so that nothing can be missed for good, however strange its number is.
 *
 * Entities that are held back are left out of pages altogether: a page begins in the middle, and would bring a later row of
 * the entity before the refused one. When their time has come they are added to a page, each from its own first row. When
 * the last of these is settled the entity is no longer held back, and the next page begins at the lowest row, for the same
 * reason.
 *
 * Rows whose time has come (read/schedule.h) stand anywhere in the order, mostly below the horizon. So each page
 * looks for them anew, from the one that was due first, and the window passes over those in flight. Those behind the
 * end of a page that is full wait until the pages have come there: rows of their entity may stand in between. */
#ifndef POSTRIDER_READ_PASS_H
#define POSTRIDER_READ_PASS_H

#include <stdbool.h>
#include <stdint.h>

#include "pg/pipeline.h"
#include "read/held.h"
#include "read/horizon.h"
#include "read/reader.h"
#include "read/schedule.h"

#define PASS_PARTS_MAX 1024
enum { PASS_RETRIES_MAX = 100 };        /* entities that come back in one page */

/* --- SQL ------------------------------------------------------------------------------------------------------------
 * `first` is a test that a row `o` has no time and is of the part s.part, `next` one that it stands behind s.after besides, `own` one that
 * an entry `r` of postrider.retry is of one of ours, `order` the order that walks the index which the reader needs. The
 * tests should leave no other way to that order: to its statistics an outbox looks empty, and any way seems short. `due`
 * and `due_order` are the same of rows whose time has come.
 * Parameters: */
enum {
	PASS_PARTS,                     /* $1 numbers of the parts */
	PASS_AFTER,                     /* $2 where the last page of each ended; not used by a first page */
	PASS_ROWS_OF_PART,              /* $3 rows of each part, and of each entity that was held back */
	PASS_HORIZON,                   /* $4 */
	PASS_BYTES,                     /* $5 bytes of payload; only PASS_SQL_LIMITED */
};
/* And the last one, for tables that have due rows: how many of each part. */

#define PASS_FREE HELD_IS_FREE("o.{lane}::text", "")

#define PASS_ROWS_OF(test, order)                                                                               \
	" FROM unnest($1::int[], $2::{orders}) s(part, after)"                                                  \
	" CROSS JOIN LATERAL (SELECT o.*, o.ctid AS postrider_ctid FROM {table} o"                              \
	"   WHERE " test " AND" PASS_FREE                                                                       \
	"   ORDER BY " order " LIMIT $3::int) o"

#define PASS_RETRIES(own)                                                                                       \
	" FROM (SELECT r.entity, r.row_id, r.attempts FROM postrider.retry r"                                   \
	"   WHERE r.outbox = {outbox} AND r.retry_at <= now() AND " own                                         \
	/* One that was let go when it had no rows stays until it has some, and must not stand in the way of others. */ \
	"     AND EXISTS (SELECT FROM {table} o WHERE o.{lane} = r.entity::{lane_type} AND {ready})"            \
	"   ORDER BY r.retry_at LIMIT 100) s"                                                                   \
	" CROSS JOIN LATERAL (" SCHEDULE_ROWS("o.*, o.ctid AS postrider_ctid", "o.{lane} = s.entity::{lane_type}", \
					      "o.{lane}", "$3::int") ") o"

/* Behind the page, in one order with it. Where a part is full, only those that are not behind the last row of it. */
#define PASS_WITH_DUE(test, order, due, due_order, n_due)                                                       \
	"(WITH page AS MATERIALIZED ("                                                                          \
	"  SELECT o.*, s.part AS postrider_part" PASS_ROWS_OF(test, order)                                      \
	"), full_part(part, place) AS MATERIALIZED ("                                                           \
	"  SELECT p.postrider_part, (array_agg(p.{order} ORDER BY p.{order} DESC))[1] FROM page p"              \
	"    GROUP BY p.postrider_part HAVING count(*) >= $3::int"                                              \
	") SELECT {fields}, NULL::text, NULL::int, NULL::text,"                                                 \
	"   CASE WHEN o.postrider_part >= 0 THEN o.{order} END::{order_cast},"                                  \
	"   coalesce(o.{order} <= ($4::{orders})[1], false), o.postrider_part, o.postrider_ctid"                \
	" FROM (SELECT p.* FROM page p"                                                                         \
	"   UNION ALL"                                                                                          \
	"   SELECT o.*, -2 FROM unnest($1::int[]) s(part) LEFT JOIN full_part f ON f.part = s.part"             \
	"   CROSS JOIN LATERAL (SELECT o.*, o.ctid FROM {table} o"                                              \
	"     WHERE " due " AND {due} AND (f.part IS NULL OR o.{order} <= f.place) AND" PASS_FREE               \
	"     ORDER BY " due_order " LIMIT " n_due "::int) o) o"                                                \
	" ORDER BY o.{order})"

/* Without and with a limit of bytes: adding up what is stored takes as long as reading it, so that is for tables with
 * values too large for a page only. */
#define PASS_SQL_PAGE(test, own, order, due, due_order, n_due)                                                  \
	"(SELECT {fields}, s.entity, s.attempts, s.row_id, NULL::{order_cast}, false, -1, o.postrider_ctid"     \
	PASS_RETRIES(own) ")"                                                                                   \
	" UNION ALL {if_scheduled}" PASS_WITH_DUE(test, order, due, due_order, n_due)                           \
	"{else}(SELECT {fields}, NULL::text, NULL::int, NULL::text, o.{order}::{order_cast},"                        \
	"     coalesce(o.{order} <= ($4::{orders})[1], false), s.part, o.postrider_ctid"                        \
	PASS_ROWS_OF(test, order) "){end}"
#define PASS_SQL_LIMITED(page)                                                                                  \
	"SELECT {aliases}, held, attempts, row_id, place, stable, part, address"                                \
	" FROM (SELECT u.*, sum(coalesce(pg_column_size(u.f2), 0)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes"    \
	"   FROM (" page ") u({aliases}, held, attempts, row_id, place, stable, part, address)) u"              \
	" WHERE u.bytes - coalesce(pg_column_size(u.f2), 0) < $5::bigint"
#define PASS_SQL_SIZE "SELECT pg_relation_size({toast})"

/* What stands behind the fields of the table, counted from the end. */
enum {
	PASS_FIELD_ADDRESS = 1,
	PASS_FIELD_PART,                /* or PASS_RETRY, PASS_DUE */
	PASS_FIELD_STABLE,              /* at or below the horizon */
	PASS_FIELD_PLACE,
	PASS_FIELD_ROW_ID,
	PASS_FIELD_ATTEMPTS,
	PASS_FIELD_HELD,
};

enum { PASS_RETRY = -1, PASS_DUE = -2 };

/* Statements of the reader's table, from some number on. */
enum {
	PASS_FIRST,
	PASS_NEXT,
	PASS_FIRST_LIMITED,
	PASS_NEXT_LIMITED,
	PASS_SIZE,
	PASS_NEXT_DUE,
	PASS_LOOK,                      /* those of the horizon */
	PASS_STATEMENTS_COUNT = PASS_LOOK + HORIZON_STATEMENTS_COUNT,
};

#define PASS_STATEMENTS(first_number, first, next, own, order, due, due_order)                                  \
	[(first_number) + PASS_FIRST] = { "postrider_first", "read rows",                                       \
		PASS_SQL_PAGE(first, own, order, due, due_order, "$5") },                                     \
	[(first_number) + PASS_NEXT] = { "postrider_next", "read rows",                                         \
		PASS_SQL_PAGE(next, own, order, due, due_order, "$5") },                                      \
	[(first_number) + PASS_FIRST_LIMITED] = { "postrider_first_limited", "read rows",                       \
		PASS_SQL_LIMITED(PASS_SQL_PAGE(first, own, order, due, due_order, "$6")) },                   \
	[(first_number) + PASS_NEXT_LIMITED] = { "postrider_next_limited", "read rows",                         \
		PASS_SQL_LIMITED(PASS_SQL_PAGE(next, own, order, due, due_order, "$6")) },                    \
	[(first_number) + PASS_SIZE] = { "postrider_size", "ask for the size of large values", PASS_SQL_SIZE }, \
	[(first_number) + PASS_NEXT_DUE] = SCHEDULE_STATEMENT,                                                  \
	HORIZON_STATEMENTS((first_number) + PASS_LOOK)

/* --- the pass ------------------------------------------------------------------------------------------------------- */

struct pass_part {
	int32_t number;
	bool active;                    /* it is to be read; of the others only `highest` matters, for when they come back */
	bool finished;                  /* it had no more when it was last asked */
	bool has_place;
	struct buf place;               /* up to here all rows were read: below the horizon */
	bool has_highest;
	struct buf highest;             /* of the rows that were read: those above `place` will be met again */
	uint32_t rows;                  /* in the page that is being taken in */
};

struct pass {
	const struct reader_env *env;
	int first_statement;
	struct horizon horizon;
	struct pass_part *parts;
	uint32_t n_parts, n_active;
	bool under_way;                 /* there was more than fitted into the last page */
	bool due_left;                  /* there were more due rows than that page took */
	bool untimed;                     /* no row is scheduled: statements are sent in their untimed form */
	bool from_lowest;               /* the next page is to begin there */
	int64_t lowest_ms;              /* when one last did */
	bool again;                     /* the page under way may bring rows that are in flight */
	uint32_t place_type;
	bool large_rows;                /* until a page has shown otherwise */
	uint32_t asked_of_part;         /* of the page under way */
	uint32_t asked_due;
	bool asked_limited;
	size_t asked_bytes;
	bool has_asked_horizon;
	struct buf asked_horizon;
	struct retry retries[PASS_RETRIES_MAX];
	struct buf numbers, places;     /* parameters */
};

void pass_init(struct pass *p, const struct reader_env *env, int first_statement);
void pass_release(struct pass *p);
/* What must be known before the first page; waits. */
bool pass_open(struct pass *p, struct pipeline *pipeline, struct error *err);

/* What to read from now on; parts that are new, or come back, from their lowest row on. Not while a page is under way. */
void pass_set_parts(struct pass *p, const int32_t *numbers, uint32_t n);
/* There is more than fitted into the last page. */
bool pass_has_more(const struct pass *p);
/* The next page begins at the lowest row. */
void pass_restart(struct pass *p);

/* Queues the next page; `in_flight` is how many rows there are that this exchange does not settle. */
bool pass_send(struct pass *p, struct pipeline *pipeline, const struct exchange *x, uint32_t in_flight, int64_t now_ms,
	       struct error *err);
/* True when the result was a page or what belongs to it, taken over then. */
bool pass_take(struct pass *p, int statement, PGresult *res, struct answer *answer);

#endif
