/* The reader `lease`: a row in postrider.claim for each entity, which others respect until it expires.
 *
 * Nothing here belongs to a session, so it works through a pooler in transaction mode, where each transaction may meet
 * another server process. There one transaction is sent at a time; on a connection of our own all travel at once.
 *
 * One exchange is one transaction, and now and then another one before it:
 *   renewal   when a quarter of the lease is gone: all that is in the window lasts for another lease. On its own, because a
 *             settle that fails must not take it back
 *   work      fence, the rider's writes, cleared retries, holds, DELETE; release; claim; read
 *
 * Why it is safe:
 *   one holder         (outbox, entity) is the key of postrider.claim. A claim inserts the row, or takes over one that has
 *                      expired, with a token of its own.
 *   nobody waits       A claim first tries a lock of its transaction on the entity, so two that want the same entity do not
 *                      wait for each other's INSERT. The statement's snapshot is older than this lock, so the entity is
 *                      looked at once more with a new one (postrider.is_free): whoever claimed and committed in between is
 *                      seen, and his row is not touched. ON CONFLICT alone would lock it, and two who release what the
 *                      other has locked deadlock. Whoever claimed, settled and released in between has left no row, and
 *                      what he deleted is gone when rows are read, because:
 *   claim, then read   Rows are read by a later statement, with a newer snapshot.
 *   delete and release are one transaction: whoever does not see the claim does not see the rows either.
 *   fence              Who settles shows the tokens. If one has ended, the transaction ends too, and everything in the
 *                      window is given up. A lease that ends after the fence, before the commit, does no harm: what is
 *                      deleted was delivered, and the next holder at most repeats it.
 *   we stop first      The lease counts for us from when the claim was sent, for others from when the server had it, and we
 *                      publish nothing in its last fifth.
 *   dead nodes         Others may bury this node and free its claims when it misses its heartbeats (keep/heart.h), so
 *                      claims last no longer than we can be sure that nobody has. Behind a pooler nobody can tell, and
 *                      nobody does.
 *
 * Claims outlive their connection. The window does not, so the first exchange of the next connection gives them back. */
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/exec.h"
#include "read/lease_sql.h"
#include "read/reader.h"
#include "read/session.h"
#include "read/settle.h"
#include "read/walk.h"

enum {
	LEASE_DEFAULT_MS = 30000,
	BEATS = 4,                      /* in a lease: it is renewed between a quarter and half of it */
	MARGIN = 5,                     /* what part of it is never used */
	LOOK_AGAIN_MS = 1000,           /* while others have entities: their leases end without a sound */
	GOODBYE_MS = 500,               /* a stop does not wait longer for claims to be given back; they expire anyway */
	TOKEN_BITS = 32,                /* that count exchanges; the upper half is random, and a connection's own */
};
#define PARAM_CEILING ((size_t)64 << 20)

static const struct walk_statements walk_statements = { ST_CLAIM, ST_READ, ST_READ_LARGE, ST_CLAIM_FRONT, ST_FRONT };

extern const struct reader_driver reader_lease;

struct reader {
	const struct reader_env *env;
	struct pipeline pipeline;
	char *identity;
	bool pooled;                    /* the server process may be another one for each transaction */
	bool may_be_buried;             /* others can see whether this node's session lives */
	struct settle settle;
	struct walk walk;
	uint64_t token;                 /* of the exchange */

	struct exchange exchange;       /* the one under way */
	const struct window *window;    /* NULL before the first exchange */
	bool fresh;                     /* claims of an earlier connection may be left */
	bool work_waits;                /* for the answer to the renewal */
	bool renewed;                   /* but not committed yet */
	uint32_t n_renewing;
	int64_t renewing_ms, sending_ms;/* when it was sent */
	int64_t expires_ms;             /* no claim on what is in the window ends before this */
	int64_t node;                   /* number of this node when the window was last empty */

	/* Parameters. */
	struct buf renewing;
	struct buf fenced, fenced_tokens;
	struct buf ended, ended_tokens; /* entities whose last row in the window is settled or held */
	struct buf idle;                /* claimed entities that had no row for us: released by the next exchange */
	uint64_t idle_token;
	struct answer answer;
};

struct number {
	char text[24];
};

static struct param number_param(struct number *n, int64_t value)
{
	snprintf(n->text, sizeof(n->text), "%lld", (long long)value);
	return text_param(n->text);
}

static int64_t lease_ms(const struct reader_env *env)
{
	return env->outbox->lease_ms > 0 ? env->outbox->lease_ms : LEASE_DEFAULT_MS;
}

static int64_t lease_beat_ms(const struct reader_env *env)
{
	return lease_ms(env) / BEATS;
}

/* --- how long claims last ------------------------------------------------------------------------------------- */

static bool holds_anything(const struct reader *r)
{
	return r->window && r->window->n_lanes > 0;
}

/* Until when nobody takes this node for dead, under the number that the claims have. */
static int64_t trusted_until(const struct reader *r)
{
	return atomic_load(&r->env->node->id) == r->node ? node_trusted_until(r->env->node) : 0;
}

static int64_t lease_holds_until(const struct reader *r)
{
	int64_t until;

	if (!holds_anything(r))
		return CLOCK_NEVER;
	until = r->expires_ms - lease_ms(r->env) / MARGIN;
	return r->may_be_buried ? MIN(until, trusted_until(r)) : until;
}

static bool may_claim(const struct reader *r)
{
	if (!r->may_be_buried)
		return atomic_load(&r->env->node->id) != 0;
	return node_is_trusted(r->env->node, r->sending_ms);
}

/* --- sending -------------------------------------------------------------------------------------------------- */

/* Each lane that is settled, in part or as a whole, has its first row here. */
static bool begins_lane(const struct event *ev)
{
	return ev->lane->first == ev;
}

static void collect_event(struct reader *r, const struct event *ev)
{
	if (begins_lane(ev)) {
		array_add(&r->fenced, ev->entity);
		array_add_int8(&r->fenced_tokens, (int64_t)ev->batch->claim);
	}
	if (window_ends_lane(ev)) {
		array_add(&r->ended, ev->entity);
		array_add_int8(&r->ended_tokens, (int64_t)ev->batch->claim);
	}
}

static void collect(struct reader *r, const struct exchange *x)
{
	array_begin(&r->fenced, TYPE_TEXT);
	array_begin(&r->fenced_tokens, TYPE_INT8);
	array_begin(&r->ended, TYPE_TEXT);
	array_begin(&r->ended_tokens, TYPE_INT8);
	for (uint32_t i = 0; i < x->n_done; i++)
		collect_event(r, x->done[i]);
	for (uint32_t i = 0; i < x->n_holds; i++)
		collect_event(r, x->holds[i].event);
}

static bool send_fence(struct reader *r, struct error *err)
{
	struct number count;
	const struct param params[] = { array_param(&r->fenced), array_param(&r->fenced_tokens),
					number_param(&count, array_count(&r->fenced)) };

	return pipeline_send(&r->pipeline, ST_FENCE, params, ARRAY_SIZE(params), false, err);
}

static bool send_release(struct reader *r, const char *number, struct error *err)
{
	struct number token;
	const struct param params[] = { array_param(&r->ended), array_param(&r->ended_tokens), text_param(number),
					array_param(&r->idle), number_param(&token, (int64_t)r->idle_token) };

	if (array_count(&r->ended) + array_count(&r->idle) == 0)
		return true;
	return pipeline_send(&r->pipeline, ST_RELEASE, params, ARRAY_SIZE(params), false, err);
}

static bool send_claim(struct reader *r, const struct exchange *x, const char *number, struct error *err)
{
	struct number node, worker, lease;
	const struct param more[] = { text_param(number), number_param(&node, atomic_load(&r->env->node->id)),
				      number_param(&worker, r->env->worker), number_param(&lease, lease_ms(r->env)),
				      array_param(&r->ended) };

	/* What we claim now others could free at once. */
	if (!may_claim(r)) {
		if (x->has_hand)
			hand_pass(r->env->hand);
		r->answer.exhausted = true;
		r->answer.look_again_ms = r->env->node->heartbeat_ms;
		return true;
	}
	return walk_send(&r->walk, &r->pipeline, x, &walk_statements, more, ARRAY_SIZE(more), err);
}

static bool send_forget(struct reader *r, struct error *err)
{
	struct number node, worker;
	const struct param params[] = { number_param(&node, atomic_load(&r->env->node->id)),
					number_param(&worker, r->env->worker) };

	r->fresh = false;
	return pipeline_send(&r->pipeline, ST_FORGET, params, ARRAY_SIZE(params), false, err);
}

static bool send_work(struct reader *r, struct error *err)
{
	const struct exchange *x = &r->exchange;
	struct number number;

	r->sending_ms = clock_ms();
	number_param(&number, (int64_t)r->token);
	settle_collect(&r->settle, x);
	walk_note_settle(&r->walk, &r->settle);
	collect(r, x);
	if (!session_send_settings(&r->pipeline, ST_SETTINGS, r->env->database, err))
		return false;
	if (r->fresh && !send_forget(r, err))
		return false;
	if (array_count(&r->fenced) > 0 &&
	    (!send_fence(r, err) || !settle_send(&r->settle, &r->pipeline, x, number.text, err)))
		return false;
	if (!send_release(r, number.text, err))
		return false;
	if (x->want_rows > 0 && !send_claim(r, x, number.text, err))
		return false;
	return pipeline_sync(&r->pipeline, err) && pipeline_flush(&r->pipeline, err);
}

/* All lanes; those that end with this exchange too, since its settle may fail. */
static void collect_lanes(struct reader *r, const struct exchange *x)
{
	array_begin(&r->renewing, TYPE_TEXT);
	window_each_lane(x->window, array_add_text, &r->renewing);
	for (uint32_t i = 0; i < x->n_done; i++)
		if (begins_lane(x->done[i]) && x->done[i]->lane->last->settling)
			array_add(&r->renewing, x->done[i]->entity);
	for (uint32_t i = 0; i < x->n_holds; i++)
		if (begins_lane(x->holds[i].event))
			array_add(&r->renewing, x->holds[i].event->entity);
}

static bool send_renewal(struct reader *r, struct error *err)
{
	struct number token, lease;
	const struct param params[] = { array_param(&r->renewing), number_param(&token, (int64_t)r->token),
					number_param(&lease, lease_ms(r->env)) };

	return session_send_settings(&r->pipeline, ST_SETTINGS, r->env->database, err) &&
	       pipeline_send(&r->pipeline, ST_RENEW, params, ARRAY_SIZE(params), false, err) &&
	       pipeline_sync(&r->pipeline, err);
}

static bool lease_begin(struct reader *r, const struct exchange *x, struct error *err)
{
	int64_t lease = lease_ms(r->env), now = clock_ms();

	r->exchange = *x;
	r->window = x->window;
	r->token++;
	r->answer = (struct answer){ .settled = true, .claim = r->token };
	if (!holds_anything(r)) {
		r->expires_ms = CLOCK_NEVER;
		r->node = atomic_load(&r->env->node->id);
	} else if (r->expires_ms - now <= lease - lease / BEATS) {
		r->renewing_ms = now;
		collect_lanes(r, x);
		r->n_renewing = array_count(&r->renewing);
		if (!send_renewal(r, err))
			return false;
		r->work_waits = r->pooled;
	}
	return r->work_waits ? pipeline_flush(&r->pipeline, err) : send_work(r, err);
}

/* --- receiving ------------------------------------------------------------------------------------------------ */

static int lease_pollfd(const struct reader *r, short *ret_events)
{
	return pipeline_pollfd(&r->pipeline, ret_events);
}

static bool take_renewal(struct reader *r, const PGresult *res, struct error *err)
{
	unsigned long n = strtoul(PQcmdTuples((PGresult *)res), NULL, 10);

	if (n < r->n_renewing)
		return error_set(err, ERROR_LOST, "could not renew claims: %lu of %u have ended, and others may have the"
				 " rows", r->n_renewing - n, r->n_renewing);
	r->renewed = true;
	return true;
}

/* True unless the claims are gone: another failure means that nothing was settled, and the rest was not tried. */
static bool take_fence(struct reader *r, const PGresult *res, struct error *err)
{
	struct error *why = &r->answer.settle_error;

	r->answer.settled = pipeline_worked(&r->pipeline, ST_FENCE, res, why);
	if (r->answer.settled || why->kind != ERROR_LOST)
		return true;
	*err = *why;
	return false;
}

static void take_sync(struct reader *r)
{
	if (r->renewed)
		r->expires_ms = r->renewing_ms + lease_ms(r->env);
	r->renewed = false;
}

/* Takes over `res`. */
static bool take_result(void *reader, int statement, PGresult *res, struct error *err)
{
	struct reader *r = reader;
	_cleanup_(pg_result_clearp) PGresult *owned = res;

	if (PQresultStatus(res) == PGRES_PIPELINE_ABORTED) {
		if (statement == ST_CLAIM || statement == ST_CLAIM_FRONT)
			walk_pass_hand(&r->walk);
		return true;
	}
	if (statement == ST_FENCE)
		return take_fence(r, res, err);
	if (settle_take(&r->settle, &r->pipeline, statement, res, &r->answer))
		return true;
	if (!pipeline_worked(&r->pipeline, statement, res, err))
		return false;
	if (walk_take_look(&r->walk, statement, res))
		return true;
	switch (statement) {
	case PIPELINE_SYNC:
		take_sync(r);
		break;
	case ST_RENEW:
		return take_renewal(r, res, err);
	case ST_RELEASE:
		array_begin(&r->idle, TYPE_TEXT);
		break;
	case ST_CLAIM:
	case ST_CLAIM_FRONT:
		walk_take_claim(&r->walk, TAKE_PTR(owned), &r->answer);
		break;
	case ST_READ:
	case ST_READ_LARGE:
		r->settle.id_type = PQftype(res, FIELD_ID);
		walk_take_rows(&r->walk, TAKE_PTR(owned), &r->answer, array_add_text, &r->idle);
		r->idle_token = r->token;
		break;
	}
	return true;
}

static void complete(struct reader *r, struct answer *ret)
{
	if (r->answer.rows && PQntuples(r->answer.rows) > 0)
		r->expires_ms = MIN(r->expires_ms, r->sending_ms + lease_ms(r->env));
	if (r->answer.exhausted && r->answer.lost > 0)
		r->answer.look_again_ms = LOOK_AGAIN_MS;
	*ret = r->answer;
	r->answer = (struct answer){ 0 };
}

static bool lease_receive(struct reader *r, bool *ret_complete, struct answer *ret, struct error *err)
{
	bool answered;

	*ret_complete = false;
	if (!pipeline_receive(&r->pipeline, take_result, r, &answered, err))
		return false;
	if (!answered)
		return true;
	if (r->work_waits) {
		r->work_waits = false;
		return send_work(r, err);
	}
	complete(r, ret);
	*ret_complete = true;
	return true;
}

/* --- opening and closing -------------------------------------------------------------------------------------- */

static bool ignore_result(void *arg _unused_, int statement _unused_, PGresult *res, struct error *err _unused_)
{
	PQclear(res);
	return true;
}

/* Best effort: what is not given back expires. */
static void say_goodbye(struct reader *r)
{
	struct error ignored;

	if (session_send_settings(&r->pipeline, ST_SETTINGS, r->env->database, &ignored) && send_forget(r, &ignored) &&
	    pipeline_sync(&r->pipeline, &ignored))
		pipeline_wait(&r->pipeline, GOODBYE_MS, ignore_result, NULL, &ignored);
}

static void lease_close(struct reader *r)
{
	if (!r)
		return;
	/* Not while the window has rows: then the connection, or the claims, failed, and rows may be on their way. */
	if (r->window && !holds_anything(r) && !pipeline_busy(&r->pipeline) && PQstatus(r->pipeline.conn) == CONNECTION_OK)
		say_goodbye(r);
	pipeline_close(&r->pipeline);
	settle_release(&r->settle);
	walk_release(&r->walk);
	buf_release(&r->renewing);
	buf_release(&r->fenced);
	buf_release(&r->fenced_tokens);
	buf_release(&r->ended);
	buf_release(&r->ended_tokens);
	buf_release(&r->idle);
	PQclear(r->answer.rows);
	free(r->identity);
	free(r);
}

static bool lease_open(const struct reader_env *env, struct reader **ret, struct error *err)
{
	struct reader *r = mem_new(struct reader);

	r->env = env;
	r->fresh = true;
	r->expires_ms = CLOCK_NEVER;
	r->token = random_seed() >> (TOKEN_BITS + 1) << TOKEN_BITS;     /* positive as a bigint */
	settle_init(&r->settle, true);
	walk_init(&r->walk, env, &walk_statements);
	buf_init(&r->renewing, PARAM_CEILING);
	buf_init(&r->fenced, PARAM_CEILING);
	buf_init(&r->fenced_tokens, PARAM_CEILING);
	buf_init(&r->ended, PARAM_CEILING);
	buf_init(&r->ended_tokens, PARAM_CEILING);
	buf_init(&r->idle, PARAM_CEILING);
	array_begin(&r->idle, TYPE_TEXT);
	if (!session_open(&reader_lease, env, lease_statements, ST_COUNT, &r->pipeline, &r->identity, err)) {
		lease_close(r);
		return false;
	}
	r->pooled = !r->pipeline.prepared;
	r->may_be_buried = !r->pooled && env->database->pooler != DATABASE_POOLER_SESSION;
	*ret = r;
	return true;
}

/* Riders prepare statements, which a pooler's server processes do not share. */
static const char *lease_identity(const struct reader *r)
{
	return r->pooled ? NULL : r->identity;
}

const struct reader_driver reader_lease = {
	.name = "lease",
	.takes_turns = true,
	.summary = "a claim per entity in a table, renewed while in use; works through PgBouncer in transaction mode",
	.entities_max = 2 * WALK_ENTITIES_MAX,
	.open = lease_open,
	.close = lease_close,
	.identity = lease_identity,
	.carries_riders = true,
	.holds_until = lease_holds_until,
	.beat_ms = lease_beat_ms,
	.begin = lease_begin,
	.pollfd = lease_pollfd,
	.receive = lease_receive,
};
