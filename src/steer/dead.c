#include "steer/dead.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/mem.h"
#include "pg/exec.h"

#define PARAM_CEILING ((size_t)1 << 20)

/* --- which letters ------------------------------------------------------------------------------------------------ */

enum { FILTER_PARAMS = 9 };

/* $1 numbers of outboxes, $2 their names, $3 letters, $4 entity, $5 type, $6 part of the error, $7 kind, $8 since, $9 until */
#define LETTERS                                                                                                 \
	" FROM postrider.dead_letter d JOIN unnest($1::int[], $2::text[]) b(number, name) ON b.number = d.outbox" \
	" WHERE ($3::bigint[] IS NULL OR d.id = ANY ($3::bigint[])) AND ($4::text IS NULL OR d.entity = $4::text)" \
	" AND ($5::text IS NULL OR d.event_type = $5::text)"                                                    \
	" AND ($6::text IS NULL OR position(lower($6::text) IN lower(d.error)) > 0)"                            \
	" AND ($7::text IS NULL OR d.kind = $7::text) AND ($8::timestamptz IS NULL OR d.died_at >= $8::timestamptz)" \
	" AND ($9::timestamptz IS NULL OR d.died_at <= $9::timestamptz)"

#define OF_PAGE LETTERS " AND d.id > $10::bigint AND d.id <= $11::bigint ORDER BY d.id LIMIT $12::int"

static const char sql_count[] =
	"SELECT count(*), count(d.passed_at), coalesce(max(d.id), 0)" LETTERS;

static const char sql_page[] =
	"SELECT d.id, b.name, b.number, d.entity, d.row_id, d.event_type, d.topic, d.attempts, d.kind, d.error, "
	PG_RFC3339("d.died_at", "") ", greatest((extract(epoch FROM clock_timestamp() - d.died_at) * 1000)::bigint, 0), "
	PG_RFC3339("d.passed_at", "") ","
	" json_build_object('id', d.id, 'outbox', b.name, 'entity', d.entity, 'row', d.row_id, 'message_id', d.message_id,"
	"   'entity_type', d.entity_type, 'event_type', d.event_type, 'topic', d.topic, 'attempts', d.attempts,"
	"   'kind', d.kind, 'error', d.error, 'first_failed_at', " PG_RFC3339("d.first_failed_at", ".MS") ","
	"   'died_at', " PG_RFC3339("d.died_at", ".MS") ", 'passed_at', " PG_RFC3339("d.passed_at", ".MS") "),"
	" d.row" OF_PAGE;

static const char sql_drop[] =
	"WITH page AS (SELECT d.id" OF_PAGE "), gone AS (DELETE FROM postrider.dead_letter d USING page p WHERE d.id = p.id"
	" RETURNING d.id) SELECT (SELECT count(*) FROM gone), (SELECT max(p.id) FROM page p)";

/* The lists of a filter, in the form of parameters. */
struct filter_lists {
	struct buf numbers, names;
};

static void lists_release(struct filter_lists *l)
{
	buf_release(&l->numbers);
	buf_release(&l->names);
}

static void fill_params(const struct dead_filter *f, struct filter_lists *l, const char *params[FILTER_PARAMS])
{
	buf_init(&l->numbers, PARAM_CEILING);
	buf_init(&l->names, PARAM_CEILING);
	buf_add_char(&l->numbers, '{');
	buf_add_char(&l->names, '{');
	for (size_t i = 0; i < f->n_targets; i++) {
		buf_printf(&l->numbers, "%s%d", i ? "," : "", f->targets[i].number);
		buf_add_str(&l->names, i ? "," : "");
		buf_add_array_element(&l->names, slice_of(f->targets[i].config->name));
	}
	buf_add_char(&l->numbers, '}');
	buf_add_char(&l->names, '}');
	memcpy(params, (const char *const[FILTER_PARAMS]){ buf_str(&l->numbers), buf_str(&l->names), f->ids, f->entity, f->type,
							   f->error, f->kind, f->since, f->until },
	       FILTER_PARAMS * sizeof(*params));
}

bool dead_count(PGconn *conn, const struct dead_filter *f, struct dead_count *ret, struct error *err)
{
	_cleanup_(lists_release) struct filter_lists lists = { 0 };
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	const char *params[FILTER_PARAMS];

	fill_params(f, &lists, params);
	if (!pg_query(conn, "count dead letters", sql_count, FILTER_PARAMS, params, &res, err))
		return false;
	*ret = (struct dead_count){
		.letters = atoll(PQgetvalue(res, 0, 0)),
		.passed = atoll(PQgetvalue(res, 0, 1)),
		.last = atoll(PQgetvalue(res, 0, 2)),
	};
	return true;
}

static bool query_page(PGconn *conn, const char *doing, const char *sql, const struct dead_filter *f, int64_t after,
		       int64_t up_to, int limit, PGresult **ret, struct error *err)
{
	_cleanup_(lists_release) struct filter_lists lists = { 0 };
	_cleanup_(mem_freep) char *from = mem_printf("%lld", (long long)after), *to = mem_printf("%lld", (long long)up_to);
	_cleanup_(mem_freep) char *rows = mem_printf("%d", limit);
	const char *params[FILTER_PARAMS + 3];

	fill_params(f, &lists, params);
	params[FILTER_PARAMS] = from;
	params[FILTER_PARAMS + 1] = to;
	params[FILTER_PARAMS + 2] = rows;
	return pg_query(conn, doing, sql, ARRAY_SIZE(params), params, ret, err);
}

bool dead_page(PGconn *conn, const struct dead_filter *f, int64_t after, int64_t up_to, int limit, PGresult **ret,
	       struct error *err)
{
	return query_page(conn, "read dead letters", sql_page, f, after, up_to, limit, ret, err);
}

bool dead_fields(PGconn *conn, int64_t id, PGresult **ret, struct error *err)
{
	_cleanup_(mem_freep) char *letter = mem_printf("%lld", (long long)id);

	return pg_query(conn, "read the dead letter",
			"SELECT u.name, u.value FROM postrider.dead_letter d, unnest(d.names, d.fields) u(name, value)"
			" WHERE d.id = $1::bigint", 1, (const char *const[]){ letter }, ret, err);
}

bool dead_drop(PGconn *conn, const struct dead_filter *f, int64_t after, int64_t up_to, int limit, int64_t *ret_dropped,
	       int64_t *ret_last, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!query_page(conn, "drop dead letters", sql_drop, f, after, up_to, limit, &res, err))
		return false;
	*ret_dropped = atoll(PQgetvalue(res, 0, 0));
	*ret_last = PQgetisnull(res, 0, 1) ? up_to : atoll(PQgetvalue(res, 0, 1));
	return true;
}

/* --- putting one back --------------------------------------------------------------------------------------------- */

/* $1 letter. Whoever else wants it waits, and finds it gone. */
static const char sql_letter[] =
	"SELECT d.row IS NOT NULL, d.names IS NOT NULL, d.passed_at IS NOT NULL, d.row_id, d.entity"
	" FROM postrider.dead_letter d WHERE d.id = $1::bigint AND d.outbox = {outbox} FOR UPDATE";

enum { LETTER_IS_ROW, LETTER_IS_EVENT, LETTER_PASSED, LETTER_ROW, LETTER_ENTITY };

/* Columns that the table has now and had then. One that was added since gets its default; a generated one is made anew.
 * $1 letter */
static const char sql_columns[] =
	"SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),"
	" string_agg('o.' || quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a"
	" WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''"
	" AND a.attname::text IN (SELECT json_object_keys(d.row) FROM postrider.dead_letter d WHERE d.id = $1::bigint)";

/* $1 id */
static const char sql_is_there[] = "SELECT FROM {table} o WHERE o.{id} = $1::{id_type}";

/* Numbers of the log are positive; these are below all of them, in the order in which letters died. $1 letter */
static const char sql_put_event_back[] =
	"INSERT INTO postrider.parked (outbox, n, entity, row_id, is_message, names, fields) OVERRIDING SYSTEM VALUE"
	" SELECT d.outbox, d.id - 4611686018427387904, d.entity, d.row_id, d.is_message, d.names, d.fields"
	" FROM postrider.dead_letter d WHERE d.id = $1::bigint";

/* $1 letter, $2 what is held back: entity, or row where there is no order */
static const char sql_hold[] =
	"INSERT INTO postrider.retry (outbox, entity, row_id, attempts, kind, error, retry_at)"
	" SELECT d.outbox, $2, d.row_id, 0, d.kind, d.error, clock_timestamp() FROM postrider.dead_letter d WHERE d.id = $1::bigint"
	" ON CONFLICT (outbox, entity) DO NOTHING";

/* An entity that is held back for a later row is tried again, from this one on. $1 letter, $2 what is held back */
#define SQL_HOLD_FROM_HERE(before)                                                                              \
	"UPDATE postrider.retry r SET row_id = d.row_id, attempts = 0, kind = d.kind, error = d.error,"         \
	"  retry_at = clock_timestamp(), blocked_at = NULL"                                                     \
	" FROM postrider.dead_letter d WHERE d.id = $1::bigint AND r.outbox = d.outbox AND r.entity = $2"       \
	"  AND r.row_id IS NOT NULL AND r.row_id <> d.row_id AND " before
static const char sql_hold_from_row[] = SQL_HOLD_FROM_HERE(
	"NOT EXISTS (SELECT FROM {table} b, {table} o WHERE b.{id} = r.row_id::{id_type}"
	"  AND o.{id} = d.row_id::{id_type} AND b.{order} < o.{order})");
static const char sql_hold_from_event[] = SQL_HOLD_FROM_HERE("true");

/* $1 what is held back, $2 row */
static const char sql_waits[] =
	"SELECT FROM postrider.retry r WHERE r.outbox = {outbox} AND r.entity = $1 AND r.row_id IS DISTINCT FROM $2"
	" AND r.retry_at > clock_timestamp()";

static const char sql_end_letter[] = "DELETE FROM postrider.dead_letter d WHERE d.id = $1::bigint";

/* One letter on its way back. */
struct passage {
	PGconn *conn;
	const struct target *t;
	const char *id;
	const char *row, *held;         /* id of the row, and what is held back for it */
};

static bool put_row_back(const struct passage *p, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *columns = NULL, *there = NULL;
	_cleanup_(mem_freep) char *sql = NULL;

	if (!target_query(p->t, p->conn, "look for the row", sql_is_there, 1, &p->row, &there, err) ||
	    !target_query(p->t, p->conn, "compare columns", sql_columns, 1, &p->id, &columns, err))
		return false;
	if (PQntuples(there) > 0) {
		error_set(err, ERROR_REJECTED, "%s has a row %s already", p->t->table->name, p->row);
		return error_hint(err, "if it is the same one, the letter is no longer needed: `postrider dead drop %s`", p->id);
	}
	sql = mem_printf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM postrider.dead_letter d,"
			 " json_populate_record(NULL::%s, d.row) o WHERE d.id = $1::bigint",
			 p->t->table->name, PQgetvalue(columns, 0, 0), PQgetvalue(columns, 0, 1), p->t->table->name);
	return pg_query(p->conn, "put the row back", sql, 1, &p->id, NULL, err);
}

static bool put_event_back(const struct passage *p, struct error *err)
{
	if (!p->t->driver->rings_itself) {
		error_set(err, ERROR_CONFIG, "it came from the log, and outbox %s is read with %s", p->t->config->name,
			  p->t->config->reader);
		return error_hint(err, "`postrider dead show %s` has its fields: insert a row with them", p->id);
	}
	return pg_query(p->conn, "put the event back", sql_put_event_back, 1, &p->id, NULL, err);
}

static bool hold_from_here(const struct passage *p, bool is_row, bool *ret_waits, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *waits = NULL;
	const char *const here[] = { p->id, p->held }, *const there[] = { p->held, p->row };

	if (!target_query(p->t, p->conn, "try the entity again", sql_hold, 2, here, NULL, err) ||
	    !target_query(p->t, p->conn, "try the entity again", is_row ? sql_hold_from_row : sql_hold_from_event, 2, here,
			  NULL, err) ||
	    !target_query(p->t, p->conn, "look at the entity", sql_waits, 2, there, &waits, err))
		return false;
	*ret_waits = PQntuples(waits) > 0;
	return true;
}

static bool put_back(PGconn *conn, const struct target *t, const char *id, struct dead_return *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *letter = NULL;
	struct passage p = { conn, t, id, NULL, NULL };
	bool is_row;

	if (!target_query(t, conn, "read the dead letter", sql_letter, 1, &id, &letter, err))
		return false;
	ret->gone = PQntuples(letter) == 0;
	if (ret->gone)
		return true;
	is_row = PQgetvalue(letter, 0, LETTER_IS_ROW)[0] == 't';
	ret->passed = PQgetvalue(letter, 0, LETTER_PASSED)[0] == 't';
	p.row = PQgetvalue(letter, 0, LETTER_ROW);
	p.held = t->ordered ? PQgetvalue(letter, 0, LETTER_ENTITY) : p.row;
	if (!is_row && PQgetvalue(letter, 0, LETTER_IS_EVENT)[0] != 't')
		return error_set(err, ERROR_REJECTED, "the letter has no content");
	return (is_row ? put_row_back(&p, err) : put_event_back(&p, err)) && hold_from_here(&p, is_row, &ret->waits, err) &&
	       pg_query(conn, "end the dead letter", sql_end_letter, 1, &id, NULL, err);
}

bool dead_retry(PGconn *conn, const struct target *t, int64_t id, struct dead_return *ret, struct error *err)
{
	_cleanup_(mem_freep) char *letter = mem_printf("%lld", (long long)id);
	struct error ignored;

	*ret = (struct dead_return){ 0 };
	if (pg_query(conn, "begin", "BEGIN", 0, NULL, NULL, err) && put_back(conn, t, letter, ret, err) &&
	    pg_query(conn, "put the row back", "COMMIT", 0, NULL, NULL, err))
		return true;
	if (PQtransactionStatus(conn) != PQTRANS_IDLE)
		pg_query(conn, "undo it", "ROLLBACK", 0, NULL, NULL, &ignored);
	return false;
}
