/* Where an outbox begins: below the *floor* there is nothing that a claim could take.
 *
 * Why it is needed: index entries of deleted rows stay until vacuum removes them, and as long as some session has an old
 * snapshot open it cannot. A walk over all entities passes over every one of them, and with each claim there are more. They
 * are all below the floor, and an index on the order begins there.
 *
 * What it is: the lowest row that is not settled, as far up as the horizon (read/horizon.h), below which no row is still to
 * come. Rows of entities that are held back do not keep it down, since postrider.retry has them. It is a hint: entities are
 * locked and read as ever, whoever found them. A row that comes below the floor all the same (a number that was drawn long
 * before, an entity that is free again) is found by the next walk, and there is one every poll_interval.
 *
 * Only where the order is drawn from a sequence and has an index: otherwise rows may come anywhere, or the way to them is as
 * long as the walk. */
#ifndef POSTRIDER_READ_FRONT_H
#define POSTRIDER_READ_FRONT_H

#include <stdbool.h>
#include <stdint.h>

#include "pg/pipeline.h"
#include "read/held.h"
#include "read/horizon.h"
#include "read/reader.h"

/* Statements of the reader's table, from some number on. */
enum {
	FRONT_FIRST,                    /* the floor, when none is known */
	FRONT_NEXT,
	FRONT_LOOK,                     /* those of the horizon */
	FRONT_STATEMENTS_COUNT = FRONT_LOOK + HORIZON_STATEMENTS_COUNT,
};

/* $1 the horizon, $2 the floor. Between the floor and the first row there are only rows that were deleted since. */
#define FRONT_SQL_FLOOR(above)                                                                                  \
	"SELECT coalesce((SELECT o.{order} FROM {table} o WHERE o.{order} <= ($1::{orders})[1]" above           \
	"   AND {unsettled} AND" HELD_IS_FREE("o.{key}::text", "")                                              \
	"   ORDER BY o.{order} LIMIT 1), ($1::{orders})[1])::{order_cast}"

/* The same when no floor is known. Rows that are scheduled for later do not keep it down, but there may be a million of
 * them in front of the others: then there is none, and claims walk. */
#define FRONT_SQL_FIRST                                                                                         \
	"{if_scheduled}WITH low(place, counts) AS MATERIALIZED ("                                               \
	"  SELECT o.{order}, {at_once} AND" HELD_IS_FREE("o.{key}::text", "")                                   \
	"    FROM {table} o WHERE o.{order} <= ($1::{orders})[1] AND {pending}"                                 \
	"    ORDER BY o.{order} LIMIT 2000"                                                                     \
	") SELECT coalesce((SELECT l.place FROM low l WHERE l.counts ORDER BY l.place LIMIT 1),"                \
	"   CASE WHEN (SELECT count(*) FROM low) < 2000 THEN ($1::{orders})[1] END)::{order_cast}"              \
	"{else}" FRONT_SQL_FLOOR("") "{end}"

#define FRONT_STATEMENTS(first_number)                                                                          \
	[(first_number) + FRONT_FIRST] = { "postrider_floor_first", "find the lowest row", FRONT_SQL_FIRST },   \
	[(first_number) + FRONT_NEXT] = { "postrider_floor", "find the lowest row",                             \
		FRONT_SQL_FLOOR(" AND o.{order} >= ($2::{orders})[1]") },                                       \
	HORIZON_STATEMENTS((first_number) + FRONT_LOOK)

/* In place of WALK_CANDIDATES: $1 is the floor, $2 and $5 are not used. A thousand rows from the floor on, whether they may be
 * published now or not, because reading more of them would cost as much as the walk; and whoever waited for his time to be
 * tried again. */
#define FRONT_CANDIDATES                                                                                        \
	"WITH front(e, n, due) AS MATERIALIZED ("                                                               \
	"  SELECT o.e, row_number() OVER (), o.due FROM ("                                                      \
	"    SELECT o.{key} AS e, ({ready}) AS due FROM {table} o"                                            \
	"    WHERE o.{order} >= ($1::{orders})[1] AND {unsettled} AND $2::bool IS NOT NULL AND $5::int > 0"     \
	"    ORDER BY o.{order} LIMIT 1000) o"                                                                  \
	"), " WALK_DUE "candidate(e, n) AS MATERIALIZED ("                                                      \
	"  SELECT c.e, row_number() OVER (ORDER BY c.n) FROM (SELECT x.e, min(x.n) AS n FROM ("                 \
	"      SELECT f.e, f.n FROM front f WHERE f.due AND f.e IS NOT NULL"                                    \
	"      {if_scheduled}UNION ALL SELECT d.e, 0 FROM due d{end}"                                           \
	"      UNION ALL"                                                                                       \
	"      (SELECT r.entity::{key_type}, 0 FROM postrider.retry r"                                          \
	"        WHERE r.outbox = {outbox} AND r.retry_at <= now() ORDER BY r.retry_at LIMIT 100)"              \
	"    ) x GROUP BY x.e) c"                                                                               \
	"), "
/* True when there was no more than that. */
#define FRONT_IS_WHOLE "(SELECT count(*) < 1000 FROM front)"

struct front {
	const struct reader_env *env;
	int first_statement;            /* 0: the reader has none of this */
	struct horizon horizon;
	bool known;
	struct buf floor;
	int64_t asked_ms;               /* when it was last looked for */
	bool backlog;                   /* there are more rows than one look shows: walks get further, if they are quick … */
	bool starved;                   /* … or if most of what it shows is taken */
	bool serving;                   /* the claim under way begins at the floor … */
	int64_t sent_ms;                /* … or is a walk, since then */
	struct buf param;
};

void front_init(struct front *f, const struct reader_env *env, int first_statement);
void front_release(struct front *f);

/* Rows may be below it now: those of an entity that was held back, and is no longer. */
void front_forget(struct front *f);
/* Whether the next claim may begin at the floor; otherwise it has to walk, and the others need not for a while. */
bool front_serves(struct front *f, int64_t now_ms);
/* The floor, as a parameter; valid until the next call. */
struct param front_param(struct front *f);
/* Queues a look for the floor when it is time for one. */
bool front_send(struct front *f, struct pipeline *p, int64_t now_ms, struct error *err);
/* True when the result was of such a look. Does not take it over. */
bool front_take(struct front *f, int statement, const PGresult *res);
/* A claim was answered: whether all that it could look at was looked at (FRONT_IS_WHOLE), nothing more was to be had, and
 * it got less than half of what was wanted. */
void front_answered(struct front *f, bool whole, bool exhausted, bool little, int64_t now_ms);

#endif
