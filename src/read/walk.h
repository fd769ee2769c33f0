/* Claims that take entities one by one: a walk over the distinct entities of the outbox, a test for each, and then the rows
 * of those that were got. Readers differ in the test.
 *
 * The walk goes by index from the hand to the end, then from the start to the hand: one descent for each entity, however
 * many rows it has, and no more of them than are needed. A walk looks at a few hundred at most, so that it never takes long; where these are all
 * taken the next one starts elsewhere, and each one after that reaches further, until one gets something or has seen all. */
#ifndef POSTRIDER_READ_WALK_H
#define POSTRIDER_READ_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "pg/pipeline.h"
#include "read/front.h"
#include "read/held.h"
#include "read/reader.h"
#include "read/schedule.h"
#include "read/settle.h"

/* An entity in flight may be a slot of the server's shared lock table (some 6,400 in a default installation), so a claim
 * takes no more of them than this, and a worker has at most two such claims in flight. */
enum { WALK_ENTITIES_MAX = 128 };

/* --- SQL: a claim is WALK_CANDIDATES, locked(e, n) with the reader's tests, WALK_TAKEN_OF -------------------------- */

/* Parameters of every claim; the reader's own follow from $6 on. */
enum {
	WALK_HAND,                      /* $1 where to go on */
	WALK_ELSEWHERE,                 /* $2 start at some other place than the hand */
	WALK_WANTED,                    /* $3 how many entities */
	WALK_OURS,                      /* $4 entities in the window, not to be claimed again */
	WALK_REACH,                     /* $5 how many entities to look at, at most */
	WALK_PARAMS,
};

/* Entities with rows whose time has come, those that wait longest first; numbered -1, -2 …, so that the hand does not
 * follow them. Half of what is wanted stands in front of the walk and the rest behind it, so neither starves the
 * other. Each entity is tried once only, because a session's own lock does not stop it. Those that we cannot have are
 * left out before the rows are counted, for one of them may have many. */
#define WALK_DUE                                                                                                \
	"{if_scheduled}due_row(e, at) AS MATERIALIZED ("                                                        \
	"  SELECT o.{key}, o.{scheduled} FROM {table} o WHERE o.{key} IS NOT NULL AND {due}"                    \
	"    AND (o.{key}::text IN (SELECT unnest($4::text[]))) IS NOT TRUE"                                    \
	"    AND" HELD_IS_FREE("o.{key}::text", HELD_NOT_YET)                                                   \
	"    ORDER BY o.{scheduled} LIMIT 1000"                                                                 \
	"), due(e, n) AS MATERIALIZED ("                                                                        \
	"  SELECT d.e, -row_number() OVER (ORDER BY min(d.at)) FROM due_row d GROUP BY d.e"                     \
	"), {end}"
#define WALK_IS_NOT_DUE(entity) "{if_scheduled} AND (" entity " IN (SELECT d.e FROM due d)) IS NOT TRUE{end}"

#define WALK_CANDIDATES                                                                                         \
	"WITH RECURSIVE hand(h) AS MATERIALIZED ("                                                              \
	"  SELECT CASE WHEN $2::bool THEN coalesce("                                                            \
	"    (SELECT o.{key} FROM {table} o TABLESAMPLE SYSTEM ({sample})"                                      \
	"      WHERE o.{key} IS NOT NULL AND {at_once} ORDER BY random() LIMIT 1), $1::{key_type})"             \
	"  ELSE $1::{key_type} END"                                                                             \
	"), ahead(e) AS ("                                                                                      \
	"  (SELECT o.{key} FROM {table} o WHERE o.{key} > (SELECT h FROM hand) AND {at_once} ORDER BY o.{key} LIMIT 1)" \
	"  UNION ALL"                                                                                           \
	"  SELECT (SELECT o.{key} FROM {table} o WHERE o.{key} > a.e AND {at_once} ORDER BY o.{key} LIMIT 1)"   \
	"    FROM ahead a WHERE a.e IS NOT NULL"                                                                \
	"), behind(e) AS ("                                                                                     \
	"  (SELECT o.{key} FROM {table} o WHERE o.{key} IS NOT NULL AND {at_once} ORDER BY o.{key} LIMIT 1)"    \
	"  UNION ALL"                                                                                           \
	"  SELECT (SELECT o.{key} FROM {table} o WHERE o.{key} > b.e AND {at_once} ORDER BY o.{key} LIMIT 1)"   \
	"    FROM behind b, hand WHERE b.e IS NOT NULL AND (h IS NULL OR b.e < h)"                              \
	"), " WALK_DUE "candidate(e, n) AS MATERIALIZED ("                                                      \
	"  {if_scheduled}SELECT d.e, d.n FROM due d WHERE d.n >= -($3::int + 1) / 2 UNION ALL {end}"            \
	"  (SELECT w.e, row_number() OVER () FROM ("                                                            \
	"      SELECT a.e FROM ahead a WHERE a.e IS NOT NULL" WALK_IS_NOT_DUE("a.e")                            \
	"      UNION ALL"                                                                                       \
	"      SELECT b.e FROM behind b, hand WHERE b.e IS NOT NULL AND (h IS NULL OR b.e <= h)"                \
	WALK_IS_NOT_DUE("b.e") ") w LIMIT $5::int)"                                                             \
	"  {if_scheduled}UNION ALL SELECT d.e, d.n FROM due d WHERE d.n < -($3::int + 1) / 2{end}"              \
	"), "

/* Tests for the reader's CASE, which fixes their order: what takes something is tried last, and only for entities that
 * pass all others. */
#define WALK_IS_OURS "c.e::text IN (SELECT unnest($4::text[]))"
#define WALK_IS_HELD_BACK                                                                                       \
	"NOT " HELD_NONE " AND EXISTS (SELECT FROM " HELD_ENTRY_OF("c.e::text") HELD_NOT_YET                    \
	"   AND (r.row_id IS NULL OR EXISTS (SELECT FROM {table} o"                                             \
	"     WHERE o.{key} = c.e AND o.{id} = r.row_id::{id_type} AND {ready})))"

#define WALK_LOOKED_AT(entity)                                                                                  \
	"{if_scheduled}coalesce(max(" entity ".n) FILTER (WHERE " entity ".n > 0), 0)"                          \
	"   + count(*) FILTER (WHERE " entity ".n < 0) AS looked,"                                              \
	" (array_agg(" entity ".e ORDER BY " entity ".n DESC) FILTER (WHERE " entity ".n > 0))[1] AS last"      \
	"{else}max(" entity ".n) AS looked, (array_agg(" entity ".e ORDER BY " entity ".n DESC))[1] AS last{end}"

/* Remembers the entities for the statement that reads their rows, and answers. `tried` are those that the walk stopped at,
 * of which some may not be in locked. */
#define WALK_TAKEN_OF(tried, whole, shown)                                                                      \
	"taken AS MATERIALIZED ("                                                                               \
	"  SELECT array_agg(l.e) AS entities,"                                                                  \
	"    pg_backend_pid() AS pid, pg_relation_size({toast}) AS toast,"                                      \
	"    set_config('postrider.claim', coalesce(array_agg(l.e)::text, '{}'), true) FROM locked l"           \
	"), tried AS ("                                                                                         \
	"  SELECT count(*)::int AS n, " WALK_LOOKED_AT("t") " FROM " tried " t"                                 \
	"), seen AS ("          /* all there was to look at, when that was not enough */                        \
	"  SELECT " WALK_LOOKED_AT("c") " FROM candidate c"                                                     \
	") SELECT e.e::text, e.n, r.row_id, r.attempts, t.pid, t.toast,"                                        \
	"   CASE WHEN d.n = $3::int THEN d.last ELSE (SELECT s.last FROM seen s) END::text,"                    \
	"   CASE WHEN d.n = $3::int THEN d.looked ELSE coalesce((SELECT s.looked FROM seen s), 0) END,"         \
	"   d.n < $3::int AND " whole "{if_scheduled} AND (SELECT count(*) FROM due_row) < 1000{end}, " shown   \
	"   , " SCHEDULE_NEXT_DUE                                                                               \
	" FROM tried d CROSS JOIN taken t LEFT JOIN unnest(t.entities) WITH ORDINALITY e(e, n) ON true"         \
	"   LEFT JOIN postrider.retry r ON r.outbox = {outbox} AND r.entity = e.e::text"

/* All that there is was looked at. To ask that of a walk that has got enough would make it walk on, so `shown`, which is
 * always asked, is for claims at the front. */
#define WALK_IS_WHOLE "coalesce((SELECT s.looked FROM seen s), 0) < $5::int"
#define WALK_TAKEN_BY_WALK(tried) WALK_TAKEN_OF(tried, WALK_IS_WHOLE, "true")
#define WALK_TAKEN_AT_FRONT(tried) WALK_TAKEN_OF(tried, FRONT_IS_WHOLE, FRONT_IS_WHOLE)

/* Fields of the answer, one row per entity or one with a NULL entity. */
enum {
	WALK_ENTITY,
	WALK_NUMBER,                    /* of the entity, from 1 */
	WALK_ROW_ID,                    /* that the entity was held back for; NULL: it was not */
	WALK_ATTEMPTS,
	WALK_PID,                       /* of the server process */
	WALK_TOAST,                     /* bytes of values too large for a page */
	WALK_LAST,                      /* the last entity looked at */
	WALK_LOOKED,                    /* how many */
	WALK_EXHAUSTED,                 /* there were no others */
	WALK_WHOLE,                     /* at the front: nor would there have been more to look at */
	WALK_NEXT_DUE,                  /* see SCHEDULE_NEXT_DUE */
};

/* The entities that were claimed. Of one that somebody refused just before it became ours, the claim, whose snapshot is older
 * than its lock, does not know yet that it is held back. */
#define WALK_EACH                                                                                               \
	" FROM (SELECT c.e, c.n FROM unnest(current_setting('postrider.claim')::{key_type}[]) WITH ORDINALITY c(e, n)" \
	"   WHERE NOT (" WALK_IS_HELD_BACK ")) c"

/* The rows of the entities that were claimed, in the same transaction. Rows of one entity come in order because each
 * entity's are found by its own ordered walk of the index. That the key is named in the order too, where it is the same for
 * all, keeps the planner from walking the index on {order} alone: to its statistics an outbox is mostly empty, and any way
 * through an empty table seems short. $1 rows, $2 rows of one entity. */
#define WALK_ROWS_OF_EACH                                                                                       \
	WALK_EACH " CROSS JOIN LATERAL ("                                                                                 \
	SCHEDULE_ROWS("o.*, o.ctid AS postrider_ctid", "o.{key} = c.e", "o.{key}", "$2::int") ") o"

#define WALK_SQL_READ "SELECT {fields}, c.n::int, o.postrider_ctid" WALK_ROWS_OF_EACH " LIMIT $1::int"

/* The same, and $3 bytes: adding up what is stored takes as long as reading, so only where it may be much. */
#define WALK_SQL_LIMITED(rows)                                                                                  \
	"SELECT {fields}, o.postrider_n::int, o.postrider_ctid"                                                 \
	" FROM (SELECT o.*, c.n AS postrider_n,"                                                                \
	"         sum(coalesce(pg_column_size(o.{payload}), 0)) OVER (ROWS UNBOUNDED PRECEDING) AS postrider_bytes" \
	rows ") o"                                                                                              \
	" WHERE o.postrider_bytes - coalesce(pg_column_size(o.{payload}), 0) < $3::bigint"
#define WALK_SQL_READ_LARGE WALK_SQL_LIMITED(WALK_ROWS_OF_EACH " LIMIT $1::int")

/* --- the walking worker -------------------------------------------------------------------------------------------- */

struct walk {
	const struct reader_env *env;
	bool has_hand;                  /* we walk, and others of this process wait for it */
	bool crowded;                   /* the last walk met mostly entities of others: start somewhere else */
	double rows_per_entity;         /* lately: how many entities it takes to fill a claim */
	bool large_rows;                /* some row is too large for its page, so claims must be limited by bytes */
	bool untimed;                     /* no row is scheduled: statements are sent in their untimed form */
	struct front front;
	uint32_t wanted;                /* entities */
	uint32_t reach;                 /* of the next walk: entities that it looks at, at most */
	bool elsewhere;                 /* the one under way does not start at the hand */
	PGresult *claimed;              /* the entities that were got */
	struct retry retries[WALK_ENTITIES_MAX];
	struct buf ours;
};

/* Which statements of the reader's table are which. */
struct walk_statements {
	int claim, read, read_large;
	int claim_front;                /* the same claim, of FRONT_CANDIDATES … */
	int front;                      /* … and the first of FRONT_STATEMENTS */
};

void walk_init(struct walk *w, const struct reader_env *env, const struct walk_statements *st);
void walk_release(struct walk *w);
/* Somebody else may walk. Done by walk_take_claim; and to be done when there will be no answer. */
void walk_pass_hand(struct walk *w);

/* To be called with each settle: what it lets go again may be below the floor. */
void walk_note_settle(struct walk *w, const struct settle *s);
/* Queues claim and read, or one of them. `more` are the reader's own parameters, from $6 on. */
bool walk_send(struct walk *w, struct pipeline *p, const struct exchange *x, const struct walk_statements *st,
	       const struct param *more, int n_more, struct error *err);
bool walk_send_claim(struct walk *w, struct pipeline *p, const struct exchange *x, const struct walk_statements *st,
		     const struct param *more, int n_more, struct error *err);
bool walk_send_read(struct walk *w, struct pipeline *p, const struct exchange *x, const struct walk_statements *st,
		    struct error *err);
/* True when the result was of a look for the floor. Does not take it over. */
bool walk_take_look(struct walk *w, int statement, const PGresult *res);
/* The answer to the claim, of either kind; takes over `res`. */
void walk_take_claim(struct walk *w, PGresult *res, struct answer *answer);
/* The rows; takes over `res`. Calls `idle` for entities that were got and have no row in this claim. */
void walk_take_rows(struct walk *w, PGresult *res, struct answer *answer, void (*idle)(void *arg, struct slice entity),
		    void *arg);

#endif
