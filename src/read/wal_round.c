#include "read/wal_round.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/exec.h"
#include "relay/bell.h"
#include "relay/field.h"

#define PARAM_CEILING ((size_t)256 << 20)
#define NEVER_AGAIN_MS ((int64_t)100 * 365 * 24 * 3600 * 1000)  /* for what only a person can mend */

enum { DUE_BITS = 24 };                 /* of numbers in the table: rows that are parked between two events of the log */
enum { NO_PART = -1, DURABLE_MS = 1000, PACE_MS = 1 };

void round_init(struct round *r, const struct reader_env *env, const char *slot, struct flow *flow,
		struct parking *parking, uint64_t durable_lsn, bool backlog)
{
	*r = (struct round){
		.env = env,
		.slot = slot,
		.flow = flow,
		.parking = parking,
		.backlog = backlog,
		.durable_lsn = durable_lsn,
		.retained_bytes = -1,
	};
	wal_schedule_init(&r->schedule, env);
	wal_page_init(&r->page, env->table);
	r->scratch = mem_new_array(struct slice, (size_t)r->page.n_fields);
	buf_init(&r->behind, PARAM_CEILING);
	buf_init(&r->xids, PARAM_CEILING);
	buf_init(&r->ids, PARAM_CEILING);
	buf_init(&r->entities, PARAM_CEILING);
	buf_init(&r->parked_numbers, PARAM_CEILING);
	buf_init(&r->backlog_numbers, PARAM_CEILING);
	buf_init(&r->fields, PARAM_CEILING);
	buf_init(&r->due, PARAM_CEILING);
}

static void forget_holds(struct round *r)
{
	for (uint32_t i = 0; i < r->n_holds; i++)
		free(r->holds[i].row_id);
	r->n_holds = 0;
}

void round_release(struct round *r)
{
	if (!r->env)
		return;
	forget_holds(r);
	wal_schedule_release(&r->schedule);
	wal_page_release(&r->page);
	buf_release(&r->behind);
	buf_release(&r->xids);
	buf_release(&r->ids);
	buf_release(&r->entities);
	buf_release(&r->parked_numbers);
	buf_release(&r->backlog_numbers);
	buf_release(&r->fields);
	buf_release(&r->due);
	PQclear(r->list);
	free(r->scratch);
	free(r->numbers);
	free(r->holds);
	free(r->passed);
	*r = (struct round){ 0 };
}

static bool keep_result(void *kept, int statement, PGresult *res, struct error *err _unused_)
{
	PGresult **to = kept;

	if (statement == ROUND_RECALL)
		*to = res;
	else
		PQclear(res);
	return true;
}

/* Events that were counted in another way, with messages or without them, are not those that are counted now. */
static bool recall(struct round *r, struct pool *p, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	struct slice behind;

	if (!pipeline_send(&p->pipeline, ROUND_RECALL, NULL, 0, true, err) || !pipeline_sync(&p->pipeline, err) ||
	    !pipeline_wait(&p->pipeline, p->database.statement_timeout_ms, keep_result, &res, err))
		return false;
	behind = field_raw(res, 0, 0);
	tally_recall(&r->flow->tally, behind.ptr, behind.len);
	if ((PQgetvalue(res, 0, 1)[0] != 0) != r->env->outbox->wal.messages)
		tally_forget_part(&r->flow->tally);
	return true;
}

/* What the database has of parked entities: see ROUND_LIST_PARKED. */
static void take_list(struct round *r, const PGresult *res)
{
	int64_t now = clock_ms();

	parking_begin_list(r->parking);
	for (int i = 0; i < PQntuples(res); i++)
		parking_list(r->parking, &(struct parked){
						 .entity = field_raw(res, i, 0),
						 .row_id = field_raw(res, i, 1),
						 .attempts = (uint32_t)strtoul(PQgetvalue(res, i, 2), NULL, 10),
						 .due_ms = now + atoll(PQgetvalue(res, i, 3)),
						 .stays = PQgetvalue(res, i, 4)[0] == 't',
					 });
	parking_end_list(r->parking, now);
}

bool round_open(struct round *r, struct pool *p, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	r->steers = bell_steers(r->env->bell);
	if (!recall(r, p, err) ||
	    !pipeline_run(&p->pipeline, ROUND_LIST_PARKED, NULL, 0, p->database.statement_timeout_ms, &res, err))
		return false;
	take_list(r, res);
	for (int i = 0; i < PQntuples(res); i++)
		r->parked_before = MAX(r->parked_before, atoll(PQgetvalue(res, i, 5)));
	return true;
}

/* --- what goes into it -------------------------------------------------------------------------------------------- */

static void add_number(struct round *r, uint64_t number)
{
	r->numbers = mem_one_more(r->numbers, r->n_numbers, &r->numbers_room, sizeof(*r->numbers));
	r->numbers[r->n_numbers++] = number;
}

static bool is_in_table(enum origin origin)
{
	return origin == ORIGIN_LOG || origin == ORIGIN_BACKLOG || origin == ORIGIN_PARKED;
}

static bool is_parked(enum origin origin)
{
	return origin == ORIGIN_PARKED || origin == ORIGIN_PARKED_MESSAGE;
}

/* The entity of an event, as it is called among those that are parked. */
static struct slice entity_of(const struct event *ev)
{
	return ev->raw_entity.ptr ? ev->raw_entity : SLICE_LITERAL("");
}

static void add_done(struct round *r, const struct event *ev)
{
	enum origin origin;
	int64_t number = flow_origin(ev->address, &origin);

	if (is_in_table(origin) && r->env->outbox->published != PUBLISHED_KEEP)
		array_add(&r->ids, ev->id);
	if (is_parked(origin)) {
		array_add(&r->entities, entity_of(ev));
		array_add_int8(&r->parked_numbers, number);
		r->passed = mem_one_more(r->passed, r->n_passed, &r->passed_room, sizeof(*r->passed));
		r->passed[r->n_passed++] = parking_find(r->parking, entity_of(ev));
		return;
	}
	if (origin == ORIGIN_BACKLOG)
		array_add_int8(&r->backlog_numbers, number);
	add_number(r, flow_number(r->flow, ev->part));
}

static void add_hold(struct round *r, const struct hold *h)
{
	enum origin origin;
	struct parked *entity = parking_add(r->parking, entity_of(h->event));

	flow_origin(h->event->address, &origin);
	r->holds = mem_one_more(r->holds, r->n_holds, &r->holds_room, sizeof(*r->holds));
	r->holds[r->n_holds++] = (struct round_hold){
		.entity = entity,
		.from_table = is_parked(origin),
		.row_id = hold_is_end(h) ? NULL : mem_printf("%.*s", (int)h->event->id.len, h->event->id.ptr),
		.attempts = h->attempts,
		.delay_ms = h->delay_ms,
	};
	if (!is_parked(origin))
		flow_park_from(r->flow, flow_number(r->flow, h->event->part), h->event->raw_entity, entity);
}

static void collect(struct round *r, struct pool *p)
{
	array_begin(&r->ids, TYPE_TEXT);
	array_begin(&r->entities, TYPE_TEXT);
	array_begin(&r->parked_numbers, TYPE_INT8);
	array_begin(&r->backlog_numbers, TYPE_INT8);
	r->n_numbers = r->n_passed = 0;
	forget_holds(r);
	for (uint32_t i = 0; i < p->n_channels; i++) {
		struct channel *c = &p->channels[i];

		r->sent[i] = c->state == CHANNEL_ASKED && c->has_settle;
		if (!r->sent[i])
			continue;
		c->state = CHANNEL_SENT;
		for (uint32_t k = 0; k < c->exchange.n_done; k++)
			add_done(r, c->exchange.done[k]);
		for (uint32_t k = 0; k < c->exchange.n_holds; k++)
			add_hold(r, &c->exchange.holds[k]);
	}
	r->n_to_park = r->flow->n_to_park;
	r->n_refused = r->flow->n_refused;
	r->n_due = wal_schedule_rows(&r->schedule);
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* Events are parked in the order of the log, whenever each of them is; and rows whose time has come in between, behind all
 * that had come by then. */
static int64_t number_in_table(const struct round *r, uint64_t number)
{
	return r->parked_before + (int64_t)((number + 1) << DUE_BITS);
}

static int64_t number_of_due(struct round *r)
{
	return r->parked_before + (int64_t)(r->flow->tally.next << DUE_BITS) + (int64_t)(++r->n_parked_due & ((1 << DUE_BITS) - 1));
}

static bool send_park(struct round *r, struct pool *p, const PGresult *rows, int row, bool is_message, int64_t number,
		      struct error *err)
{
	_cleanup_(mem_freep) char *n = mem_printf("%lld", (long long)number);

	array_begin(&r->fields, TYPE_BYTEA);
	for (int i = 0; i < r->page.n_fields; i++)
		array_add(&r->fields, field_raw(rows, row, i));
	return pipeline_send(&p->pipeline, ROUND_PARK,
			     (const struct param[]){ slice_param(wal_schedule_entity(rows, row)),
						     slice_param(field_raw(rows, row, FIELD_ID)), array_param(&r->fields),
						     text_param(is_message ? "true" : "false"), text_param(n) },
			     5, false, err);
}

static bool send_park_row(struct round *r, struct pool *p, uint64_t number, struct error *err)
{
	const PGresult *rows;
	enum origin origin;
	int64_t place;
	int row;

	flow_find(r->flow, number, &rows, &row);
	place = flow_origin(field_raw(rows, row, r->page.n_fields + 1), &origin);
	if (origin == ORIGIN_BACKLOG)
		array_add_int8(&r->backlog_numbers, place);
	return send_park(r, p, rows, row, origin == ORIGIN_MESSAGE, number_in_table(r, number), err);
}

/* A message that makes no event has no fields but its content, and an entity of its own, which is never tried again. */
static bool send_park_refused(struct round *r, struct pool *p, const struct flow_refused *m, struct error *err)
{
	_cleanup_(mem_freep) char *entity = mem_printf("message %s", m->lsn);
	_cleanup_(mem_freep) char *delay = mem_printf("%lld", (long long)NEVER_AGAIN_MS);
	_cleanup_(mem_freep) char *n = mem_printf("%lld", (long long)number_in_table(r, m->number));

	array_begin(&r->fields, TYPE_BYTEA);
	for (int i = 0; i < r->page.n_fields; i++)
		array_add(&r->fields, i == FIELD_PAYLOAD ? m->content : SLICE_NULL);
	return pipeline_send(&p->pipeline, ROUND_PARK,
			     (const struct param[]){ text_param(entity), text_param(m->lsn), array_param(&r->fields),
						     text_param("true"), text_param(n) },
			     5, false, err) &&
	       pipeline_send(&p->pipeline, SETTLE_HOLD,
			     (const struct param[]){ text_param(entity), text_param(m->lsn), text_param("1"),
						     text_param(error_kind_name(m->why.kind)), text_param(m->why.message),
						     text_param(delay), text_param("true") },
			     7, false, err);
}

static bool send_parking(struct round *r, struct pool *p, struct error *err)
{
	for (uint32_t i = 0; i < r->n_to_park; i++)
		if (!send_park_row(r, p, r->flow->to_park[i], err))
			return false;
	for (uint32_t i = 0; i < r->n_refused; i++)
		if (!send_park_refused(r, p, &r->flow->refused[i], err))
			return false;
	for (uint32_t i = 0; i < r->n_due; i++)
		if (!send_park(r, p, r->schedule.rows, (int)i, false, number_of_due(r), err))
			return false;
	return true;
}

/* An event that is given up was parked before, if only just now, and is taken from there: those behind it stay. */
static bool send_end(const struct round *r, struct pool *p, const struct hold *h, struct error *err)
{
	struct param params[BURY_PARAMS + 1];
	char attempts[16];
	enum origin origin;

	flow_origin(h->event->address, &origin);
	settle_bury_params(h, attempts, params);
	params[BURY_ENTITY] = params[BURY_LANE] = slice_param(entity_of(h->event));
	params[BURY_PARAMS] =
		text_param(is_in_table(origin) && r->env->outbox->published != PUBLISHED_KEEP ? "true" : "false");
	if (h->kind == HOLD_BURY)
		return pipeline_send(&p->pipeline, ROUND_BURY, params, BURY_PARAMS + 1, false, err);
	return pipeline_send(&p->pipeline, ROUND_SKIP,
			     (const struct param[]){ params[BURY_ENTITY], params[BURY_ID], params[BURY_PARAMS] }, 3, false, err);
}

/* Refusals, and entities that are no longer held back: what every reader records in postrider.retry. */
static bool send_holds(const struct round *r, struct pool *p, const struct channel *c, struct error *err)
{
	if (!settle_send_pass(&c->settle, &p->pipeline, err))
		return false;
	for (uint32_t i = 0; i < c->exchange.n_holds; i++) {
		const struct hold *h = &c->exchange.holds[i];

		if (hold_is_end(h) ? !send_end(r, p, h, err) : !settle_send_hold(&c->settle, &p->pipeline, h, NULL, err))
			return false;
	}
	return settle_send_clear(&c->settle, &p->pipeline, err);
}

static bool send_all_holds(struct round *r, struct pool *p, struct error *err)
{
	for (uint32_t i = 0; i < p->n_channels; i++)
		if (r->sent[i] && !send_holds(r, p, &p->channels[i], err))
			return false;
	return true;
}

/* Rows that are to be deleted now, or parked and deleted later, must be visible by then. */
static bool send_await(struct round *r, struct pool *p, struct error *err)
{
	uint32_t last = 0;

	if (r->env->outbox->published == PUBLISHED_KEEP)
		return true;
	array_begin(&r->xids, TYPE_INT8);
	for (uint32_t i = 0; i < r->n_numbers + r->n_to_park; i++) {
		uint32_t xid = tally_xid(&r->flow->tally,
					 i < r->n_numbers ? r->numbers[i] : r->flow->to_park[i - r->n_numbers]);

		if (xid != 0 && xid != last)
			array_add_int8(&r->xids, xid);
		last = xid;
	}
	return array_count(&r->xids) == 0 ||
	       pipeline_send(&p->pipeline, ROUND_AWAIT, (const struct param[]){ array_param(&r->xids) }, 1, false, err);
}

static bool send_arrays(struct round *r, struct pool *p, struct error *err)
{
	const struct param ids = array_param(&r->ids), backlog = array_param(&r->backlog_numbers);
	const struct param parked[] = { array_param(&r->entities), array_param(&r->parked_numbers) };

	if (array_count(&r->ids) > 0 && !pipeline_send(&p->pipeline, ROUND_DELETE, &ids, 1, false, err))
		return false;
	if (array_count(&r->entities) > 0 && !pipeline_send(&p->pipeline, ROUND_DELETE_PARKED, parked, 2, false, err))
		return false;
	return array_count(&r->backlog_numbers) == 0 ||
	       pipeline_send(&p->pipeline, ROUND_DELETE_BACKLOG, &backlog, 1, false, err);
}

static struct tally_place place_after(struct round *r)
{
	uint32_t before = r->n_numbers;
	struct tally_place place;

	for (uint32_t i = 0; i < r->n_to_park; i++)
		add_number(r, r->flow->to_park[i]);
	for (uint32_t i = 0; i < r->n_refused; i++)
		add_number(r, r->flow->refused[i].number);
	place = tally_preview(&r->flow->tally, r->numbers, r->n_numbers, &r->behind);
	r->n_numbers = before;
	return place;
}

static bool send_place(struct round *r, struct pool *p, struct error *err)
{
	char confirmed[WAL_LSN_TEXT], transaction[WAL_LSN_TEXT], rows[24];
	const struct param behind = { r->behind.data ? r->behind.data : "", r->behind.len, true };

	wal_lsn_write(confirmed, r->place.confirmed_lsn);
	wal_lsn_write(transaction, r->place.transaction_lsn);
	snprintf(rows, sizeof(rows), "%llu", (unsigned long long)r->place.transaction_rows);
	return pipeline_send(&p->pipeline, ROUND_REMEMBER,
			     (const struct param[]){ text_param(confirmed),
						     text_param(r->place.transaction_lsn > 0 ? transaction : NULL),
						     text_param(rows),
						     behind,
						     text_param(r->env->outbox->wal.messages ? "true" : "false") },
			     5, false, err);
}

static bool is_beat_due(const struct round *r, int64_t now_ms)
{
	return now_ms - r->heartbeat_ms >= r->env->outbox->wal.heartbeat_ms;
}

/* The slot may forget only what is surely settled, so now and then a place has to be on the disk: soon when something was
 * settled, and with each heartbeat. Not more often: writing it down is something in the log, too. */
static bool is_durable_due(const struct round *r, int64_t now_ms)
{
	return !r->backlog && ((r->dirty && now_ms - r->durable_ms >= DURABLE_MS) || is_beat_due(r, now_ms));
}

static bool send_settle(struct round *r, struct pool *p, int64_t now_ms, struct error *err)
{
	r->durable = is_durable_due(r, now_ms);
	r->settles = r->n_numbers + r->n_to_park + r->n_refused + r->n_due + r->n_passed + r->n_holds > 0 || r->durable;
	r->settled = true;
	r->settling = r->settles;
	if (!r->settles)
		return true;
	r->place = place_after(r);
	if (r->durable && !pipeline_send(&p->pipeline, ROUND_DURABLE, NULL, 0, false, err))
		return false;
	return send_await(r, p, err) && send_parking(r, p, err) && send_all_holds(r, p, err) && send_arrays(r, p, err) &&
	       (r->backlog || send_place(r, p, err)) && pipeline_sync(&p->pipeline, err);
}

static bool send_read_parked(struct round *r, struct pool *p, int64_t now_ms, struct error *err)
{
	_cleanup_(mem_freep) char *each = mem_printf("%lld", (long long)r->env->outbox->entity_max_rows);

	r->n_fetching = parking_due(r->parking, now_ms, r->fetching, ROUND_FETCH_MAX);
	if (r->n_fetching == 0)
		return true;
	array_begin(&r->due, TYPE_TEXT);
	for (uint32_t i = 0; i < r->n_fetching; i++)
		array_add(&r->due, r->fetching[i]->entity);
	return pipeline_send(&p->pipeline, ROUND_READ_PARKED,
			     (const struct param[]){ array_param(&r->due), text_param(each) }, 2, true, err);
}

/* Rows from before the slot are over when all of them are settled: then what is left of the list is of rows that somebody
 * deleted, and the log may follow. */
static bool wants_backlog(const struct round *r)
{
	return r->backlog && (r->backlog_read ? r->flow->n_pages == 0 : !flow_is_full(r->flow));
}

static bool send_read_backlog(struct round *r, struct pool *p, struct error *err)
{
	_cleanup_(mem_freep) char *after = mem_printf("%lld", (long long)r->backlog_after);
	_cleanup_(mem_freep) char *rows = mem_printf("%lld", (long long)r->env->outbox->batch_max);

	if (!wants_backlog(r))
		return true;
	if (r->backlog_read)
		return pipeline_send(&p->pipeline, ROUND_END_BACKLOG, NULL, 0, false, err);
	return pipeline_send(&p->pipeline, ROUND_READ_BACKLOG,
			     (const struct param[]){ text_param(after), text_param(rows) }, 2, false, err);
}

static int64_t look_ms(const struct round *r)
{
	return r->backlog ? CLOCK_NEVER : wal_schedule_look_ms(&r->schedule, r->flow->n_rescheduled > 0);
}

/* Rows that are due. Those that the log has shown must be visible by then, or nobody would know of their time. */
static bool send_look(struct round *r, struct pool *p, int64_t now_ms, struct error *err)
{
	_cleanup_(mem_freep) char *rows = mem_printf("%lld", (long long)r->env->outbox->batch_max);

	if (now_ms < look_ms(r))
		return true;
	r->schedule.look_ms = CLOCK_NEVER;
	r->schedule.looked_ms = now_ms;
	array_begin(&r->xids, TYPE_INT8);
	for (uint32_t i = 0; i < r->flow->n_rescheduled; i++)
		array_add_int8(&r->xids, r->flow->rescheduled[i]);
	if (r->flow->n_rescheduled > 0 &&
	    !pipeline_send(&p->pipeline, ROUND_AWAIT, (const struct param[]){ array_param(&r->xids) }, 1, false, err))
		return false;
	r->flow->n_rescheduled = 0;
	return pipeline_send(&p->pipeline, ROUND_READ_DUE, (const struct param[]){ text_param(rows) }, 1, false, err) &&
	       pipeline_send(&p->pipeline, ROUND_NEXT_DUE, NULL, 0, false, err);
}

static bool send_heartbeat(struct round *r, struct pool *p, int64_t now_ms, struct error *err)
{
	if (!is_beat_due(r, now_ms))
		return true;
	r->heartbeat_ms = now_ms;
	return pipeline_send(&p->pipeline, ROUND_HEARTBEAT, NULL, 0, false, err) &&
	       pipeline_send(&p->pipeline, ROUND_RETAINED, (const struct param[]){ text_param(r->slot) }, 1, false, err);
}

/* A person has changed what is parked. */
static bool wants_list(const struct round *r)
{
	return bell_steers(r->env->bell) != r->steers;
}

static bool send_list(struct round *r, struct pool *p, struct error *err)
{
	if (!wants_list(r))
		return true;
	r->steers = bell_steers(r->env->bell);
	return pipeline_send(&p->pipeline, ROUND_LIST_PARKED, NULL, 0, false, err);
}

static bool has_settle(const struct pool *p)
{
	for (uint32_t i = 0; i < p->n_channels; i++)
		if (p->channels[i].state == CHANNEL_ASKED && p->channels[i].has_settle)
			return true;
	return false;
}

int64_t round_due_ms(const struct round *r, const struct pool *p, bool may_read)
{
	/* Even with nothing to do now and then: it shows the server that we are not frozen. */
	int64_t due = r->sent_ms + r->env->database->idle_session_timeout_ms / 3;

	if (r->under_way)
		return CLOCK_NEVER;
	if (r->flow->n_to_park + r->flow->n_refused + wal_schedule_rows(&r->schedule) > 0 ||
	    (may_read && wants_backlog(r)) || wants_list(r))
		return 0;
	due = MIN(due, r->heartbeat_ms + r->env->outbox->wal.heartbeat_ms);
	/* Settles wait a moment for each other: nobody waits for them. */
	if (has_settle(p))
		due = MIN(due, r->sent_ms + PACE_MS);
	if (r->dirty && !r->backlog)
		due = MIN(due, r->durable_ms + DURABLE_MS);
	return may_read ? MIN(due, MIN(parking_next_ms(r->parking), look_ms(r))) : due;
}

bool round_begin(struct round *r, struct pool *p, bool may_read, int64_t now_ms, struct error *err)
{
	if (now_ms < round_due_ms(r, p, may_read))
		return true;
	r->under_way = true;
	r->sent_ms = now_ms;
	p->round++;
	collect(r, p);
	return send_settle(r, p, now_ms, err) &&
	       (!may_read || (send_read_parked(r, p, now_ms, err) && send_read_backlog(r, p, err) &&
			      send_look(r, p, now_ms, err))) &&
	       send_list(r, p, err) && send_heartbeat(r, p, now_ms, err) && pipeline_sync(&p->pipeline, err) &&
	       pipeline_flush(&p->pipeline, err);
}

/* --- receiving ------------------------------------------------------------------------------------------------------ */

static void note_failure(struct round *r, struct pool *p, int statement, const PGresult *res)
{
	if (PQresultStatus(res) != PGRES_FATAL_ERROR || !r->settled)
		return;
	pg_error(p->pipeline.conn, res, p->pipeline.statements[statement].doing, &r->settle_error);
	r->settled = false;
}

/* The events of parked entities, and entities of which there are none left. */
static void deal_parked(struct round *r, struct pool *p, const PGresult *res)
{
	struct retry retries[ROUND_FETCH_MAX];
	uint32_t n_retries = 0;
	int n_fields = r->page.n_fields;

	for (int row = 0; row < PQntuples(res); row++) {
		struct parked *e = parking_find(r->parking, field_raw(res, row, n_fields));

		for (int i = 0; i < n_fields; i++)
			r->scratch[i] = field_raw(res, row, i);
		wal_page_add_fields(&r->page, r->scratch, NO_PART, field_raw(res, row, n_fields + 1));
		if (e->in_flight++ == 0 && e->row_id.ptr)
			retries[n_retries++] = (struct retry){ e->entity, e->row_id, e->attempts };
	}
	if (r->page.n_rows > 0)
		shared_rows_release(pool_deal(p, wal_page_take(&r->page), NULL, false, retries, n_retries));
	for (uint32_t i = 0; i < r->n_fetching; i++) {
		r->fetching[i]->fetching = false;
		if (r->fetching[i]->in_flight > 0)
			continue;
		if (r->fetching[i]->leaving_log > 0)
			r->fetching[i]->due_ms = 0;
		else
			parking_remove(r->parking, r->fetching[i]);
	}
	r->n_fetching = 0;
}

static bool take_backlog(struct round *r, struct pool *p, const PGresult *res, struct error *err)
{
	int n = PQntuples(res);

	r->backlog_read = n == 0;
	if (n == 0)
		return true;
	r->backlog_after = atoll(PQgetvalue(res, n - 1, r->page.n_fields));
	if (!flow_take_backlog(r->flow, res, err))
		return false;
	flow_deal(r->flow, p, r->parking);
	return true;
}

static void take_retained(struct round *r, const PGresult *res)
{
	r->retained_bytes = PQntuples(res) > 0 ? atoll(PQgetvalue(res, 0, 0)) : -1;
	snprintf(r->wal_status, sizeof(r->wal_status), "%s", PQntuples(res) > 0 ? PQgetvalue(res, 0, 1) : "gone");
	r->n_looks++;
	r->unpublished = PQntuples(res) > 0 && PQgetvalue(res, 0, 2)[0] != 't';
}

static bool take_result(struct round *r, struct pool *p, int statement, PGresult *res, struct error *err)
{
	if (r->settling) {
		if (statement == PIPELINE_SYNC)
			r->settling = false;
		else
			note_failure(r, p, statement, res);
		return true;
	}
	if (!pipeline_worked(&p->pipeline, statement, res, err))
		return false;
	switch (statement) {
	case ROUND_READ_PARKED:
		deal_parked(r, p, res);
		break;
	case ROUND_READ_BACKLOG:
		return take_backlog(r, p, res, err);
	case ROUND_END_BACKLOG:
		flow_end_backlog(r->flow);
		r->backlog = false;
		break;
	case ROUND_READ_DUE:
		return wal_schedule_take(&r->schedule, r->parking, res, err);
	case ROUND_NEXT_DUE:
		wal_schedule_take_next(&r->schedule, res, clock_ms());
		break;
	case ROUND_RETAINED:
		take_retained(r, res);
		break;
	case ROUND_LIST_PARKED:
		PQclear(r->list);
		r->list = PQcopyResult(res, PG_COPYRES_ATTRS | PG_COPYRES_TUPLES);
		mem_must(r->list);
		break;
	}
	return true;
}

/* What the settling transaction did is so. */
static void conclude(struct round *r, int64_t now_ms)
{
	for (uint32_t i = 0; i < r->n_passed; i++)
		if (--r->passed[i]->in_flight == 0)
			parking_set_refused(r->passed[i], SLICE_NULL, 0, parking_due_ms(r->passed[i], now_ms));
	/* Due rows of an entity may be in flight behind a row of the log that was refused, and left the window with it. */
	for (uint32_t i = 0; i < r->n_holds; i++)
		r->holds[i].entity->in_flight = 0;
	for (uint32_t i = 0; i < r->n_holds; i++) {
		struct round_hold *h = &r->holds[i];

		if (h->from_table)
			h->entity->in_flight = 0;
		parking_set_refused(h->entity, h->row_id ? slice_of(h->row_id) : SLICE_NULL, h->row_id ? h->attempts : 0,
				    parking_due_ms(h->entity, now_ms + h->delay_ms));
	}
	for (uint32_t i = 0; i < r->n_to_park; i++) {
		const PGresult *rows;
		int row;

		flow_find(r->flow, r->flow->to_park[i], &rows, &row);
		parking_find(r->parking, field_raw(rows, row, FIELD_ENTITY))->leaving_log--;
	}
	flow_settled(r->flow, r->numbers, r->n_numbers);
	flow_parked(r->flow, r->n_to_park);
	flow_refused_settled(r->flow, r->n_refused);
	wal_schedule_published(&r->schedule, r->n_passed);
	if (r->n_due > 0)
		wal_schedule_parked(&r->schedule, r->parking, now_ms);
	r->dirty = !r->durable;
	if (r->durable) {
		r->durable_lsn = r->place.confirmed_lsn;
		r->durable_ms = r->sent_ms;
	}
}

static void finish(struct round *r, struct pool *p)
{
	r->under_way = false;
	if (r->settles && r->settled)
		conclude(r, clock_ms());
	/* It was read behind what this round has settled. */
	if (r->list)
		take_list(r, r->list);
	PQclear(r->list);
	r->list = NULL;
	p->sent_ms = r->sent_ms;
	for (uint32_t i = 0; i < p->n_channels; i++) {
		struct channel *c = &p->channels[i];

		if (!r->sent[i] || c->state != CHANNEL_SENT)
			continue;
		c->answer = (struct answer){ .settled = r->settled, .settle_error = r->settle_error };
		if (r->settled)
			channel_note_settled(c, p->round);
		pool_answer_one(p, c, false);
	}
	pool_ring(p);
}

bool round_receive(struct round *r, struct pool *p, struct error *err)
{
	bool ok = pipeline_read(&p->pipeline, err);

	while (ok && r->under_way) {
		_cleanup_(pg_result_clearp) PGresult *res = NULL;
		int statement;

		ok = pipeline_next(&p->pipeline, &statement, &res, err);
		if (!ok || !res)
			break;
		pthread_mutex_lock(&p->lock);
		ok = take_result(r, p, statement, res, err);
		if (ok && !pipeline_busy(&p->pipeline))
			finish(r, p);
		pthread_mutex_unlock(&p->lock);
	}
	return ok;
}
