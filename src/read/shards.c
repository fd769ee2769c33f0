/* The reader `shards`: entities are divided by a hash, and each part has one owner, who reads it alone.
 *
 * Ownership is a row in postrider.shard: who, in which epoch, until when. Owners renew theirs several times in a lease, and
 * stop publishing a little before it would end by their own clock. So at any time at most one worker publishes rows of a
 * shard, and it needs no lock on an entity and no write to claim a row.
 *
 *   read ahead       The owner goes on reading while earlier rows are in flight: see read/pass.h.
 *   settle is fenced by epoch: when a shard has another owner, nothing is deleted and everything is given up.
 *   hand-over        A worker that has more than its share stops reading a shard, waits until all its rows are settled, and
 *                    only then gives it up: the next owner finds nothing half done.
 *
 * One exchange is one round trip of up to three transactions: settle; ownership (give up, take, renew, look); read. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/exec.h"
#include "pg/install.h"
#include "read/ownership.h"
#include "read/pass.h"
#include "read/reader.h"
#include "read/session.h"
#include "read/settle.h"

enum { FAREWELL_MS = 2000 };

enum {
	ST_OWNERSHIP = SETTLE_STATEMENTS,
	ST_PASS = ST_OWNERSHIP + OWNERSHIP_STATEMENTS_COUNT,
	ST_COUNT = ST_PASS + PASS_STATEMENTS_COUNT,
};

static const struct statement statements[ST_COUNT] = {
	SETTLE_PLAIN,
	OWNERSHIP_STATEMENTS(ST_OWNERSHIP),
	/* Not {shard} = s.part: the planner would drop the shard from the order, and might walk the index on {order} alone. */
	PASS_STATEMENTS(ST_PASS, "{shard} >= s.part AND {shard} <= s.part AND {at_once_of_shard}",
			"({shard}, o.{order}) > (s.part, s.after) AND {shard} <= s.part AND {at_once_of_shard}",
			"{shard_of_retry} = ANY ($1::int[])", "{shard}, o.{order}",
			/* Here it must be equal, or all that are scheduled for later would be looked through. The planner may take the
			 * index on the time alone: that has no more than what is due, of all shards. */
			"{shard} = s.part", "{shard}, o.{scheduled}"),
};

extern const struct reader_driver reader_shards;

struct reader {
	const struct reader_env *env;
	struct pipeline pipeline;
	char *identity;
	struct settle settle;
	struct ownership ownership;
	struct pass pass;
	struct answer answer;
};

/* --- opening -------------------------------------------------------------------------------------------------- */

static void shards_free(struct reader *r)
{
	pipeline_close(&r->pipeline);
	settle_release(&r->settle);
	ownership_release(&r->ownership);
	pass_release(&r->pass);
	PQclear(r->answer.rows);
	free(r->identity);
	free(r);
}

static void shards_close(struct reader *r)
{
	struct error ignored;

	if (!r)
		return;
	if (r->pipeline.conn && PQstatus(r->pipeline.conn) == CONNECTION_OK && !pipeline_busy(&r->pipeline))
		ownership_leave(&r->ownership, &r->pipeline, FAREWELL_MS, &ignored);
	shards_free(r);
}

static bool shards_open(const struct reader_env *env, struct reader **ret, struct error *err)
{
	struct reader *r = mem_new(struct reader);

	r->env = env;
	settle_init(&r->settle, false);
	ownership_init(&r->ownership, env, ST_OWNERSHIP);
	pass_init(&r->pass, env, ST_PASS);
	/* What a former connection of ours still owns was abandoned with it: nobody else needs to wait for its end. */
	if (!session_open(&reader_shards, env, statements, ST_COUNT, &r->pipeline, &r->identity, err) ||
	    !ownership_check(&r->ownership, &r->pipeline, err) ||
	    !ownership_leave(&r->ownership, &r->pipeline, env->database->statement_timeout_ms, err) ||
	    !pass_open(&r->pass, &r->pipeline, err)) {
		shards_free(r);
		return false;
	}
	*ret = r;
	return true;
}

static const char *shards_identity(const struct reader *r)
{
	return r->identity;
}

static int64_t shards_holds_until(const struct reader *r)
{
	return ownership_holds_until(&r->ownership);
}

static int64_t shards_beat_ms(const struct reader_env *env)
{
	return ownership_beat_ms(env->outbox);
}

/* --- sending -------------------------------------------------------------------------------------------------- */

static bool send_settle(struct reader *r, const struct exchange *x, struct error *err)
{
	return ownership_send_fence(&r->ownership, &r->pipeline, err) &&
	       settle_send(&r->settle, &r->pipeline, x, NULL, err) && pipeline_sync(&r->pipeline, err);
}

static uint32_t in_flight(const struct exchange *x)
{
	return x->window->rows - x->window->orphans - x->n_done - x->n_holds;
}

static bool shards_begin(struct reader *r, const struct exchange *x, struct error *err)
{
	int64_t now = clock_ms();

	if (atomic_load(&r->env->node->id) != r->ownership.node)
		return error_set(err, ERROR_LOST, "this node was taken for dead and has a new number");
	r->answer = (struct answer){ .settled = true, .claim = r->ownership.term, .exhausted = true };
	settle_collect(&r->settle, x);
	if (array_count(&r->settle.cleared) > 0)
		pass_restart(&r->pass);
	if ((x->n_done > 0 || x->n_holds > 0) && !send_settle(r, x, err))
		return false;
	if (!ownership_send(&r->ownership, &r->pipeline, x, now, err))
		return false;
	if (x->want_rows > 0 && r->ownership.n_ours > 0 &&
	    !pass_send(&r->pass, &r->pipeline, x, in_flight(x), now, err))
		return false;
	return pipeline_sync(&r->pipeline, err) && pipeline_flush(&r->pipeline, err);
}

/* --- receiving ------------------------------------------------------------------------------------------------ */

static int shards_pollfd(const struct reader *r, short *ret_events)
{
	return pipeline_pollfd(&r->pipeline, ret_events);
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
	if (!pass_take(&r->pass, statement, res, &r->answer))
		return ownership_take(&r->ownership, statement, res, err);
	if (r->answer.rows)
		r->settle.id_type = PQftype(r->answer.rows, FIELD_ID);
	owned = NULL;
	return true;
}

static bool shards_receive(struct reader *r, bool *ret_complete, struct answer *ret, struct error *err)
{
	int32_t numbers[PASS_PARTS_MAX];

	if (!pipeline_receive(&r->pipeline, take_result, r, ret_complete, err))
		return false;
	if (!*ret_complete)
		return true;
	if (r->ownership.changed)
		pass_set_parts(&r->pass, numbers, ownership_list(&r->ownership, numbers));
	r->answer.gained = ownership_has_more_to_do(&r->ownership);
	r->answer.exhausted &= !r->answer.gained;
	r->answer.look_again_ms = ownership_look_again_ms(&r->ownership, clock_ms());
	*ret = r->answer;
	r->answer = (struct answer){ 0 };
	return true;
}

/* --- for init and check --------------------------------------------------------------------------------------- */

static bool shards_keep_order(const struct outbox_config *outbox)
{
	return outbox->shards.key == SHARD_KEY_ENTITY;
}

static char *shards_install_sql(const struct outbox_config *o, const char *table, const char *role _unused_)
{
	_cleanup_(mem_freep) char *key = install_literal(o->columns.entity_id.name);
	_cleanup_(mem_freep) char *id = install_literal(o->columns.id.name);
	_cleanup_(mem_freep) char *order = install_literal(o->order_by.name[0] ? o->order_by.name : o->columns.id.name);

	_cleanup_(mem_freep) char *scheduled = install_literal(o->columns.scheduled_for.name);

	return mem_printf("SELECT postrider.divide(%s::pg_catalog.regclass, %lld, '%s', %s, %s, %s, %s)", table,
			  (long long)o->shards.count, ownership_key_name(o), key, id, order, scheduled);
}

static void shards_check(PGconn *conn, const struct outbox_config *o, const struct table *t, struct finding_list *findings)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *count = mem_printf("%lld", (long long)o->shards.count);
	struct error err;

	if (!pg_query(conn, "look how the outbox is divided",
		      "SELECT d.shards::text = $2 AND d.key = $3, d.shards, d.key, "
		      " $4::text IS NULL OR 2 = (SELECT count(*) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
		      "   WHERE i.indrelid = $1::text::regclass AND i.indisvalid AND c.relname ~ '_shards_(entity|id)_\\d+_(now|due)$')"
		      " FROM postrider.sharding d"
		      " JOIN postrider.outbox o ON o.id = d.outbox WHERE o.table_name = $1::text",
		      4, (const char *const[]){ t->name, count, ownership_key_name(o), t->scheduled.name }, &res, &err))
		finding_add(findings, FINDING_FAIL, NULL, "outbox %s: %s", o->name, err.message);
	else if (PQntuples(res) == 0)
		finding_add(findings, FINDING_FAIL, "run `postrider init` with these settings",
			    "outbox %s: the table is not divided into shards yet", o->name);
	else if (PQgetvalue(res, 0, 0)[0] != 't')
		finding_add(findings, FINDING_FAIL, "stop all nodes that read it, then run `postrider init` with these settings",
			    "outbox %s: the table is divided into %s shards by %s, the settings say %s by %s", o->name,
			    PQgetvalue(res, 0, 1), PQgetvalue(res, 0, 2), count, ownership_key_name(o));
	else if (PQgetvalue(res, 0, 3)[0] != 't')
		finding_add(findings, FINDING_WARN, "run `postrider init` with these settings",
			    "outbox %s: the indexes of shards are not made for scheduled rows, so claims read rows that are scheduled for"
			    " later, too", o->name);
}

const struct reader_driver reader_shards = {
	.name = "shards",
	.summary = "parts of the outbox with one owner each, who reads ahead",
	.needs_session = true,
	.divides = true,
	.reads_ahead = true,
	.reads_apart = true,
	.open = shards_open,
	.close = shards_close,
	.identity = shards_identity,
	.carries_riders = true,
	.keeps_order = shards_keep_order,
	.install_sql = shards_install_sql,
	.check = shards_check,
	.holds_until = shards_holds_until,
	.beat_ms = shards_beat_ms,
	.begin = shards_begin,
	.pollfd = shards_pollfd,
	.receive = shards_receive,
};
