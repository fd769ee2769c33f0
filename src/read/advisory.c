/* The reader `advisory`: a 64-bit advisory lock per entity, held by the session from claim to settle.
 *
 * The order of steps is the whole safety of it:
 *   lock, then read      Rows are read by a later statement than the one that locked, so with a newer snapshot: whatever
 *                        the last holder deleted before it unlocked is seen as deleted.
 *   delete, then unlock  The delete has committed before the lock goes.
 *   never twice          A session's own lock is no obstacle to it, so entities in the window are left out by name.
 *   all or nothing       When the session ends the server drops its locks, so nothing that was claimed is ours any more.
 *
 * One exchange is one round trip of two transactions:
 *   1. settle   the rider's writes, holds, cleared retries, DELETE; and a session variable takes the exchange's number,
 *               which a rolled back transaction does not do
 *   2. claim    unlock (only if 1 committed), lock candidates and remember them, read their rows
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/exec.h"
#include "read/reader.h"
#include "read/session.h"
#include "read/settle.h"
#include "read/walk.h"

enum {
	ST_UNLOCK = SETTLE_STATEMENTS,
	ST_CLAIM,
	ST_CLAIM_FRONT,
	ST_READ,
	ST_READ_LARGE,
	ST_FRONT,
	ST_COUNT = ST_FRONT + FRONT_STATEMENTS_COUNT,
};

/* $6 entities that the unlock before it releases if the settle committed, $7 number of the exchange */
#define LOCKED                                                                                                  \
	"locked(e, n) AS ("                                                                                     \
	"  SELECT c.e, c.n FROM candidate c WHERE CASE"                                                         \
	"    WHEN " WALK_IS_OURS " THEN false"                                                                  \
	"    WHEN c.e::text IN (SELECT unnest($6::text[]))"                                                     \
	"         AND current_setting('postrider.settled', true) IS DISTINCT FROM $7::text THEN false"          \
	"    WHEN " WALK_IS_HELD_BACK " THEN false"                                                             \
	"    ELSE pg_try_advisory_lock(hashtextextended(c.e::text, {oid})) END"                                 \
	"  LIMIT $3::int"                                                                                       \
	"), "

static const struct statement statements[ST_COUNT] = {
	SETTLE_MARKED("false"),

	[ST_UNLOCK] = { "postrider_unlock", "unlock settled entities",
		/* $1 entities of settled rows, $2 number of the exchange, $3 entities that had no row for us */
		"SELECT count(*) FILTER (WHERE pg_advisory_unlock(hashtextextended(u.e, {oid})))"
		" FROM (SELECT unnest($1::text[]) WHERE current_setting('postrider.settled', true) = $2::text"
		"       UNION ALL SELECT unnest($3::text[])) u(e)" },

	[ST_CLAIM] = { "postrider_claim", "claim entities", WALK_CANDIDATES LOCKED WALK_TAKEN_BY_WALK("locked") },
	[ST_CLAIM_FRONT] = { "postrider_claim_front", "claim entities",
		FRONT_CANDIDATES LOCKED WALK_TAKEN_AT_FRONT("locked") },

	[ST_READ] = { "postrider_read", "read rows", WALK_SQL_READ },
	[ST_READ_LARGE] = { "postrider_read_large", "read rows", WALK_SQL_READ_LARGE },
	FRONT_STATEMENTS(ST_FRONT),
};

static const struct walk_statements walk_statements = { ST_CLAIM, ST_READ, ST_READ_LARGE, ST_CLAIM_FRONT, ST_FRONT };

extern const struct reader_driver reader_advisory;

struct reader {
	const struct reader_env *env;
	struct pipeline pipeline;
	char *identity;
	int backend_pid;
	struct settle settle;
	struct walk walk;
	struct buf idle;                /* locked entities that had no row for us: unlocked by the next exchange */
	uint64_t number;                /* of the exchange */
	int64_t sent_ms;                /* when the last exchange that was answered was sent */
	int64_t sending_ms;
	struct answer answer;
};

/* --- opening -------------------------------------------------------------------------------------------------- */

static void advisory_close(struct reader *r)
{
	if (!r)
		return;
	pipeline_close(&r->pipeline);   /* with the session go its locks */
	settle_release(&r->settle);
	walk_release(&r->walk);
	buf_release(&r->idle);
	PQclear(r->answer.rows);
	free(r->identity);
	free(r);
}

static bool advisory_open(const struct reader_env *env, struct reader **ret, struct error *err)
{
	struct reader *r = mem_new(struct reader);

	r->env = env;
	settle_init(&r->settle, true);
	walk_init(&r->walk, env, &walk_statements);
	buf_init(&r->idle, 1 << 20);
	array_begin(&r->idle, TYPE_TEXT);
	r->sent_ms = clock_ms();
	if (!session_open(&reader_advisory, env, statements, ST_COUNT, &r->pipeline, &r->identity, err)) {
		advisory_close(r);
		return false;
	}
	*ret = r;
	return true;
}

static const char *advisory_identity(const struct reader *r)
{
	return r->identity;
}

/* A frozen process keeps its connection, so the server ends sessions that are idle for too long, and gives our locks away.
 * When we wake up from that, this is how we know before we have asked. */
static int64_t advisory_holds_until(const struct reader *r)
{
	return r->sent_ms + r->env->database->idle_session_timeout_ms;
}

/* --- sending -------------------------------------------------------------------------------------------------- */

static bool send_settle(struct reader *r, const struct exchange *x, const char *number, struct error *err)
{
	return settle_send(&r->settle, &r->pipeline, x, number, err) && pipeline_sync(&r->pipeline, err);
}

static bool send_unlock(struct reader *r, const char *number, struct error *err)
{
	const struct param params[] = { array_param(&r->settle.releasing), text_param(number), array_param(&r->idle) };

	if (array_count(&r->settle.releasing) + array_count(&r->idle) == 0)
		return true;
	return pipeline_send(&r->pipeline, ST_UNLOCK, params, ARRAY_SIZE(params), false, err);
}

static bool send_claim(struct reader *r, const struct exchange *x, const char *number, struct error *err)
{
	const struct param more[] = { array_param(&r->settle.releasing), text_param(number) };

	return walk_send(&r->walk, &r->pipeline, x, &walk_statements, more, ARRAY_SIZE(more), err);
}

static bool advisory_begin(struct reader *r, const struct exchange *x, struct error *err)
{
	_cleanup_(mem_freep) char *number = mem_printf("%llu", (unsigned long long)++r->number);

	r->sending_ms = clock_ms();
	r->answer = (struct answer){ .settled = true, .claim = r->number };
	settle_collect(&r->settle, x);
	walk_note_settle(&r->walk, &r->settle);
	if ((x->n_done > 0 || x->n_holds > 0) && !send_settle(r, x, number, err))
		return false;
	if (!send_unlock(r, number, err))
		return false;
	array_begin(&r->idle, TYPE_TEXT);
	if (x->want_rows > 0 && !send_claim(r, x, number, err))
		return false;
	/* Even with nothing to do this is worth sending: it shows the server that we are not frozen. */
	return pipeline_sync(&r->pipeline, err) && pipeline_flush(&r->pipeline, err);
}

/* --- receiving ------------------------------------------------------------------------------------------------ */

static int advisory_pollfd(const struct reader *r, short *ret_events)
{
	return pipeline_pollfd(&r->pipeline, ret_events);
}

static bool check_session(struct reader *r, int pid, struct error *err)
{
	if (r->backend_pid != 0 && pid != r->backend_pid) {
		error_set(err, ERROR_CONFIG, "the session changed under its locks: a pooler shares server connections");
		return error_hint(err, "connect to the server directly, or put the pooler into session mode");
	}
	r->backend_pid = pid;
	return true;
}

/* Takes over `res`. */
static bool take_result(void *reader, int statement, PGresult *res, struct error *err)
{
	struct reader *r = reader;
	_cleanup_(pg_result_clearp) PGresult *owned = res;

	if (settle_take(&r->settle, &r->pipeline, statement, res, &r->answer))
		return true;
	if (!pipeline_worked(&r->pipeline, statement, res, err))
		return false;
	if (walk_take_look(&r->walk, statement, res))
		return true;
	switch (statement) {
	case ST_CLAIM:
	case ST_CLAIM_FRONT:
		walk_take_claim(&r->walk, TAKE_PTR(owned), &r->answer);
		return check_session(r, atoi(PQgetvalue(r->walk.claimed, 0, WALK_PID)), err);
	case ST_READ:
	case ST_READ_LARGE:
		r->settle.id_type = PQftype(res, FIELD_ID);
		walk_take_rows(&r->walk, TAKE_PTR(owned), &r->answer, array_add_text, &r->idle);
		break;
	}
	return true;
}

static bool advisory_receive(struct reader *r, bool *ret_complete, struct answer *ret, struct error *err)
{
	if (!pipeline_receive(&r->pipeline, take_result, r, ret_complete, err))
		return false;
	if (*ret_complete) {
		r->sent_ms = r->sending_ms;
		*ret = r->answer;
		r->answer = (struct answer){ 0 };
	}
	return true;
}

static int advisory_session(const struct reader *r)
{
	return PQbackendPID(r->pipeline.conn);
}

const struct reader_driver reader_advisory = {
	.name = "advisory",
	.takes_turns = true,
	.summary = "an advisory lock per entity; claims write nothing",
	.needs_session = true,
	.entities_max = 2 * WALK_ENTITIES_MAX,
	.open = advisory_open,
	.close = advisory_close,
	.identity = advisory_identity,
	.carries_riders = true,
	.session = advisory_session,
	.holds_until = advisory_holds_until,
	.begin = advisory_begin,
	.pollfd = advisory_pollfd,
	.receive = advisory_receive,
};
