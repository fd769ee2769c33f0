/* A trip of the reader `wal` to the database: settles what workers have published, parks what a sink refused and what stands
 * behind it, and writes down how far everything is settled, all in one transaction; then reads what is to be published
 * from tables: parked events whose time has come, and rows from before the slot. The log goes on meanwhile. */
#ifndef POSTRIDER_READ_WAL_ROUND_H
#define POSTRIDER_READ_WAL_ROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "read/pool.h"
#include "read/schedule.h"
#include "read/settle.h"
#include "read/wal_flow.h"
#include "read/wal_schedule.h"
#include "read/wal_slot.h"

/* --- SQL: these statements stand in the leader's table, from ROUND_FIRST on ------------------------------------------- */

enum {
	ROUND_FIRST = SETTLE_STATEMENTS,
	ROUND_DURABLE = ROUND_FIRST,
	ROUND_AWAIT,
	ROUND_DELETE,
	ROUND_DELETE_PARKED,
	ROUND_DELETE_BACKLOG,
	ROUND_PARK,
	ROUND_BURY,
	ROUND_SKIP,
	ROUND_REMEMBER,
	ROUND_RECALL,
	ROUND_READ_PARKED,
	ROUND_READ_BACKLOG,
	ROUND_END_BACKLOG,
	ROUND_READ_DUE,
	ROUND_NEXT_DUE,
	ROUND_LIST_PARKED,
	ROUND_HEARTBEAT,
	ROUND_RETAINED,
	ROUND_END,
};

#define ROUND_STATEMENTS                                                                                        \
	[ROUND_DURABLE] = { "postrider_durable", "wait for the disk",                                           \
		"SELECT pg_catalog.set_config('synchronous_commit', 'on', true)" },                             \
	[ROUND_AWAIT] = { "postrider_await", "wait for commits that are already in the log",                     \
		/* $1 numbers of transactions */                                                                \
		"SELECT postrider.await_visible($1::bigint[])" },                                               \
	[ROUND_DELETE] = { "postrider_settle_log", "settle published rows",                                     \
		/* $1 ids. Each is one descent in an index, whatever the planner thinks of the table. */        \
		"{settle_begin}{settle} WHERE o.ctid = ANY (ARRAY("                                             \
		"    SELECT p.ctid FROM unnest($1::text[]) u(i)"                                                \
		"    CROSS JOIN LATERAL (SELECT p.ctid FROM {table} p WHERE p.{id} = u.i::{id_type} LIMIT 1) p))" \
		"  AND (o.{id} IN (SELECT u.i::{id_type} FROM unnest($1::text[]) u(i))) IS TRUE{settle_end}" },  \
	[ROUND_DELETE_PARKED] = { "postrider_unpark", "settle parked events",                                   \
		/* $1 entities, $2 numbers */                                                                   \
		"DELETE FROM postrider.parked p USING unnest($1::text[], $2::bigint[]) u(e, n)"                 \
		" WHERE p.outbox = {outbox} AND p.entity = u.e AND p.n = u.n" },                                \
	[ROUND_DELETE_BACKLOG] = { "postrider_done_before", "settle rows from before the slot",                 \
		/* $1 numbers */                                                                                \
		"DELETE FROM postrider.wal_backlog b WHERE b.outbox = {outbox} AND b.n = ANY ($1::bigint[])" },  \
	[ROUND_PARK] = { "postrider_park", "park an event",                                                     \
		/* $1 entity, $2 id, $3 fields, $4 whether it is a message, $5 its number. Events of an entity that a person puts \
		 * aside may come here in another order than they have in the log: when one is refused that was on its way then. */ \
		"INSERT INTO postrider.parked (outbox, n, entity, row_id, names, fields, is_message) OVERRIDING SYSTEM VALUE" \
		" VALUES ({outbox}, $5::bigint, $1::text, $2::text, ARRAY[{parked_names}], $3::bytea[], $4::bool)" }, \
	[ROUND_BURY] = { "postrider_bury_event", "move an event to the dead letters",                           \
		/* $11 whether there is a row, too, that is to go */                                            \
		"WITH gone AS (DELETE FROM postrider.parked p"                                                  \
		"   WHERE p.outbox = {outbox} AND p.entity = $1::text AND p.row_id = $3::text RETURNING p.*),"  \
		" taken AS (DELETE FROM {table} o WHERE o.{id} = CASE WHEN $11::bool THEN $3::text::{id_type} END)," \
		" buried AS (INSERT INTO postrider.dead_letter (" BURY_COLUMNS ", names, fields, is_message)"   \
		"   SELECT " BURY_VALUES ", gone.names, gone.fields, gone.is_message FROM gone RETURNING 1)"    \
		" SELECT " BURY_TELL " FROM buried" },                                                          \
	[ROUND_SKIP] = { "postrider_skip_event", "drop an event",                                               \
		/* $1 entity, $2 id, $3 as $11 there */                                                         \
		"WITH taken AS (DELETE FROM {table} o WHERE o.{id} = CASE WHEN $3::bool THEN $2::text::{id_type} END)" \
		" DELETE FROM postrider.parked p WHERE p.outbox = {outbox} AND p.entity = $1::text AND p.row_id = $2::text" }, \
	[ROUND_REMEMBER] = { "postrider_remember", "remember the place in the log",                             \
		/* $1 confirmed, $2 transaction, $3 its events, $4 those behind, $5 whether messages count */   \
		"UPDATE postrider.wal w SET confirmed = $1::pg_lsn, transaction = $2::pg_lsn,"                   \
		"   transaction_rows = $3::bigint, settled_behind = $4::bytea, counts_messages = $5::bool WHERE w.outbox = {outbox}" },        \
	[ROUND_RECALL] = { "postrider_recall", "recall the place in the log",                                   \
		"SELECT w.settled_behind, w.counts_messages FROM postrider.wal w WHERE w.outbox = {outbox}" },  \
	[ROUND_READ_PARKED] = { "postrider_parked", "read parked events",                                       \
		/* $1 entities, $2 events of each */                                                            \
		"SELECT {parked_fields}, p.entity, CASE WHEN p.is_message THEN 'q' ELSE 'p' END || p.n"           \
		" FROM unnest($1::text[]) s(e) CROSS JOIN LATERAL (SELECT p.* FROM postrider.parked p WHERE p.outbox = {outbox} AND p.entity = s.e"             \
		"   ORDER BY p.n LIMIT $2::int) p" },                                                           \
	[ROUND_READ_BACKLOG] = { "postrider_before", "read rows from before the slot",                          \
		/* $1 behind this number, $2 rows */                                                            \
		"SELECT {fields}, b.n FROM (SELECT b.n, b.id FROM postrider.wal_backlog b"                      \
		"   WHERE b.outbox = {outbox} AND b.n > $1::bigint ORDER BY b.n LIMIT $2::int) b"               \
		" LEFT JOIN LATERAL (SELECT o.* FROM {table} o WHERE o.{id} = b.id::{id_type} AND {at_once} LIMIT 1) o ON true"  \
		" ORDER BY b.n" },                                                                              \
	[ROUND_END_BACKLOG] = { "postrider_before_end", "settle rows from before the slot",                     \
		/* What is left of the list was deleted by somebody else. */                                    \
		"DELETE FROM postrider.wal_backlog b WHERE b.outbox = {outbox}" },                              \
	[ROUND_READ_DUE] = { "postrider_due", "read rows that are due", WAL_SCHEDULE_SQL_READ },                \
	[ROUND_NEXT_DUE] = SCHEDULE_STATEMENT,                                                                  \
	[ROUND_LIST_PARKED] = { "postrider_list_parked", "list parked entities",                                \
		/* Those that a person has put aside may have no event there yet. */                            \
		"SELECT p.entity, r.row_id, coalesce(r.attempts, 0),"                                           \
		"   greatest(coalesce(extract(epoch FROM r.retry_at - now()) * 1000, 0), 0)::bigint, "          \
		"   " SETTLE_IS_PARKED ", p.last"                                                               \
		" FROM (SELECT p.entity, max(p.n) AS last FROM (SELECT p.entity, p.n FROM postrider.parked p"   \
		"     WHERE p.outbox = {outbox} UNION ALL SELECT r.entity, 0 FROM postrider.retry r"            \
		"     WHERE r.outbox = {outbox} AND " SETTLE_IS_PARKED ") p GROUP BY p.entity) p"               \
		" LEFT JOIN postrider.retry r ON r.outbox = {outbox} AND r.entity = p.entity" },                \
	[ROUND_HEARTBEAT] = { "postrider_heartbeat", "write a heartbeat",                                       \
		"SELECT pg_logical_emit_message(false, 'postrider.heartbeat', '')" },                           \
	[ROUND_RETAINED] = { "postrider_retained", "ask how much log the slot keeps", WAL_SQL_RETAINED }

/* --- the round -------------------------------------------------------------------------------------------------------- */

enum { ROUND_FETCH_MAX = 100 };         /* parked entities that are read in one round */

/* A refusal that the round records. */
struct round_hold {
	struct parked *entity;
	bool from_table;                /* of an event that was parked already */
	char *row_id;                   /* NULL: it was given up, and nothing is in the way of those behind it */
	uint32_t attempts;
	int64_t delay_ms;
};

struct round {
	const struct reader_env *env;
	struct flow *flow;
	struct parking *parking;
	struct wal_schedule schedule;
	struct wal_page page;           /* for events from the table … */
	struct slice *scratch;          /* … and the fields of one of them */
	const char *slot;

	bool under_way;
	int64_t sent_ms;
	bool settles;                   /* it has a settling transaction … */
	bool settling;                  /* … whose results are still coming */
	bool settled;
	struct error settle_error;
	bool sent[POOL_WORKERS_MAX];    /* channels with an exchange in it */
	uint64_t *numbers;              /* events that it settles */
	uint32_t n_numbers, numbers_room;
	uint32_t n_to_park, n_refused;  /* of the flow's lists */
	uint32_t n_due;                 /* of the schedule's */
	uint64_t n_parked_due;          /* in all */
	struct round_hold *holds;
	uint32_t n_holds, holds_room;
	struct parked **passed;         /* entities, once for each event from the table that was published */
	uint32_t n_passed, passed_room;
	struct tally_place place;       /* that it writes down */
	bool durable;                   /* and waits until it is on the disk, which other rounds do not do */
	uint64_t durable_lsn;           /* up to here everything is settled, and known to be after any crash */
	int64_t durable_ms;             /* when the last such one was sent … */
	bool dirty;                     /* … and something was settled since */
	int64_t parked_before;          /* the highest number in postrider.parked when we began: ours follow */
	uint64_t steers;                /* of the bell, at the last look at what people have changed … */
	PGresult *list;                 /* … and what it found, until the round is over */
	struct parked *fetching[ROUND_FETCH_MAX];
	uint32_t n_fetching;

	bool backlog;                   /* rows from before the slot are left … */
	bool backlog_read;              /* … but have all been read */
	int64_t backlog_after;

	int64_t heartbeat_ms;           /* when the last one was sent */
	int64_t retained_bytes;         /* when last asked; -1: not known */
	uint64_t n_looks;               /* how often it was asked */
	char wal_status[16];
	bool unpublished;               /* the publication does not show the table any more */

	struct buf behind;              /* of `place`: which events behind it are settled */
	struct buf xids, ids, entities, parked_numbers, backlog_numbers, fields, due;
};

void round_init(struct round *r, const struct reader_env *env, const char *slot, struct flow *flow,
		struct parking *parking, uint64_t durable_lsn, bool backlog);
void round_release(struct round *r);
/* Lists what is parked, and recalls what was settled behind the place; waits. */
bool round_open(struct round *r, struct pool *p, struct error *err);

/* Both with the pool's lock held; `may_read`: workers are there for what it reads. When a round is to begin, CLOCK_NEVER
 * while one is under way; and begins it, if that time has come. */
int64_t round_due_ms(const struct round *r, const struct pool *p, bool may_read);
bool round_begin(struct round *r, struct pool *p, bool may_read, int64_t now_ms, struct error *err);
/* Takes in what has arrived; when that is all, deals out what was read and answers. False: the session is lost. */
bool round_receive(struct round *r, struct pool *p, struct error *err);
#endif
