#include "pg/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "config/suggest.h"
#include "pg/exec.h"

#define SELECT_LIST_CEILING (1 << 20)
#define ROUTE_KEY "route"       /* the settings whose templates name columns */

/* Which setting names each column, and whether rows can go anywhere without it. */
#define MAPPING(field, name, required) { field, #name, offsetof(struct columns_config, name), required }

const struct table_mapping table_mappings[FIELD_EXTRA] = {
	MAPPING(FIELD_ID, id, true),
	MAPPING(FIELD_ENTITY, entity_id, true),
	MAPPING(FIELD_PAYLOAD, payload, true),
	MAPPING(FIELD_MESSAGE_ID, message_id, false),
	MAPPING(FIELD_ENTITY_TYPE, entity_type, false),
	MAPPING(FIELD_EVENT_TYPE, event_type, false),
	MAPPING(FIELD_HEADERS, headers, false),
	MAPPING(FIELD_TOPIC, topic, false),
	MAPPING(FIELD_CREATED_AT, created_at, false),
	MAPPING(FIELD_TRACEPARENT, traceparent, false),
};

/* What table_open works with: the catalogue's answer beside what is being built from it. */
struct lookup {
	PGconn *conn;
	const struct outbox_config *outbox;
	PGresult *columns;
	struct table *table;
};

enum { COLUMN_NAME, COLUMN_TYPE, COLUMN_NOT_NULL };

/* Types behind domains, because a bytea in disguise must not be cast to text either. */
#define SELECT_COLUMNS                                                                                               \
	"SELECT a.attname, pg_catalog.format_type("                                                                 \
	"  CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE a.atttypid END,"                                       \
	"  CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END), a.attnotnull"                          \
	" FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid"                           \
	" WHERE a.attrelid = $1::pg_catalog.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"

void table_column_release(struct table_column *c)
{
	free(c->name);
	free(c->quoted);
	free(c->type);
}

void table_free(struct table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < FIELD_EXTRA; i++)
		table_column_release(&t->columns[i]);
	for (size_t i = 0; i < t->n_extra; i++)
		table_column_release(&t->extra[i]);
	table_column_release(&t->order);
	table_column_release(&t->published_at);
	free(t->archive);
	free(t->archive_columns);
	table_column_release(&t->scheduled);
	free(t->extra);
	free(t->name);
	free(t->select_list);
	free(t);
}

void table_freep(struct table **t)
{
	table_free(*t);
	*t = NULL;
}

/* "postrider.yaml:12:7: " where the place is known. */
static bool place(struct error *err, const char *where)
{
	return where ? error_prefix(err, "%s", where) : false;
}

static bool missing_table(const struct outbox_config *outbox, struct error *err)
{
	error_set(err, ERROR_CONFIG, "outboxes.%s.table: there is no table %s", outbox_path(outbox), outbox->table);
	error_hint(err, outbox->parent ? "run `postrider init` to create it" :
					 "run `postrider init` to create it, or name the table that you have");
	return place(err, outbox->where);
}

static bool find_relation(struct lookup *l, struct error *err)
{
	_cleanup_(mem_freep) char *schema = NULL, *name = NULL;
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	const char *kind;

	if (!pg_split_qualified(l->outbox->table, &schema, &name, err)) {
		error_prefix(err, "outboxes.%s.table", outbox_path(l->outbox));
		return place(err, l->outbox->where);
	}
	if (!pg_query(l->conn, "look up the table",
		      "SELECT c.oid, c.relkind, pg_catalog.format('%I.%I', n.nspname, c.relname), c.reltoastrelid"
		      " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
		      " WHERE n.nspname = $1::pg_catalog.text AND c.relname = $2::pg_catalog.text",
		      2, (const char *const[]){ schema, name }, &res, err))
		return false;
	if (PQntuples(res) == 0)
		return missing_table(l->outbox, err);
	kind = PQgetvalue(res, 0, 1);
	if (!strchr("rp", kind[0])) {
		error_set(err, ERROR_CONFIG, "outboxes.%s.table: %s is not a table", outbox_path(l->outbox), l->outbox->table);
		error_hint(err, "name the table that rows are inserted into, not a view or foreign table");
		return place(err, l->outbox->where);
	}
	l->table->oid = (uint32_t)strtoul(PQgetvalue(res, 0, 0), NULL, 10);
	l->table->partitioned = kind[0] == 'p';
	l->table->name = mem_strdup(PQgetvalue(res, 0, 2));
	l->table->toast_oid = (uint32_t)strtoul(PQgetvalue(res, 0, 3), NULL, 10);
	return true;
}

bool table_read_columns(PGconn *conn, uint32_t oid, PGresult **ret, struct error *err)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", oid);
	return pg_query(conn, "read the columns of the table", SELECT_COLUMNS, 1, (const char *const[]){ text }, ret, err);
}

bool table_find_column(PGconn *conn, const PGresult *columns, const char *name, struct table_column *ret)
{
	for (int i = 0; i < PQntuples(columns); i++) {
		if (strcmp(PQgetvalue(columns, i, COLUMN_NAME), name) != 0)
			continue;
		ret->name = mem_strdup(name);
		ret->quoted = pg_quote_name(conn, name);
		ret->type = mem_strdup(PQgetvalue(columns, i, COLUMN_TYPE));
		ret->nullable = PQgetvalue(columns, i, COLUMN_NOT_NULL)[0] != 't';
		return true;
	}
	return false;
}

static bool find_column(const struct lookup *l, const char *name, struct table_column *ret)
{
	return table_find_column(l->conn, l->columns, name, ret);
}

/* `key` is the setting that asks for the column, below the outbox. */
static bool missing_column(const struct lookup *l, const char *key, const char *name, const char *where,
			   struct error *err)
{
	int n = PQntuples(l->columns);
	_cleanup_(mem_freep) const char **known = mem_new_array(const char *, (size_t)n + 1);
	_cleanup_(buf_release) struct buf list = { 0 };
	const char *nearest;

	buf_init(&list, 700);
	for (int i = 0; i < n; i++) {
		known[i] = PQgetvalue(l->columns, i, COLUMN_NAME);
		buf_printf(&list, "%s%s", i ? ", " : "", known[i]);
	}
	nearest = suggest_nearest(name, known, (size_t)n);
	error_set(err, ERROR_CONFIG, "outboxes.%s.%s: table %s has no column %s", outbox_path(l->outbox), key,
		  l->outbox->table, name);
	if (strcmp(key, ROUTE_KEY) == 0)
		error_hint(err, "templates may use its columns: %s", buf_str(&list));
	else if (nearest)
		error_hint(err, "set outboxes.%s.%s to %s perhaps; the columns are %s", outbox_path(l->outbox), key, nearest,
			   buf_str(&list));
	else
		error_hint(err, "set outboxes.%s.%s to one of its columns: %s", outbox_path(l->outbox), key, buf_str(&list));
	return place(err, where ? where : l->outbox->where);
}

static bool map_columns(struct lookup *l, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(table_mappings); i++) {
		const struct table_mapping *m = &table_mappings[i];
		const struct column_config *wanted = table_mapped_column(m, &l->outbox->columns);
		_cleanup_(mem_freep) char *key = mem_printf("columns.%s", m->key);

		if (!wanted->name[0] || find_column(l, wanted->name, &l->table->columns[m->field]))
			continue;
		if (m->required || wanted->where)
			return missing_column(l, key, wanted->name, wanted->where, err);
	}
	return true;
}

/* A row without an id could be published, and never settled. */
static bool check_id(const struct outbox_config *outbox, const struct table *t, struct error *err)
{
	const struct table_column *id = &t->columns[FIELD_ID];
	const char *where = outbox->columns.id.where;

	if (!id->nullable)
		return true;
	error_set(err, ERROR_CONFIG, "outboxes.%s.columns.id: column %s of %s may be NULL", outbox_path(outbox), id->name,
		  outbox->table);
	error_hint(err, "ALTER TABLE %s ALTER COLUMN %s SET NOT NULL;", t->name, id->quoted);
	return place(err, where ? where : outbox->where);
}

static bool map_order(struct lookup *l, struct error *err)
{
	const struct column_config *wanted = &l->outbox->order_by;

	if (!wanted->name[0])
		wanted = &l->outbox->columns.id;
	return find_column(l, wanted->name, &l->table->order) ||
	       missing_column(l, "order_by", wanted->name, wanted->where, err);
}

/* An index that has only some of the rows is one of those that are still to be published. */
static bool look_at_order(struct lookup *l, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	char oid[16];

	snprintf(oid, sizeof(oid), "%u", l->table->oid);
	if (!pg_query(l->conn, "look at the order of the table",
		      "SELECT FROM pg_catalog.pg_index i"
		      " JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = c.relam"
		      " JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
		      " WHERE i.indrelid = $1::pg_catalog.oid AND i.indisvalid AND m.amname = 'btree' AND a.attname = $2"
		      " AND (i.indpred IS NULL OR $4::pg_catalog.bool)"
		      " AND pg_catalog.pg_get_serial_sequence($3, $2) IS NOT NULL",
		      4,
		      (const char *const[]){ oid, l->table->order.name, l->table->name,
					     l->outbox->published == PUBLISHED_MARK ? "true" : "false" },
		      &res, err))
		return false;
	l->table->drawn_in_order = PQntuples(res) > 0;
	return true;
}

/* A time without a zone means another moment to each session, and a row would go out early. */
static bool wrong_type_of_schedule(const struct lookup *l, struct error *err)
{
	const struct table_column *c = &l->table->scheduled;
	const char *where = l->outbox->columns.scheduled_for.where;

	error_set(err, ERROR_CONFIG, "outboxes.%s.columns.scheduled_for: column %s of %s is of type %s", outbox_path(l->outbox),
		  c->name, l->outbox->table, c->type);
	error_hint(err, "it must be timestamptz: ALTER TABLE %s ALTER COLUMN %s TYPE timestamptz USING %s%s; or, if the column"
			" means something else, set outboxes.%s.columns.scheduled_for: \"\"", l->table->name, c->quoted, c->quoted,
		   strncmp(c->type, "timestamp", strlen("timestamp")) == 0 ? " AT TIME ZONE 'UTC'" : "::timestamptz",
		   outbox_path(l->outbox));
	return place(err, where ? where : l->outbox->where);
}

/* The order of the columns is that of enum table_partial. */
static bool find_partial_indexes(struct lookup *l, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	const struct table *t = l->table;
	char oid[16];

	snprintf(oid, sizeof(oid), "%u", t->oid);
	if (!pg_query(l->conn, "read the indexes of the table",
		      "SELECT coalesce(bool_or(a.attname = $3 AND b.attname = $4), false),"
		      " coalesce(bool_or(a.attname = $4), false), coalesce(bool_or(c.relname ~ '_shards_.*_now$'), false)"
		      " FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid"
		      " LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] AND a.attnum > 0"
		      " LEFT JOIN pg_catalog.pg_attribute b ON b.attrelid = i.indrelid AND b.attnum = i.indkey[1] AND b.attnum > 0"
		      " WHERE i.indrelid = $1::pg_catalog.oid AND i.indisvalid"
		      " AND pg_catalog.pg_get_expr(i.indpred, i.indrelid) = pg_catalog.format('(%I IS NULL)', $2::pg_catalog.text)",
		      4, (const char *const[]){ oid, t->scheduled.name, t->columns[FIELD_ENTITY].name, t->order.name }, &res, err))
		return false;
	for (int i = 0; i < PARTIAL_COUNT; i++)
		l->table->partial[i] = PQgetvalue(res, 0, i)[0] == 't';
	return true;
}

static bool map_schedule(struct lookup *l, struct error *err)
{
	const struct column_config *wanted = &l->outbox->columns.scheduled_for;

	if (!wanted->name[0])
		return true;
	if (!find_column(l, wanted->name, &l->table->scheduled))
		return !wanted->where || missing_column(l, "columns.scheduled_for", wanted->name, wanted->where, err);
	if (strncmp(l->table->scheduled.type, "timestamp", strlen("timestamp")) != 0 ||
	    !strstr(l->table->scheduled.type, "with time zone"))
		return wrong_type_of_schedule(l, err);
	return find_partial_indexes(l, err);
}

static bool map_extra(struct lookup *l, const char *const *extra, size_t n_extra, struct error *err)
{
	l->table->extra = mem_new_array(struct table_column, n_extra + 1);
	for (size_t i = 0; i < n_extra; i++, l->table->n_extra++)
		if (!find_column(l, extra[i], &l->table->extra[i]))
			return missing_column(l, ROUTE_KEY, extra[i], NULL, err);
	return true;
}

static bool map_mark(struct lookup *l, struct error *err)
{
	const struct column_config *wanted = &l->outbox->columns.published_at;
	struct table_column *c = &l->table->published_at;
	_cleanup_(mem_freep) char *quoted = pg_quote_name(l->conn, wanted->name);

	if (find_column(l, wanted->name, c) && strcmp(c->type, "timestamp with time zone") == 0 && c->nullable)
		return true;
	if (c->name) {
		error_set(err, ERROR_CONFIG, "outboxes.%s.columns.published_at: column %s of %s is %s%s", outbox_path(l->outbox), c->name,
			  l->outbox->table, c->type, c->nullable ? "" : " and NOT NULL");
		error_hint(err, "it must be timestamptz, NULL until the row is published");
	} else {
		error_set(err, ERROR_CONFIG, "outboxes.%s.columns.published_at: table %s has no column %s", outbox_path(l->outbox),
			  l->outbox->table, wanted->name);
		error_hint(err, "ALTER TABLE %s ADD COLUMN %s timestamptz; or set outboxes.%s.published to something else than mark",
			   l->table->name, quoted, outbox_path(l->outbox));
	}
	return place(err, wanted->where ? wanted->where : l->outbox->where);
}

/* As postrider.keep_archive names it. A column that only one of the two has is left alone, so that one which is added to the
 * outbox does not make settling fail. */
#define SELECT_ARCHIVE                                                                                              \
	"SELECT pg_catalog.format('%I.%I', n.nspname, a.relname),"                                                  \
	" (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c.attname), ', ' ORDER BY c.attnum)"                 \
	"  FROM pg_catalog.pg_attribute c JOIN pg_catalog.pg_attribute h ON h.attrelid = a.oid"                     \
	"   AND h.attname = c.attname AND h.attnum > 0"                                                             \
	"  WHERE c.attrelid = t.oid AND c.attnum > 0 AND c.attname <> 'published_at')"                              \
	" FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace"                      \
	" JOIN pg_catalog.pg_class a ON a.relnamespace = n.oid AND a.relkind = 'p'"                                 \
	"  AND a.relname = pg_catalog.left(t.relname, 55) || '_archive'"                                            \
	" WHERE t.oid = $1::pg_catalog.oid"

static bool find_archive(struct lookup *l, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	char oid[16];

	snprintf(oid, sizeof(oid), "%u", l->table->oid);
	if (!pg_query(l->conn, "look up the archive", SELECT_ARCHIVE, 1, (const char *const[]){ oid }, &res, err))
		return false;
	if (PQntuples(res) == 0) {
		error_set(err, ERROR_CONFIG, "outboxes.%s.published: table %s has no archive", outbox_path(l->outbox), l->outbox->table);
		error_hint(err, "run `postrider init`, which makes it");
		return place(err, l->outbox->where);
	}
	l->table->archive = mem_strdup(PQgetvalue(res, 0, 0));
	l->table->archive_columns = mem_strdup(PQgetvalue(res, 0, 1));
	return true;
}

static bool map_published(struct lookup *l, struct error *err)
{
	switch (l->outbox->published) {
	case PUBLISHED_MARK:
		return map_mark(l, err);
	case PUBLISHED_ARCHIVE:
		return find_archive(l, err);
	default:
		return true;
	}
}

/* Types whose binary form relay/field.c can write as text, and the only field where that is so, if not all. A cast would
 * cost the server more than all else it does to read a row. */
static const struct {
	const char *type;
	enum field only;                /* FIELD_EXTRA: any */
} uncast[] = {
	{ "bigint", FIELD_EXTRA }, { "integer", FIELD_EXTRA },  { "smallint", FIELD_EXTRA },
	{ "uuid", FIELD_EXTRA },   { "text", FIELD_EXTRA },     { "json", FIELD_EXTRA },
	{ "jsonb", FIELD_EXTRA },  { "bytea", FIELD_PAYLOAD },  { "timestamp with time zone", FIELD_CREATED_AT },
};

bool table_is_uncast(const struct table_column *c, enum field field)
{
	if (strncmp(c->type, "character varying", strlen("character varying")) == 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(uncast); i++)
		if (strcmp(c->type, uncast[i].type) == 0)
			return uncast[i].only == FIELD_EXTRA || uncast[i].only == field;
	return false;
}

char *table_pending(const struct table *t)
{
	return t->published_at.name ? mem_printf("o.%s IS NULL", t->published_at.quoted) : mem_strdup("true");
}

void table_add_expression(struct buf *list, const struct table_column *c, enum field field)
{
	if (list->len)
		buf_add_str(list, ", ");
	if (!c->name)
		buf_add_str(list, "NULL::pg_catalog.text");
	else
		buf_printf(list, table_is_uncast(c, field) ? "o.%s" : "o.%s::pg_catalog.text", c->quoted);
}

static bool build_select_list(struct table *t, struct error *err)
{
	_cleanup_(buf_release) struct buf list = { 0 };

	buf_init(&list, SELECT_LIST_CEILING);
	for (enum field f = 0; f < FIELD_EXTRA; f++)
		table_add_expression(&list, &t->columns[f], f);
	for (size_t i = 0; i < t->n_extra; i++)
		table_add_expression(&list, &t->extra[i], FIELD_EXTRA);
	if (list.overflow)
		return error_set(err, ERROR_CONFIG, "templates name too many columns");
	t->select_list = buf_take(&list);
	return true;
}

static void lookup_release(struct lookup *l)
{
	PQclear(l->columns);
	table_free(l->table);
}

static bool open_table(PGconn *conn, const struct outbox_config *outbox, const char *const *extra, size_t n_extra,
		       bool history, struct table **ret, struct error *err)
{
	_cleanup_(lookup_release) struct lookup l = { .conn = conn, .outbox = outbox, .table = mem_new(struct table) };

	if (!find_relation(&l, err) || !table_read_columns(l.conn, l.table->oid, &l.columns, err) || !map_columns(&l, err) ||
	    !map_order(&l, err) || !map_extra(&l, extra, n_extra, err))
		return false;
	if (!history && (!check_id(outbox, l.table, err) || !map_schedule(&l, err) || !look_at_order(&l, err) ||
			 !map_published(&l, err)))
		return false;
	if (!build_select_list(l.table, err))
		return false;
	*ret = TAKE_PTR(l.table);
	return true;
}

bool table_open(PGconn *conn, const struct outbox_config *outbox, const char *const *extra, size_t n_extra,
		struct table **ret, struct error *err)
{
	return open_table(conn, outbox, extra, n_extra, false, ret, err);
}

bool table_open_history(PGconn *conn, const struct outbox_config *outbox, const char *const *extra, size_t n_extra,
			struct table **ret, struct error *err)
{
	return open_table(conn, outbox, extra, n_extra, true, ret, err);
}

bool table_number(PGconn *conn, const struct table *t, int *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pg_query(conn, "look up the outbox", "SELECT id FROM postrider.outbox WHERE table_name = $1", 1,
		      (const char *const[]){ t->name }, &res, err))
		return false;
	if (PQntuples(res) == 0) {
		error_set(err, ERROR_CONFIG, "table %s is not registered as an outbox", t->name);
		return error_hint(err, "run `postrider init --existing %s`", t->name);
	}
	*ret = atoi(PQgetvalue(res, 0, 0));
	return true;
}

bool table_check_marks(PGconn *conn, const struct outbox_config *outbox, const struct table *t, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (outbox->published == PUBLISHED_MARK)
		return true;
	if (!pg_query(conn, "look for marks", "SELECT pg_catalog.quote_ident(l.column_name) FROM postrider.lean l"
		      " JOIN postrider.outbox o ON o.id = l.outbox WHERE o.table_name = $1 AND l.published = 'mark'", 1,
		      (const char *const[]){ t->name }, &res, err))
		return false;
	if (PQntuples(res) == 0)
		return true;
	error_set(err, ERROR_CONFIG, "outboxes.%s.published: rows of %s are marked when they are published, and with another way"
		  " they would all be published again", outbox_path(outbox), t->name);
	error_hint(err, "set `published: mark`; or DELETE FROM %s WHERE %s IS NOT NULL; and run `postrider init`", t->name,
		   PQgetvalue(res, 0, 0));
	return place(err, outbox->where);
}
