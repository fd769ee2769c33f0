#include "read/settle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/exec.h"

#define PARAM_CEILING ((size_t)256 << 20)

void settle_init(struct settle *s, bool marked)
{
	*s = (struct settle){ .marked = marked };
	buf_init(&s->addresses, PARAM_CEILING);
	buf_init(&s->entities, PARAM_CEILING);
	buf_init(&s->ids, PARAM_CEILING);
	buf_init(&s->cleared, PARAM_CEILING);
	buf_init(&s->passing, PARAM_CEILING);
	buf_init(&s->releasing, PARAM_CEILING);
}

void settle_release(struct settle *s)
{
	buf_release(&s->addresses);
	buf_release(&s->entities);
	buf_release(&s->ids);
	buf_release(&s->cleared);
	buf_release(&s->passing);
	buf_release(&s->releasing);
}

/* As postrider.retry calls it: rows without an entity are together under the empty name. */
static struct slice retry_name(const struct event *ev)
{
	return ev->lane_key.ptr ? ev->lane_key : SLICE_LITERAL("");
}

void settle_collect(struct settle *s, const struct exchange *x)
{
	array_begin(&s->addresses, TYPE_TID);
	array_begin(&s->entities, TYPE_TEXT);
	array_begin(&s->ids, s->id_type);
	array_begin(&s->cleared, TYPE_TEXT);
	array_begin(&s->passing, TYPE_TEXT);
	array_begin(&s->releasing, TYPE_TEXT);
	for (uint32_t i = 0; i < x->n_done; i++) {
		const struct event *ev = x->done[i];

		if (s->by_key)
			array_add(&s->entities, ev->entity);
		else
			array_add(&s->addresses, ev->address);
		array_add(&s->ids, ev->raw_id);
		if (x->letters && ev->lane->first == ev)
			array_add(&s->passing, ev->entity.ptr ? ev->entity : SLICE_LITERAL(""));
		if (!window_ends_lane(ev))
			continue;
		array_add(&s->releasing, ev->lane_key);
		if (ev->retried)
			array_add(&s->cleared, retry_name(ev));
	}
	for (uint32_t i = 0; i < x->n_holds; i++) {
		const struct hold *h = &x->holds[i];

		array_add(&s->releasing, h->event->lane_key);
		if (hold_is_end(h))
			array_add(&s->cleared, retry_name(h->event));
	}
}

bool settle_send_hold(const struct settle *s, struct pipeline *p, const struct hold *h, const char *number,
		      struct error *err)
{
	const struct event *ev = h->event;
	_cleanup_(mem_freep) char *attempts = mem_printf("%u", h->attempts);
	_cleanup_(mem_freep) char *delay = mem_printf("%lld", (long long)h->delay_ms);
	const struct param params[] = {
		slice_param(ev->lane_key),
		slice_param(ev->id),
		text_param(attempts),
		text_param(error_kind_name(ev->failure->kind)),
		text_param(ev->failure->message),
		text_param(delay),
		text_param(h->kind == HOLD_BLOCK ? "true" : "false"),
		text_param(number),
	};

	return pipeline_send(p, SETTLE_HOLD, params, ARRAY_SIZE(params) - !s->marked, false, err);
}

static struct param nullable(struct slice s)
{
	return s.ptr ? slice_param(s) : text_param(NULL);
}

void settle_bury_params(const struct hold *h, char attempts[static 16], struct param params[static BURY_PARAMS])
{
	const struct event *ev = h->event;

	snprintf(attempts, 16, "%u", h->attempts);
	params[BURY_ENTITY] = nullable(ev->entity);
	params[BURY_LANE] = slice_param(retry_name(ev));
	params[BURY_ID] = slice_param(ev->id);
	params[BURY_MESSAGE_ID] = nullable(ev->message_id);
	params[BURY_ENTITY_TYPE] = nullable(ev->entity_type);
	params[BURY_EVENT_TYPE] = nullable(ev->event_type);
	params[BURY_TOPIC] = nullable(event_own_topic(ev));
	params[BURY_ATTEMPTS] = text_param(attempts);
	params[BURY_KIND] = text_param(error_kind_name(ev->failure->kind));
	params[BURY_ERROR] = text_param(ev->failure->message);
}

static bool send_burial(const struct settle *s, struct pipeline *p, const struct hold *h, const char *number,
			struct error *err)
{
	struct param params[BURY_PARAMS + 1] = { [BURY_PARAMS] = text_param(number) };
	char attempts[16];

	settle_bury_params(h, attempts, params);
	return pipeline_send(p, SETTLE_BURY, params, BURY_PARAMS + s->marked, false, err);
}

static bool send_skip(const struct settle *s, struct pipeline *p, const struct hold *h, const char *number,
		      struct error *err)
{
	const struct param params[] = { nullable(h->event->entity), slice_param(h->event->id), text_param(number) };

	return pipeline_send(p, SETTLE_SKIP, params, ARRAY_SIZE(params) - !s->marked, false, err);
}

static bool send_holds(const struct settle *s, struct pipeline *p, const struct exchange *x, const char *number,
		       struct error *err)
{
	for (uint32_t i = 0; i < x->n_holds; i++) {
		const struct hold *h = &x->holds[i];
		bool sent = h->kind == HOLD_BURY ? send_burial(s, p, h, number, err) :
			    h->kind == HOLD_SKIP ? send_skip(s, p, h, number, err) :
						   settle_send_hold(s, p, h, number, err);

		if (!sent)
			return false;
	}
	return true;
}

bool settle_send_clear(const struct settle *s, struct pipeline *p, struct error *err)
{
	const struct param cleared = array_param(&s->cleared);

	return array_count(&s->cleared) == 0 || pipeline_send(p, SETTLE_CLEAR, &cleared, 1, false, err);
}

bool settle_send_pass(const struct settle *s, struct pipeline *p, struct error *err)
{
	const struct param passing = array_param(&s->passing);

	return array_count(&s->passing) == 0 || pipeline_send(p, SETTLE_PASS, &passing, 1, false, err);
}

static bool send_delete(struct settle *s, struct pipeline *p, uint32_t n, const char *number, struct error *err)
{
	_cleanup_(mem_freep) char *count = mem_printf("%u", n);
	const struct param by_address[] = { array_param(&s->addresses), array_param(&s->ids), text_param(count),
					    text_param(number) };
	const struct param by_key[] = { array_param(&s->entities), array_param(&s->ids), text_param(number) };
	bool by_key_now = s->by_key;

	s->by_key = false;
	s->n_rows = n;
	return by_key_now ? pipeline_send(p, SETTLE_DELETE_BY_KEY, by_key, s->marked ? 3 : 2, false, err) :
			    pipeline_send(p, SETTLE_DELETE, by_address, s->marked ? 4 : 2, false, err);
}

bool settle_send(struct settle *s, struct pipeline *p, const struct exchange *x, const char *number, struct error *err)
{
	uint32_t results = 0;

	if (x->rider.driver && x->n_done > 0 &&
	    !x->rider.driver->ride(x->rider.sink, p->conn, x->done, x->n_done, s->by_key, &results, err))
		return false;
	pipeline_expect_guests(p, results);
	/* What is settled here stands ahead of what is buried here, and does not pass it. */
	if (!settle_send_pass(s, p, err) || !send_holds(s, p, x, number, err) || !settle_send_clear(s, p, err))
		return false;
	return array_count(&s->ids) == 0 || send_delete(s, p, array_count(&s->ids), number, err);
}

static bool found_all(const struct settle *s, const PGresult *res)
{
	if (PQresultStatus(res) == PGRES_TUPLES_OK)
		return PQgetvalue(res, 0, 0)[0] == 't';
	return strtoul(PQcmdTuples((PGresult *)res), NULL, 10) == s->n_rows;
}

/* What a rider has against settling by address: see postrider.found_all. */
static bool is_moved(const PGresult *res)
{
	const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	return sqlstate && strcmp(sqlstate, "PR002") == 0;
}

bool settle_take(struct settle *s, struct pipeline *p, int statement, const PGresult *res, struct answer *answer)
{
	ExecStatusType status = PQresultStatus(res);

	if (statement >= SETTLE_STATEMENTS || statement == PIPELINE_SYNC)
		return false;
	if (status == PGRES_FATAL_ERROR && answer->settled && is_moved(res)) {
		answer->settled = false;
		s->by_key = true;
	} else if (status == PGRES_FATAL_ERROR && answer->settled) {
		pg_error(p->conn, res, p->statements[SETTLE_DELETE].doing, &answer->settle_error);
		answer->settled = false;
	}
	if (statement == SETTLE_DELETE && (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) && !found_all(s, res)) {
		answer->settled = false;
		s->by_key = true;
	}
	return true;
}
