#include "read/ownership.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/shard_list.h"
#include "pg/array.h"
#include "pg/exec.h"
#include "read/assign.h"
#include "read/pass.h"

enum { DEFAULT_LEASE_MS = 10 * 1000, LOOK_MS = 1000, RESTLESS_MS = 100, SETTLING_IN_MS = 1500 };

int64_t ownership_lease_ms(const struct outbox_config *outbox)
{
	return outbox->lease_ms > 0 ? outbox->lease_ms : DEFAULT_LEASE_MS;
}

int64_t ownership_beat_ms(const struct outbox_config *outbox)
{
	return MIN(ownership_lease_ms(outbox) / 4, LOOK_MS);
}

void ownership_init(struct ownership *o, const struct reader_env *env, int first_statement)
{
	*o = (struct ownership){ .env = env, .first_statement = first_statement };
	o->node = atomic_load(&env->node->id);
	o->began_ms = clock_ms();
	o->lease_ms = ownership_lease_ms(env->outbox);
	snprintf(o->node_text, sizeof(o->node_text), "%lld", (long long)o->node);
	snprintf(o->worker_text, sizeof(o->worker_text), "%u", env->worker);
	snprintf(o->lease_text, sizeof(o->lease_text), "%lld", (long long)o->lease_ms);
	o->n_shards = (uint32_t)env->outbox->shards.count;
	o->shards = mem_new_array(struct shard, o->n_shards);
	o->own = mem_new_array(bool, o->n_shards);
	shard_list_parse(env->outbox->shards.own, o->n_shards, o->own);
	buf_init(&o->numbers, 1 << 20);
	buf_init(&o->epochs, 1 << 20);
}

void ownership_release(struct ownership *o)
{
	PQclear(o->owners);
	buf_release(&o->numbers);
	buf_release(&o->epochs);
	free(o->shards);
	free(o->own);
}

const char *ownership_key_name(const struct outbox_config *outbox)
{
	return outbox->shards.key == SHARD_KEY_ID ? "id" : "entity";
}

bool ownership_check(const struct ownership *o, struct pipeline *p, struct error *err)
{
	const struct outbox_config *outbox = o->env->outbox;
	const char *key = ownership_key_name(outbox);
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pipeline_run(p, o->first_statement + OWNERSHIP_CHECK, NULL, 0, o->env->database->statement_timeout_ms, &res, err))
		return false;
	if (PQntuples(res) == 1 && atoll(PQgetvalue(res, 0, 0)) == outbox->shards.count &&
	    strcmp(PQgetvalue(res, 0, 1), key) == 0)
		return true;
	if (PQntuples(res) == 0)
		error_set(err, ERROR_CONFIG, "outbox %s is not divided into shards yet", outbox->name);
	else
		error_set(err, ERROR_CONFIG, "outbox %s is divided into %s shards by %s, and the settings say %lld by %s",
			  outbox->name, PQgetvalue(res, 0, 0), PQgetvalue(res, 0, 1), (long long)outbox->shards.count, key);
	return error_hint(err, "stop all nodes that read it, then run `postrider init` with these settings: it makes the index "
			       "and divides anew");
}

bool ownership_leave(const struct ownership *o, struct pipeline *p, int64_t timeout_ms, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *ignored = NULL;

	return pipeline_run(p, o->first_statement + OWNERSHIP_LEAVE,
			 (const struct param[]){ text_param(o->node_text), text_param(o->worker_text) }, 2, timeout_ms,
			 &ignored, err);
}

bool ownership_any(const struct ownership *o)
{
	return o->n_ours + o->n_leaving > 0;
}

int64_t ownership_holds_until(const struct ownership *o)
{
	int64_t until = o->renewed_ms + o->lease_ms - o->lease_ms / 10;

	return ownership_any(o) ? MIN(until, node_trusted_until(o->env->node)) : CLOCK_NEVER;
}

/* --- which are which -------------------------------------------------------------------------------------------- */

static void collect(struct ownership *o, bool (*which)(const struct shard *))
{
	array_begin(&o->numbers, TYPE_INT4);
	array_begin(&o->epochs, TYPE_INT8);
	for (uint32_t i = 0; i < o->n_shards; i++) {
		if (!which(&o->shards[i]))
			continue;
		array_add_int4(&o->numbers, (int32_t)i);
		array_add_int8(&o->epochs, o->shards[i].epoch);
	}
}

static bool is_held(const struct shard *s)
{
	return s->state != SHARD_OF_OTHERS;
}

static bool is_drained(const struct shard *s)
{
	return s->state == SHARD_LEAVING && !s->in_flight;
}

static bool is_to_take(const struct shard *s)
{
	return s->state == SHARD_OF_OTHERS && s->wanted;
}

static void count_shards(struct ownership *o)
{
	o->n_ours = o->n_leaving = 0;
	for (uint32_t i = 0; i < o->n_shards; i++) {
		o->n_ours += o->shards[i].state == SHARD_OURS;
		o->n_leaving += o->shards[i].state == SHARD_LEAVING;
	}
	o->changed = true;
}

uint32_t ownership_list(struct ownership *o, int32_t *ret)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < o->n_shards; i++)
		if (o->shards[i].state == SHARD_OURS)
			ret[n++] = (int32_t)i;
	o->changed = false;
	return n;
}

static void note_in_flight(void *arg, const struct event *ev)
{
	struct ownership *o = arg;

	/* A row that was held back and came again has no number; it counts for all, which is soon over. */
	for (uint32_t i = 0; i < o->n_shards && ev->part < 0; i++)
		o->shards[i].in_flight = true;
	if (ev->part >= 0)
		o->shards[ev->part].in_flight = true;
}

static void find_in_flight(struct ownership *o, const struct window *window)
{
	for (uint32_t i = 0; i < o->n_shards; i++)
		o->shards[i].in_flight = false;
	window_each_event(window, note_in_flight, o);
}

static void compute_wanted(struct ownership *o, const struct member *members, uint32_t n, uint32_t me, const int32_t *owners)
{
	bool wanted[PASS_PARTS_MAX];

	switch (o->env->outbox->shards.assignment) {
	case ASSIGN_DYNAMIC:
		assign_dynamic(members, n, me, owners, o->n_shards, wanted);
		break;
	case ASSIGN_RENDEZVOUS:
		assign_rendezvous(members, n, me, o->n_shards, wanted);
		break;
	case ASSIGN_STATIC:
		assign_static(o->own, o->env->worker, (uint32_t)o->env->outbox->workers, o->n_shards, wanted);
		break;
	}
	for (uint32_t i = 0; i < o->n_shards; i++)
		o->shards[i].wanted = wanted[i];
}

/* From who is there and who owns what to what we should own. */
static void think(struct ownership *o, const PGresult *res)
{
	uint32_t n = (uint32_t)PQntuples(res), me = n;
	struct member *members = mem_new_array(struct member, n);
	int32_t owners[PASS_PARTS_MAX];
	bool changed = false;

	o->waiting = false;
	for (uint32_t i = 0; i < n; i++) {
		members[i] = (struct member){ PQgetvalue(res, (int)i, 2), atoll(PQgetvalue(res, (int)i, 0)),
					      atoi(PQgetvalue(res, (int)i, 1)) };
		if (members[i].node == o->node && members[i].worker == (int32_t)o->env->worker)
			me = i;
	}
	for (uint32_t i = 0; i < o->n_shards; i++)
		owners[i] = ASSIGN_NOBODY;
	for (int i = 0; i < PQntuples(o->owners); i++) {
		int64_t node = atoll(PQgetvalue(o->owners, i, 1));
		int32_t worker = atoi(PQgetvalue(o->owners, i, 2));
		uint32_t shard = (uint32_t)atoi(PQgetvalue(o->owners, i, 0));

		/* An owner that is not among the members is still one. */
		for (uint32_t k = 0; k <= n && shard < o->n_shards; k++)
			if (k == n || (members[k].node == node && members[k].worker == worker)) {
				owners[shard] = (int32_t)k;
				break;
			}
	}
	if (me < n)
		compute_wanted(o, members, n, me, owners);
	for (uint32_t i = 0; i < o->n_shards; i++) {
		struct shard *s = &o->shards[i];
		enum shard_state state = s->state == SHARD_OF_OTHERS ? s->state : s->wanted ? SHARD_OURS : SHARD_LEAVING;

		changed |= state != s->state;
		s->state = state;
		o->waiting |= s->wanted && state == SHARD_OF_OTHERS;
		/* Trying to take what is not free would only be in vain. */
		s->wanted &= owners[i] == ASSIGN_NOBODY || s->state != SHARD_OF_OTHERS;
	}
	if (changed)
		count_shards(o);
	free(members);
}

static void take_over(struct ownership *o, const PGresult *res)
{
	for (int i = 0; i < PQntuples(res); i++) {
		struct shard *s = &o->shards[atoi(PQgetvalue(res, i, 0))];

		s->state = SHARD_OURS;
		s->epoch = atoll(PQgetvalue(res, i, 1));
	}
	if (PQntuples(res) == 0)
		return;
	o->term++;
	if (o->n_ours + o->n_leaving == 0)
		o->renewed_ms = o->renewing_ms;
	count_shards(o);
}

/* --- sending ---------------------------------------------------------------------------------------------------- */

bool ownership_send_fence(struct ownership *o, struct pipeline *p, struct error *err)
{
	collect(o, is_held);
	return pipeline_send(p, o->first_statement + OWNERSHIP_FENCE,
			     (const struct param[]){ text_param(o->node_text), text_param(o->worker_text),
						     array_param(&o->numbers), array_param(&o->epochs) },
			     4, false, err);
}

static bool send_give_up(struct ownership *o, struct pipeline *p, const struct exchange *x, struct error *err)
{
	if (o->n_leaving == 0)
		return true;
	find_in_flight(o, x->window);
	collect(o, is_drained);
	if (array_count(&o->numbers) == 0)
		return true;
	for (uint32_t i = 0; i < o->n_shards; i++)
		if (is_drained(&o->shards[i])) {
			o->shards[i].state = SHARD_OF_OTHERS;
			o->n_leaving--;
		}
	return pipeline_send(p, o->first_statement + OWNERSHIP_GIVE_UP,
			     (const struct param[]){ text_param(o->node_text), text_param(o->worker_text),
						     array_param(&o->numbers) },
			     3, false, err);
}

static bool send_take(struct ownership *o, struct pipeline *p, struct error *err)
{
	collect(o, is_to_take);
	o->taking = array_count(&o->numbers) > 0;
	if (!o->taking)
		return true;
	return pipeline_send(p, o->first_statement + OWNERSHIP_TAKE,
			     (const struct param[]){ text_param(o->node_text), text_param(o->worker_text),
						     array_param(&o->numbers), text_param(o->lease_text) },
			     4, false, err);
}

static bool send_renew(struct ownership *o, struct pipeline *p, struct error *err)
{
	collect(o, is_held);
	return pipeline_send(p, o->first_statement + OWNERSHIP_RENEW,
			     (const struct param[]){ text_param(o->node_text), text_param(o->worker_text),
						     array_param(&o->numbers), array_param(&o->epochs),
						     text_param(o->lease_text) },
			     5, false, err) &&
	       pipeline_send(p, o->first_statement + OWNERSHIP_JOIN,
			     (const struct param[]){ text_param(o->node_text), text_param(o->worker_text),
						     text_param(o->env->node->name), text_param(o->lease_text) },
			     4, false, err) &&
	       pipeline_send(p, o->first_statement + OWNERSHIP_OWNERS, NULL, 0, false, err) &&
	       pipeline_send(p, o->first_statement + OWNERSHIP_MEMBERS, NULL, 0, false, err);
}

int64_t ownership_look_again_ms(const struct ownership *o, int64_t now)
{
	bool restless = o->waiting || now - o->began_ms < SETTLING_IN_MS;

	return MIN(restless ? RESTLESS_MS : LOOK_MS, ownership_beat_ms(o->env->outbox));
}

/* Taking follows the look that showed what is free; a drained shard is given up as soon as it is. */
bool ownership_send(struct ownership *o, struct pipeline *p, const struct exchange *x, int64_t now, struct error *err)
{
	uint32_t before = p->n_expected;

	if (!send_give_up(o, p, x, err) || !send_take(o, p, err))
		return false;
	if (now - o->looked_ms >= ownership_look_again_ms(o, now) || o->taking) {
		o->renewing_ms = now;
		o->looked_ms = now;
		if (!send_renew(o, p, err))
			return false;
	}
	return p->n_expected == before || pipeline_sync(p, err);
}

/* --- receiving -------------------------------------------------------------------------------------------------- */

static bool take_renewal(struct ownership *o, PGresult *res, struct error *err)
{
	/* What was taken in this very exchange was not yet among those to renew, and is as fresh. */
	if (strtoul(PQcmdTuples(res), NULL, 10) < array_count(&o->numbers))
		return error_set(err, ERROR_LOST, "a shard has another owner");
	o->renewed_ms = o->renewing_ms;
	return true;
}

bool ownership_take(struct ownership *o, int statement, PGresult *res, struct error *err)
{
	switch (statement - o->first_statement) {
	case OWNERSHIP_TAKE:
		take_over(o, res);
		break;
	case OWNERSHIP_RENEW:
		return take_renewal(o, res, err);
	case OWNERSHIP_OWNERS:
		PQclear(o->owners);
		o->owners = PQcopyResult(res, PG_COPYRES_TUPLES);
		break;
	case OWNERSHIP_MEMBERS:
		think(o, res);
		break;
	}
	return true;
}

bool ownership_has_more_to_do(const struct ownership *o)
{
	for (uint32_t i = 0; i < o->n_shards; i++)
		if (is_to_take(&o->shards[i]))
			return true;
	return o->taking && o->n_ours > 0;
}
