/* The reader `skip_locked`: the rows themselves are locked, FOR UPDATE SKIP LOCKED, by a transaction that stays open
 * until they are published. It then deletes them, commits, and the next one begins in the same round trip.
 *
 * One exchange is one pipeline:
 *   1. settle   cleared retries, holds, DELETE, COMMIT
 *   2. claim    BEGIN, lock, read
 * Between two exchanges the session is idle in that transaction. Nothing is claimed when the transaction is gone, so a
 * settle that fails loses everything that was claimed, and no sink may ride in it: one row that it refuses would undo
 * all others, again and again. A claim that finds nothing ends its transaction at once.
 *
 * Without order (take.h) whoever locks a row publishes it. With order (walk.h), an entity is taken when all of it is:
 *   entity      An advisory lock until the end of the transaction decides between relays, also for rows that commit
 *               late and for those of an entity with more rows than we take.
 *   rows        All of its rows are locked, in order, as far as a claim goes. That is for everybody else who takes rows
 *               of the table by locking them.
 *   all ours    A later statement looks again. A row that we have locked shows our own transaction in xmax: nobody else
 *               can have locked it at the same time, so it is never shared. An entity that shows somebody else's there
 *               is left alone. A row without any has just been inserted, and comes with the next claim. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/exec.h"
#include "pg/install.h"
#include "pg/schedule_check.h"
#include "read/reader.h"
#include "read/session.h"
#include "read/settle.h"
#include "read/take.h"
#include "read/walk.h"

enum {
	ST_BEGIN = SETTLE_STATEMENTS,
	ST_SETTINGS,
	ST_COMMIT,
	ST_CLAIM,                       /* the rest is of one mode only */
	/* without order */
	ST_TAKE = ST_CLAIM,
	ST_FORGET = ST_TAKE + TAKE_STATEMENTS_COUNT,
	ROWS_STATEMENTS,
	/* with order */
	ST_CLAIM_FRONT = ST_CLAIM + 1,
	ST_LOCK,
	ST_KEEP,
	ST_READ,
	ST_READ_LARGE,
	ST_FRONT,
	ENTITIES_STATEMENTS = ST_FRONT + FRONT_STATEMENTS_COUNT,
};

enum { LOOK_AGAIN_MS = 500 };

#define TRANSACTION                                                                                             \
	SETTLE_PLAIN,                                                                                           \
	[ST_BEGIN] = { "postrider_begin", "begin a transaction", "BEGIN ISOLATION LEVEL READ COMMITTED" },      \
	[ST_SETTINGS] = SESSION_SETTINGS,                                                                       \
	[ST_COMMIT] = { "postrider_commit", "commit what is settled", "COMMIT" }

static const struct statement rows_statements[ROWS_STATEMENTS] = {
	TRANSACTION,
	TAKE_STATEMENTS(ST_TAKE),
	[ST_FORGET] = { "postrider_forget", "forget retries of rows that are gone", TAKE_SQL_FORGET },
};

/* The rows of each claimed entity, in order; see WALK_ROWS_OF_EACH. $1 rows, $2 rows of one entity. */
#define OF_EACH(columns)                                                                                        \
	WALK_EACH " CROSS JOIN LATERAL (" SCHEDULE_ROWS(columns, "o.{key} = c.e", "o.{key}", "$2::int") ") o"
/* PostgreSQL locks no rows of a UNION. */
#define LOCK_EACH(test, order)                                                                                  \
	WALK_EACH " CROSS JOIN LATERAL (SELECT o.ctid FROM {table} o WHERE o.{key} = c.e AND " test                  \
	"   ORDER BY o.{key}, " order " LIMIT $2::int FOR UPDATE SKIP LOCKED) o LIMIT $1::int"
#define OURSELVES "(SELECT pg_current_xact_id()::xid)"
#define OUR_ROWS                                                                                                \
	OF_EACH("o.*, o.ctid AS postrider_ctid, o.xmax AS postrider_xmax")                                      \
	" WHERE o.postrider_xmax = " OURSELVES " LIMIT $1::int"

#define LOCKED                                                                                                  \
	"locked(e, n) AS ("                                                                                     \
	"  SELECT c.e, c.n FROM candidate c WHERE CASE"                                                         \
	"    WHEN " WALK_IS_OURS " THEN false"                                                                  \
	"    WHEN " WALK_IS_HELD_BACK " THEN false"                                                             \
	"    ELSE pg_try_advisory_xact_lock(hashtextextended(c.e::text, {oid})) END"                            \
	"  LIMIT $3::int"                                                                                       \
	"), "

static const struct statement entities_statements[ENTITIES_STATEMENTS] = {
	TRANSACTION,

	[ST_CLAIM] = { "postrider_claim", "claim entities", WALK_CANDIDATES LOCKED WALK_TAKEN_BY_WALK("locked") },
	[ST_CLAIM_FRONT] = { "postrider_claim_front", "claim entities",
		FRONT_CANDIDATES LOCKED WALK_TAKEN_AT_FRONT("locked") },

	[ST_LOCK] = { "postrider_lock", "lock rows",
		"SELECT count(*) FROM ((SELECT" LOCK_EACH("{at_once}", "o.{order}") ")"
		"{if_scheduled} UNION ALL (SELECT" LOCK_EACH("{due}", "o.{scheduled}") "){end}) l" },

	/* Forgets entities of which somebody else has a row; the others keep their numbers. */
	[ST_KEEP] = { "postrider_keep", "look for rows of others",
		"WITH seen(n, x) AS MATERIALIZED (SELECT c.n, o.x" OF_EACH("o.xmax AS x, o.{order}") " LIMIT $1::int"
		"), others(n) AS MATERIALIZED ("
		"  SELECT DISTINCT s.n FROM seen s WHERE s.x <> " OURSELVES " AND s.x <> '0'::xid"
		"), kept AS ("
		"  SELECT array_agg(CASE WHEN c.n IN (SELECT n FROM others) THEN NULL ELSE c.e END ORDER BY c.n) AS entities"
		"    FROM unnest(current_setting('postrider.claim')::{key_type}[]) WITH ORDINALITY c(e, n)"
		") SELECT (SELECT count(*) FROM others), set_config('postrider.claim', coalesce(k.entities::text, '{}'), true)"
		"   FROM kept k" },

	[ST_READ] = { "postrider_read", "read rows", "SELECT {fields}, c.n::int, o.postrider_ctid" OUR_ROWS },
	[ST_READ_LARGE] = { "postrider_read_large", "read rows", WALK_SQL_LIMITED(OUR_ROWS) },
	FRONT_STATEMENTS(ST_FRONT),
};

static const struct walk_statements walk_statements = { ST_CLAIM, ST_READ, ST_READ_LARGE, ST_CLAIM_FRONT, ST_FRONT };

extern const struct reader_driver reader_skip_locked;

struct reader {
	const struct reader_env *env;
	bool ordered;
	struct pipeline pipeline;
	struct settle settle;
	struct take take;
	struct walk walk;
	uint32_t n_foreign;             /* entities of the claim under way of which somebody else has a row */
	bool claiming;                  /* a transaction has begun, and its rows are not known yet */
	bool repeat;                    /* the claim is to be sent again, from the lowest row on */
	bool holding;                   /* the open transaction has rows that are to be published */
	uint64_t number;                /* of the exchange */
	int64_t sent_ms;                /* when the last exchange that was answered was sent */
	int64_t sending_ms;
	struct answer answer;
};

/* --- opening -------------------------------------------------------------------------------------------------- */

static bool skip_locked_keeps_order(const struct outbox_config *settings)
{
	return settings->order == ORDER_ENTITY;
}

static void skip_locked_close(struct reader *r)
{
	if (!r)
		return;
	pipeline_close(&r->pipeline);   /* with the session go its transaction and its locks */
	settle_release(&r->settle);
	take_release(&r->take);
	walk_release(&r->walk);
	PQclear(r->answer.rows);
	free(r);
}

static bool skip_locked_open(const struct reader_env *env, struct reader **ret, struct error *err)
{
	struct reader *r = mem_new(struct reader);
	_cleanup_(mem_freep) char *identity = NULL;

	r->env = env;
	r->ordered = skip_locked_keeps_order(env->outbox);
	settle_init(&r->settle, false);
	take_init(&r->take, env, ST_TAKE);
	walk_init(&r->walk, env, &walk_statements);
	if (!session_open(&reader_skip_locked, env, r->ordered ? entities_statements : rows_statements,
			  r->ordered ? ENTITIES_STATEMENTS : ROWS_STATEMENTS, &r->pipeline, &identity, err)) {
		skip_locked_close(r);
		return false;
	}
	*ret = r;
	return true;
}

static const char *skip_locked_identity(const struct reader *r _unused_)
{
	return NULL;
}

/* A frozen process keeps its transaction, so the server ends sessions that are idle in one for too long. */
static int64_t skip_locked_holds_until(const struct reader *r)
{
	return r->holding ? r->sent_ms + r->env->database->idle_session_timeout_ms : CLOCK_NEVER;
}

/* --- sending -------------------------------------------------------------------------------------------------- */

static bool send_plain(struct reader *r, int statement, struct error *err)
{
	return pipeline_send(&r->pipeline, statement, NULL, 0, false, err);
}

static bool send_settle(struct reader *r, const struct exchange *x, struct error *err)
{
	r->holding = false;     /* all of it is published */
	settle_collect(&r->settle, x);
	walk_note_settle(&r->walk, &r->settle);
	return settle_send(&r->settle, &r->pipeline, x, NULL, err) && send_plain(r, ST_COMMIT, err);
}

static bool send_entities(struct reader *r, const struct exchange *x, struct error *err)
{
	_cleanup_(mem_freep) char *rows = mem_printf("%u", x->want_rows);
	_cleanup_(mem_freep) char *per_entity = mem_printf("%lld", (long long)r->env->outbox->entity_max_rows);
	const struct param limits[] = { text_param(rows), text_param(per_entity) };

	return walk_send_claim(&r->walk, &r->pipeline, x, &walk_statements, NULL, 0, err) &&
	       pipeline_send(&r->pipeline, ST_LOCK, limits, ARRAY_SIZE(limits), false, err) &&
	       pipeline_send(&r->pipeline, ST_KEEP, limits, ARRAY_SIZE(limits), false, err) &&
	       walk_send_read(&r->walk, &r->pipeline, x, &walk_statements, err);
}

static bool send_claim(struct reader *r, const struct exchange *x, struct error *err)
{
	r->claiming = true;
	return send_plain(r, ST_BEGIN, err) && session_send_settings(&r->pipeline, ST_SETTINGS, r->env->database, err) &&
	       (r->ordered ? send_entities(r, x, err) : take_send(&r->take, &r->pipeline, x, r->sending_ms, err));
}

static bool skip_locked_begin(struct reader *r, const struct exchange *x, struct error *err)
{
	r->sending_ms = clock_ms();
	r->answer = (struct answer){ .settled = true, .claim = ++r->number };
	if ((x->n_done > 0 || x->n_holds > 0) && !send_settle(r, x, err))
		return false;
	if (x->want_rows > 0 && !send_claim(r, x, err))
		return false;
	/* Even with nothing to do this is worth sending: it shows the server that we are not frozen. */
	return pipeline_sync(&r->pipeline, err) && pipeline_flush(&r->pipeline, err);
}

/* --- receiving ------------------------------------------------------------------------------------------------ */

static int skip_locked_pollfd(const struct reader *r, short *ret_events)
{
	return pipeline_pollfd(&r->pipeline, ret_events);
}

/* The locks have gone with a transaction that failed. A row that it did not delete cannot have been moved or deleted by
 * somebody else, for it was locked: a trigger of the user's keeps it, and asking again would not change that. */
static bool is_settled(struct reader *r, struct error *err)
{
	if (r->answer.settled)
		return true;
	if (r->answer.settle_error.kind != ERROR_NONE) {
		*err = r->answer.settle_error;
		return false;
	}
	r->answer.settled = true;
	r->settle.by_key = false;
	return true;
}

static void count_idle(void *arg, struct slice entity _unused_)
{
	++*(uint32_t *)arg;
}

/* Entities of which somebody else has a row are not to be looked for at once again, but soon: nobody rings for them. */
static void take_entities_rows(struct reader *r, PGresult *res)
{
	bool exhausted = r->answer.exhausted;
	uint32_t n_idle = 0;

	walk_take_rows(&r->walk, res, &r->answer, count_idle, &n_idle);
	r->answer.lost += r->n_foreign;
	if (n_idle <= r->n_foreign)
		r->answer.exhausted = exhausted;
	if (r->n_foreign > 0)
		r->answer.look_again_ms = LOOK_AGAIN_MS;
}

/* A role that may read and delete may not lock: that needs UPDATE, of one column at least. */
static bool explain_failure(const struct reader *r, int statement, const PGresult *res, struct error *err)
{
	const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	const struct table *t = r->env->table;

	if (statement < ST_CLAIM || !sqlstate || strcmp(sqlstate, "42501") != 0)
		return false;
	return error_hint(err, "to lock rows takes the privilege UPDATE: run `GRANT UPDATE (%s) ON %s TO %s`",
			  t->columns[FIELD_ID].quoted, t->name, PQuser(r->pipeline.conn));
}

/* Takes over `res`. */
static bool take_result(void *reader, int statement, PGresult *res, struct error *err)
{
	struct reader *r = reader;
	_cleanup_(pg_result_clearp) PGresult *owned = res;

	if (settle_take(&r->settle, &r->pipeline, statement, res, &r->answer))
		return is_settled(r, err);
	if (!pipeline_worked(&r->pipeline, statement, res, err))
		return explain_failure(r, statement, res, err);
	if (statement < ST_CLAIM)
		return true;
	if (!r->ordered) {
		if (statement == ST_FORGET)
			return true;
		if (statement == ST_TAKE + TAKE_NEXT_DUE) {
			schedule_take(res, 0, &r->answer);
			return true;
		}
		r->settle.id_type = PQftype(res, FIELD_ID);
		r->repeat = !take_rows(&r->take, TAKE_PTR(owned), &r->answer);
		return true;
	}
	if (walk_take_look(&r->walk, statement, res))
		return true;
	switch (statement) {
	case ST_CLAIM:
	case ST_CLAIM_FRONT:
		walk_take_claim(&r->walk, TAKE_PTR(owned), &r->answer);
		break;
	case ST_KEEP:
		r->n_foreign = (uint32_t)strtoul(PQgetvalue(res, 0, 0), NULL, 10);
		break;
	case ST_READ:
	case ST_READ_LARGE:
		r->settle.id_type = PQftype(res, FIELD_ID);
		take_entities_rows(r, TAKE_PTR(owned));
		break;
	}
	return true;
}

/* Everything that was sent is answered. That was all, unless the claim found nothing: then it looks again, or ends its
 * transaction, for nobody keeps one open for no rows. */
static bool finish(struct reader *r, bool *ret_complete, struct error *err)
{
	bool again = r->repeat;

	*ret_complete = !again && (!r->claiming || PQntuples(r->answer.rows) > 0);
	if (r->claiming)
		r->holding = *ret_complete;
	r->claiming = r->repeat = false;
	if (*ret_complete)
		return true;
	if (again) {
		r->claiming = true;
		if (!take_send_again(&r->take, &r->pipeline, r->sending_ms, err))
			return false;
	} else if ((!r->ordered && !send_plain(r, ST_FORGET, err)) || !send_plain(r, ST_COMMIT, err)) {
		return false;
	}
	return pipeline_sync(&r->pipeline, err) && pipeline_flush(&r->pipeline, err);
}

static bool skip_locked_receive(struct reader *r, bool *ret_complete, struct answer *ret, struct error *err)
{
	bool answered;

	*ret_complete = false;
	if (!pipeline_receive(&r->pipeline, take_result, r, &answered, err) || (answered && !finish(r, ret_complete, err)))
		return false;
	if (*ret_complete) {
		r->sent_ms = r->sending_ms;
		*ret = r->answer;
		r->answer = (struct answer){ 0 };
	}
	return true;
}

/* --- for init and check --------------------------------------------------------------------------------------- */

static char *skip_locked_install_sql(const struct outbox_config *o, const char *table, const char *role)
{
	_cleanup_(mem_freep) char *id = install_literal(o->columns.id.name);
	_cleanup_(mem_freep) char *grant =
		role ? mem_printf("SELECT postrider.grant_locking(%s::pg_catalog.regclass, %s, %s)", table, role, id) : NULL;
	_cleanup_(mem_freep) char *index = skip_locked_keeps_order(o) ? NULL : schedule_index_sql(o, table);

	if (grant && index)
		return mem_printf("%s UNION ALL %s", index, grant);
	return grant ? TAKE_PTR(grant) : TAKE_PTR(index);
}

static void skip_locked_check(PGconn *conn, const struct outbox_config *o, const struct table *t,
			      struct finding_list *findings)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *fix = mem_printf("GRANT UPDATE (%s) ON %s TO the role of the relay",
						    t->columns[FIELD_ID].quoted, t->name);
	struct error err;

	if (!pg_query(conn, "look at the right to lock rows", "SELECT has_any_column_privilege($1, 'UPDATE')", 1,
		      (const char *const[]){ t->name }, &res, &err))
		finding_add(findings, FINDING_FAIL, NULL, "outbox %s: %s", o->name, err.message);
	else if (PQgetvalue(res, 0, 0)[0] != 't')
		finding_add(findings, FINDING_FAIL, fix,
			    "outbox %s: the reader skip_locked locks rows, for which PostgreSQL wants UPDATE on some column",
			    o->name);
	if (!skip_locked_keeps_order(o))
		schedule_check_order(conn, o, t, findings);
}

static int skip_locked_session(const struct reader *r)
{
	return r->pipeline.prepared ? PQbackendPID(r->pipeline.conn) : 0;
}

const struct reader_driver reader_skip_locked = {
	.name = "skip_locked",
	.install_sql = skip_locked_install_sql,
	.check = skip_locked_check,
	.takes_turns = true,
	.summary = "rows locked by an open transaction; without order, or with it",
	.settles_whole = true,
	.keeps_order = skip_locked_keeps_order,
	.entities_max = 2 * WALK_ENTITIES_MAX,
	.open = skip_locked_open,
	.close = skip_locked_close,
	.identity = skip_locked_identity,
	.session = skip_locked_session,
	.holds_until = skip_locked_holds_until,
	.begin = skip_locked_begin,
	.pollfd = skip_locked_pollfd,
	.receive = skip_locked_receive,
};
