#include "verify/archive.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/mem.h"
#include "pg/exec.h"
#include "pg/table.h"
#include "relay/field.h"

#define SQL_CEILING (1 << 20)
#define FETCH "FETCH 1000 FROM postrider_verify"

struct archive {
	const struct archive_request *request;
	struct table *table;            /* as routing knows tables; no payload */
	struct table_column marked;
	char *marked_value;             /* NULL: any */
	char *doing;                    /* for messages */
};

const char *archive_id_header(const struct outbox_config *outbox)
{
	return outbox->route.envelope == ENVELOPE_CLOUDEVENTS ? "ce_id" : "id";
}

void archive_free(struct archive *a)
{
	if (!a)
		return;
	table_free(a->table);
	table_column_release(&a->marked);
	free(a->marked_value);
	free(a->doing);
	free(a);
}

void archive_freep(struct archive **a)
{
	archive_free(*a);
}

bool archive_is_same(const struct archive *a, const struct archive *b)
{
	return a->table->oid == b->table->oid;
}

const char *archive_name(const struct archive *a)
{
	return a->table->name;
}

/* ---- Looking it up ----------------------------------------------------------------------------------------------- */

enum { OID, NAME, SCHEMA, MAY_READ, ROLE };

#define SELECT_TABLE                                                                                                 \
	"SELECT c.oid, pg_catalog.format('%I.%I', n.nspname, c.relname), pg_catalog.quote_ident(n.nspname),"        \
	" pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND"                                                      \
	" pg_catalog.has_any_column_privilege(c.oid, 'SELECT'), pg_catalog.quote_ident(current_user)"              \
	" FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"                      \
	" WHERE n.nspname = $1::pg_catalog.text AND c.relname = $2::pg_catalog.text"                                \
	" AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"

static bool find_table(PGconn *conn, struct archive *a, struct error *err)
{
	_cleanup_(mem_freep) char *schema = NULL, *name = NULL;
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pg_split_qualified(a->request->table, &schema, &name, err) ||
	    !pg_query(conn, "look up the table", SELECT_TABLE, 2, (const char *const[]){ schema, name }, &res, err))
		return false;
	if (PQntuples(res) == 0)
		return error_set(err, ERROR_CONFIG, "there is no table or view %s in database %s", a->request->table,
				 PQdb(conn));
	a->table->oid = (uint32_t)strtoul(PQgetvalue(res, 0, OID), NULL, 10);
	a->table->name = mem_strdup(PQgetvalue(res, 0, NAME));
	a->doing = mem_printf("read %s", a->table->name);
	if (PQgetvalue(res, 0, MAY_READ)[0] == 't')
		return true;
	error_set(err, ERROR_CONFIG, "%s may not read %s", PQgetvalue(res, 0, ROLE), a->table->name);
	return error_hint(err, "GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT ON %s TO %s;", PQgetvalue(res, 0, SCHEMA),
			  PQgetvalue(res, 0, ROLE), a->table->name, PQgetvalue(res, 0, ROLE));
}

static bool missing_column(const struct archive *a, const char *column, const char *wanted_by, struct error *err)
{
	error_set(err, ERROR_CONFIG, "%s has no column %s, which %s names", a->table->name, column, wanted_by);
	return error_hint(err, "a table to verify against has the columns of its outbox, except the payload");
}

static bool map_columns(PGconn *conn, struct archive *a, const PGresult *columns, struct error *err)
{
	const struct outbox_config *outbox = a->request->outbox;
	const struct column_config *order = outbox->order_by.name[0] ? &outbox->order_by : &outbox->columns.id;

	for (size_t i = 0; i < ARRAY_SIZE(table_mappings); i++) {
		const struct table_mapping *m = &table_mappings[i];
		const struct column_config *c = table_mapped_column(m, &outbox->columns);
		_cleanup_(mem_freep) char *setting = mem_printf("outboxes.%s.columns.%s", outbox_path(outbox), m->key);

		if (m->field != FIELD_PAYLOAD && c->name[0] &&
		    !table_find_column(conn, columns, c->name, &a->table->columns[m->field]) && (m->required || c->where))
			return missing_column(a, c->name, setting, err);
	}
	return table_find_column(conn, columns, order->name, &a->table->order) ||
	       missing_column(a, order->name, "order_by", err);
}

static bool map_extra(PGconn *conn, struct archive *a, const PGresult *columns, struct error *err)
{
	size_t n;
	const char *const *names = route_extra_columns(a->request->route, &n);

	a->table->extra = mem_new_array(struct table_column, n + 1);
	for (size_t i = 0; i < n; i++, a->table->n_extra++)
		if (!table_find_column(conn, columns, names[i], &a->table->extra[i]))
			return missing_column(a, names[i], "a template of the route", err);
	return true;
}

static bool map_marked(PGconn *conn, struct archive *a, const PGresult *columns, struct error *err)
{
	const char *marked = a->request->marked;
	_cleanup_(mem_freep) char *name = NULL;

	if (!marked)
		return true;
	name = mem_strndup(marked, strcspn(marked, "="));
	if (strchr(marked, '='))
		a->marked_value = mem_strdup(strchr(marked, '=') + 1);
	return table_find_column(conn, columns, name, &a->marked) || missing_column(a, name, "--marked", err);
}

static bool check_times(const struct archive *a, struct error *err)
{
	if ((!a->request->since && !a->request->until) || a->table->columns[FIELD_CREATED_AT].name)
		return true;
	error_set(err, ERROR_CONFIG, "%s has no column that says when a row was written", a->table->name);
	return error_hint(err, "leave out --since and --until, or set outboxes.%s.columns.created_at",
			  outbox_path(a->request->outbox));
}

/* ---- The statement ----------------------------------------------------------------------------------------------- */

/* The fields of routing, then the rank, then whether the row is marked. Rows that no order tells apart share a rank. */
static void build_select_list(struct archive *a)
{
	struct buf list;

	buf_init(&list, SQL_CEILING);
	for (enum field f = 0; f < FIELD_EXTRA; f++)
		table_add_expression(&list, &a->table->columns[f], f);
	for (size_t i = 0; i < a->table->n_extra; i++)
		table_add_expression(&list, &a->table->extra[i], FIELD_EXTRA);
	if (a->request->ranked)
		buf_printf(&list, ", pg_catalog.dense_rank() OVER (ORDER BY o.%s)", a->table->order.quoted);
	else
		buf_add_str(&list, ", 0::pg_catalog.int8");
	if (!a->marked.name)
		buf_add_str(&list, ", false");
	else if (a->marked_value)
		buf_printf(&list, ", coalesce(o.%s::pg_catalog.text OPERATOR(pg_catalog.=) $3, false)",
			   a->marked.quoted);
	else
		buf_printf(&list, strcmp(a->marked.type, "boolean") == 0 ? ", o.%s IS TRUE" : ", o.%s IS NOT NULL",
			   a->marked.quoted);
	a->table->select_list = buf_take(&list);
}

static char *build_statement(const struct archive *a)
{
	const struct table_column *time = &a->table->columns[FIELD_CREATED_AT];
	_cleanup_(mem_freep) char *created = time->name ? mem_printf("o.%s", time->quoted) : mem_strdup("NULL");
	struct buf sql;

	buf_init(&sql, SQL_CEILING);
	buf_printf(&sql, "DECLARE postrider_verify NO SCROLL CURSOR FOR SELECT %s FROM %s o"
			 " WHERE ($1::pg_catalog.timestamptz IS NULL OR %s >= $1::pg_catalog.timestamptz)"
			 " AND ($2::pg_catalog.timestamptz IS NULL OR %s < $2::pg_catalog.timestamptz)",
		   a->table->select_list, a->table->name, created, created);
	if (a->request->ranked)
		buf_printf(&sql, " ORDER BY o.%s", a->table->order.quoted);
	return buf_take(&sql);
}

bool archive_open(PGconn *conn, const struct archive_request *request, struct archive **ret, struct error *err)
{
	_cleanup_(archive_freep) struct archive *a = mem_new(struct archive);
	_cleanup_(pg_result_clearp) PGresult *columns = NULL;

	a->request = request;
	a->table = mem_new(struct table);
	if (!find_table(conn, a, err) || !table_read_columns(conn, a->table->oid, &columns, err) ||
	    !map_columns(conn, a, columns, err) || !map_extra(conn, a, columns, err) ||
	    !map_marked(conn, a, columns, err) || !route_check_table(request->route, a->table, err) ||
	    !check_times(a, err))
		return false;
	build_select_list(a);
	*ret = TAKE_PTR(a);
	return true;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

/* The header may be the envelope's, a template's or one that the row brings itself: what counts is what goes out. */
static struct slice id_of_message(const struct archive *a, const struct event *ev)
{
	const char *name = archive_id_header(a->request->outbox);

	for (uint32_t i = ev->n_headers; i > 0; i--)
		if (slice_is(ev->headers[i - 1].name, name))
			return ev->headers[i - 1].value;
	return SLICE_NULL;
}

/* A bigint from the server. */
static uint32_t rank_of(struct slice raw)
{
	uint64_t value = 0;

	for (size_t i = 0; i < raw.len; i++)
		value = value << 8 | (unsigned char)raw.ptr[i];
	return (uint32_t)value;
}

static bool take_row(const struct archive *a, struct batch *b, uint32_t number, archive_row_fn *take, void *context,
		     struct error *err)
{
	const struct event *ev = &b->events[number];
	int last = FIELD_EXTRA + (int)a->table->n_extra;
	struct archive_row row = {
		.rank = rank_of(field_raw(b->rows, (int)number, last)),
		.marked = PQgetvalue(b->rows, (int)number, last + 1)[0] != 0,
	};
	struct error refused;

	if (route_row(a->request->route, b, number, &refused))
		row.id = id_of_message(a, ev);
	row.row_id = ev->id;
	row.entity = ev->entity;
	row.topic = ev->topic;
	return take(context, &row, err);
}

/* *ret_end: there are no more. */
static bool take_some(PGconn *conn, const struct archive *a, archive_row_fn *take, void *context, bool *ret_end,
		      struct error *err)
{
	PGresult *res = PQexecParams(conn, FETCH, 0, NULL, NULL, NULL, NULL, 1);
	struct batch *b;
	bool ok = true;

	if (PQresultStatus(res) != PGRES_TUPLES_OK) {
		pg_error(conn, res, a->doing, err);
		PQclear(res);
		return false;
	}
	*ret_end = PQntuples(res) == 0;
	b = batch_new(res, (uint32_t)PQntuples(res));
	for (uint32_t i = 0; ok && i < b->count; i++)
		ok = take_row(a, b, i, take, context, err);
	batch_free(b);
	return ok;
}

bool archive_read(PGconn *conn, const struct archive *a, archive_row_fn *take, void *context, struct error *err)
{
	_cleanup_(mem_freep) char *sql = build_statement(a);
	const char *const params[] = { a->request->since, a->request->until, a->marked_value };
	bool end = false;

	/* A parameter that nothing uses has no type. */
	if (!pg_query(conn, a->doing, sql, a->marked_value ? 3 : 2, params, NULL, err))
		return false;
	while (!end)
		if (!take_some(conn, a, take, context, &end, err))
			return false;
	return pg_script(conn, a->doing, "CLOSE postrider_verify", err);
}
