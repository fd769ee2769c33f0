#include "read/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/mem.h"
#include "pg/exec.h"
#include "read/reader.h"

#define SQL_CEILING ((size_t)1 << 20)
#define ARCHIVE_NAME "%.55s_archive"   /* cut so that PostgreSQL does not */
#define COUNTING_MS "5000"

void history_free(struct history *h)
{
	if (!h)
		return;
	table_free(h->table);
	free(h->where);
	free(h);
}

void history_freep(struct history **h)
{
	history_free(*h);
}

/* --- where it is ---------------------------------------------------------------------------------------------- */

/* $1 schema, $2 table, $3 column: is there such a table with such a column? */
#define SELECT_KEPT                                                                                             \
	"SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"            \
	" JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"         \
	" WHERE n.nspname = $1::pg_catalog.text AND c.relname = $2::pg_catalog.text"                            \
	" AND c.relkind IN ('r', 'p') AND a.attname = $3::pg_catalog.text"

/* The column that says when a row was published; in an archive it is always called so. */
static const char *column_of(const struct outbox_config *outbox, enum history_source source)
{
	return source == HISTORY_ARCHIVE ? "published_at" : outbox->columns.published_at.name;
}

static bool is_kept(PGconn *conn, const char *schema, const char *table, const char *column, bool *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pg_query(conn, "look for what was published", SELECT_KEPT, 3,
		      (const char *const[]){ schema, table, column }, &res, err))
		return false;
	*ret = PQntuples(res) > 0;
	return true;
}

static bool nothing_kept(const struct outbox_config *outbox, const char *schema, const char *archive,
			 enum history_source source, struct error *err)
{
	_cleanup_(mem_freep) char *marks = mem_printf("its table has no column %s", column_of(outbox, HISTORY_TABLE));
	_cleanup_(mem_freep) char *no_archive = mem_printf("there is no table %s.%s with a column %s", schema, archive,
							   column_of(outbox, HISTORY_ARCHIVE));

	error_set(err, ERROR_CONFIG, "outbox %s has nothing to replay: %s%s%s", outbox->name,
		  source == HISTORY_TABLE ? marks : no_archive, source == HISTORY_ANY ? ", and " : "",
		  source == HISTORY_ANY ? marks : "");
	return error_hint(err, "rows that are deleted when they are published are gone; to keep them from now on, set"
			  " outboxes.%s.published to archive or to mark, and run `postrider init`", outbox_path(outbox));
}

/* Where it is: *ret_source, and in *ret_table the name of the table, which the caller frees. */
static bool find(PGconn *conn, const struct outbox_config *outbox, enum history_source wanted,
		 enum history_source *ret_source, char **ret_table, struct error *err)
{
	_cleanup_(mem_freep) char *schema = NULL, *name = NULL, *archive = NULL, *quoted_schema = NULL, *quoted = NULL;
	bool archived = false, marked = false;

	if (!pg_split_qualified(outbox->table, &schema, &name, err))
		return false;
	archive = mem_printf(ARCHIVE_NAME, name);
	if ((wanted != HISTORY_TABLE && !is_kept(conn, schema, archive, column_of(outbox, HISTORY_ARCHIVE), &archived, err)) ||
	    (wanted != HISTORY_ARCHIVE && !is_kept(conn, schema, name, column_of(outbox, HISTORY_TABLE), &marked, err)))
		return false;
	if (!archived && !marked)
		return nothing_kept(outbox, schema, archive, wanted, err);
	*ret_source = archived ? HISTORY_ARCHIVE : HISTORY_TABLE;
	quoted_schema = pg_quote_name(conn, schema);
	quoted = pg_quote_name(conn, archived ? archive : name);
	*ret_table = mem_printf("%s.%s", quoted_schema, quoted);
	return true;
}

/* --- which rows ----------------------------------------------------------------------------------------------- */

/* The number of the parameter. */
static int add_param(struct history *h, const char *value)
{
	h->params[h->n_params++] = value;
	return h->n_params;
}

/* One comparison with a value of the column's own type. */
static void add_test(struct history *h, struct buf *sql, const struct table_column *c, const char *op,
		     const char *value)
{
	if (value)
		buf_printf(sql, " AND o.%s %s $%d::%s", c->quoted, op, add_param(h, value), c->type);
}

static void add_choice(struct history *h, struct buf *sql, const struct table_column *c, const char *values)
{
	if (values)
		buf_printf(sql, " AND o.%s = ANY ($%d::pg_catalog.text[]::%s[])", c->quoted, add_param(h, values), c->type);
}

static bool check_types(const struct history *h, const struct outbox_config *outbox, const struct history_filter *f,
			struct error *err)
{
	if (!f->types || h->table->columns[FIELD_EVENT_TYPE].name)
		return true;
	error_set(err, ERROR_CONFIG, "%s has no column that says of which type a row is", h->table->name);
	return error_hint(err, "leave out --type, or set outboxes.%s.columns.event_type", outbox_path(outbox));
}

static void build_where(PGconn *conn, struct history *h, const struct history_filter *f)
{
	const struct table_column *columns = h->table->columns;
	_cleanup_(mem_freep) char *quoted = pg_quote_name(conn, h->published);
	const struct table_column published = { .quoted = quoted, .type = (char[]){ "timestamptz" } };
	struct buf sql;

	buf_init(&sql, SQL_CEILING);
	buf_printf(&sql, "o.%s IS NOT NULL", quoted);
	add_test(h, &sql, &published, ">=", f->since);
	add_test(h, &sql, &published, "<", f->until);
	add_test(h, &sql, &columns[FIELD_ID], ">=", f->first_id);
	add_test(h, &sql, &columns[FIELD_ID], "<=", f->last_id);
	add_test(h, &sql, &h->table->order, ">=", f->start);
	add_choice(h, &sql, &columns[FIELD_ENTITY], f->entities);
	add_choice(h, &sql, &columns[FIELD_EVENT_TYPE], f->types);
	h->where = buf_take(&sql);
}

bool history_open(PGconn *conn, const struct outbox_config *outbox, const char *const *extra, size_t n_extra,
		  enum history_source source, const struct history_filter *filter, struct history **ret, struct error *err)
{
	_cleanup_(history_freep) struct history *h = mem_new(struct history);
	_cleanup_(mem_freep) char *table = NULL;
	struct outbox_config settings = *outbox;

	if (!find(conn, outbox, source, &h->source, &table, err))
		return false;
	settings.table = table;
	h->published = column_of(outbox, h->source);
	if (!table_open_history(conn, &settings, extra, n_extra, &h->table, err) || !check_types(h, outbox, filter, err))
		return false;
	h->ordered_by_id = strcmp(h->table->order.name, h->table->columns[FIELD_ID].name) == 0;
	h->ordered = reader_keeps_order(reader_driver_find(outbox->reader), outbox);
	build_where(conn, h, filter);
	*ret = TAKE_PTR(h);
	return true;
}

/* --- how much ------------------------------------------------------------------------------------------------- */

/* A value that the server cannot read as the type of its column is the user's. */
static bool query(PGconn *conn, const struct history *h, const char *sql, PGresult **ret, struct error *err)
{
	if (pg_query(conn, "look at what was published", sql, h->n_params, h->params, ret, err))
		return true;
	if (err->kind == ERROR_REJECTED)
		err->kind = ERROR_CONFIG;
	return false;
}

/* False when it takes too long, or does not work at all, which the estimate will say. */
static bool count(PGconn *conn, const struct history *h, int64_t *ret)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *sql = mem_printf("SELECT pg_catalog.count(*) FROM (SELECT FROM %s o WHERE %s LIMIT %d) u",
						    h->table->name, h->where, HISTORY_COUNTED_MAX + 1);
	struct error ignored;
	bool ok = pg_script(conn, "begin", "BEGIN READ ONLY; SET LOCAL statement_timeout = " COUNTING_MS, &ignored) &&
		  query(conn, h, sql, &res, &ignored);

	if (ok)
		*ret = strtoll(PQgetvalue(res, 0, 0), NULL, 10);
	pg_script(conn, "end", "ROLLBACK", &ignored);
	return ok;
}

static bool estimate(PGconn *conn, const struct history *h, int64_t *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *sql = mem_printf("EXPLAIN SELECT FROM %s o WHERE %s", h->table->name, h->where);
	const char *rows;

	if (!query(conn, h, sql, &res, err))
		return false;
	rows = strstr(PQgetvalue(res, 0, 0), "rows=");
	*ret = rows ? strtoll(rows + strlen("rows="), NULL, 10) : 0;
	return true;
}

/* To a small table any index seems a detour, so the planner is asked what it would do if it had to take one. */
static bool ask_for_index(PGconn *conn, const struct history *h, bool *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *sql = mem_printf("EXPLAIN SELECT FROM %s o WHERE %s ORDER BY o.%s LIMIT 100",
						    h->table->name, h->where, h->table->order.quoted);

	if (!pg_script(conn, "begin", "BEGIN READ ONLY; SET LOCAL enable_seqscan = off", err) ||
	    !query(conn, h, sql, &res, err) || !pg_script(conn, "end", "ROLLBACK", err))
		return false;
	*ret = true;
	for (int i = 0; i < PQntuples(res); i++)
		if (strstr(PQgetvalue(res, i, 0), "Seq Scan"))
			*ret = false;
	return true;
}

bool history_measure(PGconn *conn, const struct history *h, struct history_size *ret, struct error *err)
{
	struct history_size size = { 0 };
	int64_t estimated;

	if (!estimate(conn, h, &estimated, err) || !ask_for_index(conn, h, &size.indexed, err))
		return false;
	size.exact = count(conn, h, &size.rows) && size.rows <= HISTORY_COUNTED_MAX;
	if (!size.exact)
		size.rows = MAX(size.rows, estimated);
	*ret = size;
	return true;
}

/* --- pages ---------------------------------------------------------------------------------------------------- */

static void add_aliases(struct buf *sql, const struct table *t)
{
	for (size_t i = 0; i < FIELD_EXTRA + t->n_extra; i++)
		buf_printf(sql, "f%zu, ", i);
	buf_add_str(sql, "place, row_id, lane");
}

static void add_behind(struct buf *sql, const struct history *h, const char *id)
{
	const struct table *t = h->table;
	const struct table_column *i = &t->columns[FIELD_ID];
	int first = h->n_params + 1;

	if (h->ordered_by_id)
		buf_printf(sql, " AND %s > $%d::%s", id, first + HISTORY_PAGE_ID, i->type);
	else
		buf_printf(sql, " AND (o.%s, %s) > ($%d::%s, $%d::%s)", t->order.quoted, id, first + HISTORY_PAGE_ORDER,
			   t->order.type, first + HISTORY_PAGE_ID, i->type);
}

static void add_rows(struct buf *sql, const struct history *h, bool next)
{
	const struct table *t = h->table;
	_cleanup_(mem_freep) char *id = mem_printf("o.%s", t->columns[FIELD_ID].quoted);
	_cleanup_(mem_freep) char *lane =
		h->ordered ? mem_printf("coalesce(o.%s::pg_catalog.text, '')", t->columns[FIELD_ENTITY].quoted) :
			     mem_printf("%s::pg_catalog.text", id);
	int first = h->n_params + 1;

	buf_printf(sql, "SELECT %s, o.%s::pg_catalog.text, %s::pg_catalog.text, %s FROM %s o WHERE %s"
			" AND %s <> ALL ($%d::pg_catalog.text[]) AND %s::pg_catalog.text <> ALL ($%d::pg_catalog.text[])",
		   t->select_list, t->order.quoted, id, lane, t->name, h->where, lane, first + HISTORY_PAGE_LANES, id,
		   first + HISTORY_PAGE_AHEAD);
	if (next)
		add_behind(sql, h, id);
	buf_printf(sql, " ORDER BY o.%s", t->order.quoted);
	if (!h->ordered_by_id)
		buf_printf(sql, ", %s", id);
	buf_printf(sql, " LIMIT $%d::pg_catalog.int4", first + HISTORY_PAGE_ROWS);
}

/* What a payload weighs; NULL weighs nothing. */
#define BYTES "coalesce(pg_catalog.pg_column_size(u.f2), 0)"
_Static_assert(FIELD_PAYLOAD == 2, "BYTES names the payload by its number");

char *history_page_sql(const struct history *h, bool next)
{
	struct buf sql;

	buf_init(&sql, SQL_CEILING);
	buf_add_str(&sql, "SELECT ");
	add_aliases(&sql, h->table);
	buf_add_str(&sql, ", 0::pg_catalog.int4, NULL::pg_catalog.text"
			  " FROM (SELECT u.*, sum(" BYTES ") OVER (ROWS UNBOUNDED PRECEDING) AS bytes FROM (");
	add_rows(&sql, h, next);
	buf_add_str(&sql, ") u(");
	add_aliases(&sql, h->table);
	buf_printf(&sql, ")) u WHERE u.bytes - " BYTES " < $%d::pg_catalog.int8", h->n_params + 1 + HISTORY_PAGE_BYTES);
	return buf_take(&sql);
}
