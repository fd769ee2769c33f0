#include "read/settle.h"

#include <stdlib.h>

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
	buf_init(&s->releasing, PARAM_CEILING);
}

void settle_release(struct settle *s)
{
	buf_release(&s->addresses);
	buf_release(&s->entities);
	buf_release(&s->ids);
	buf_release(&s->cleared);
	buf_release(&s->releasing);
}

void settle_collect(struct settle *s, const struct exchange *x)
{
	array_begin(&s->addresses, TYPE_TID);
	array_begin(&s->entities, TYPE_TEXT);
	array_begin(&s->ids, s->id_type);
	array_begin(&s->cleared, TYPE_TEXT);
	array_begin(&s->releasing, TYPE_TEXT);
	for (uint32_t i = 0; i < x->n_done; i++) {
		const struct event *ev = x->done[i];

		if (s->by_key)
			array_add(&s->entities, ev->entity);
		else
			array_add(&s->addresses, ev->address);
		array_add(&s->ids, ev->raw_id);
		if (!window_ends_lane(ev))
			continue;
		array_add(&s->releasing, ev->lane_key);
		if (ev->retried)
			array_add(&s->cleared, ev->lane_key);
	}
	for (uint32_t i = 0; i < x->n_holds; i++)
		array_add(&s->releasing, x->holds[i].event->lane_key);
}

static bool send_holds(const struct settle *s, struct pipeline *p, const struct exchange *x, const char *number,
		       struct error *err)
{
	for (uint32_t i = 0; i < x->n_holds; i++) {
		const struct event *ev = x->holds[i].event;
		_cleanup_(mem_freep) char *attempts = mem_printf("%u", x->holds[i].attempts);
		_cleanup_(mem_freep) char *delay = mem_printf("%lld", (long long)x->holds[i].delay_ms);
		const struct param params[] = {
			slice_param(ev->lane_key),
			slice_param(ev->id),
			text_param(attempts),
			text_param(error_kind_name(ev->failure->kind)),
			text_param(ev->failure->message),
			text_param(delay),
			text_param(number),
		};

		if (!pipeline_send(p, SETTLE_HOLD, params, ARRAY_SIZE(params) - !s->marked, false, err))
			return false;
	}
	return true;
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
	    !x->rider.driver->ride(x->rider.sink, p->conn, x->done, x->n_done, &results, err))
		return false;
	pipeline_expect_guests(p, results);
	if (array_count(&s->cleared) > 0 &&
	    !pipeline_send(p, SETTLE_CLEAR, (const struct param[]){ array_param(&s->cleared) }, 1, false, err))
		return false;
	return send_holds(s, p, x, number, err) && (x->n_done == 0 || send_delete(s, p, x->n_done, number, err));
}

static bool found_all(const struct settle *s, const PGresult *res)
{
	if (PQresultStatus(res) == PGRES_TUPLES_OK)
		return PQgetvalue(res, 0, 0)[0] == 't';
	return strtoul(PQcmdTuples((PGresult *)res), NULL, 10) == s->n_rows;
}

bool settle_take(struct settle *s, struct pipeline *p, int statement, const PGresult *res, struct answer *answer)
{
	ExecStatusType status = PQresultStatus(res);

	if (statement >= SETTLE_STATEMENTS || statement == PIPELINE_SYNC)
		return false;
	if (status == PGRES_FATAL_ERROR && answer->settled) {
		pg_error(p->conn, res, p->statements[SETTLE_DELETE].doing, &answer->settle_error);
		answer->settled = false;
	}
	if (statement == SETTLE_DELETE && (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) && !found_all(s, res)) {
		answer->settled = false;
		s->by_key = true;
	}
	return true;
}
