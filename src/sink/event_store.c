#include "sink/event_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "pg/exec.h"

static const char *const store_column_names[STORE_COLUMNS] = {
	[STORE_ENTITY_TYPE] = "entity_type", [STORE_ENTITY_ID] = "entity_id",   [STORE_EVENT_TYPE] = "event_type",
	[STORE_MESSAGE_ID] = "message_id",   [STORE_PAYLOAD] = "payload",       [STORE_HEADERS] = "headers",
	[STORE_CREATED_AT] = "created_at",   [STORE_VERSION] = "version",
};

/* $1 the table, $2 names of columns, $3 those of the index that guards versions, sorted. Types without their length: a cast to varchar(10) would cut silently, while
 * storing into such a column fails. */
#define LEARN_SQL                                                                                                 \
	"SELECT pg_catalog.to_regclass($1) IS NOT NULL, pg_catalog.format_type(a.atttypid, NULL),"                \
	"  (SELECT c.relname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid"       \
	"   WHERE i.indrelid = pg_catalog.to_regclass($1) AND i.indisunique AND $3::pg_catalog.text[] ="          \
	"    (SELECT pg_catalog.array_agg(k.attname::pg_catalog.text ORDER BY k.attname::pg_catalog.text COLLATE \"C\")" \
	"     FROM pg_catalog.pg_attribute k WHERE k.attrelid = i.indexrelid) LIMIT 1)"                           \
	" FROM pg_catalog.unnest($2::pg_catalog.text[]) WITH ORDINALITY AS w(name, place)"                        \
	" LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = pg_catalog.to_regclass($1)"                         \
	"  AND a.attname = w.name AND a.attnum > 0 AND NOT a.attisdropped"                                        \
	" ORDER BY w.place"

/* Two subqueries instead of joins: their plan is one index descent per row whatever the statistics say, also while an
 * empty table grows to millions under the plan that was made for it. */
#define INSERT_SQL                                                                                                \
	"WITH cast_rows AS ("                                                                                     \
	"  SELECT %s, g.place FROM ROWS FROM (%s) WITH ORDINALITY"                                                \
	"   AS g(entity_type, entity_id, event_type, message_id, payload, headers, created_at, place)"            \
	"), given AS ("                                                                                           \
	"  SELECT DISTINCT ON (c.message_id) c.* FROM cast_rows c ORDER BY c.message_id, c.place"                 \
	"), fresh AS ("                                                                                           \
	"  SELECT g.*, pg_catalog.row_number() OVER (PARTITION BY g.entity_type, g.entity_id ORDER BY g.place) AS nth" \
	"  FROM given g WHERE (SELECT true FROM %s e WHERE e.message_id = g.message_id) IS NULL"                  \
	")"                                                                                                       \
	" INSERT INTO %s (entity_type, entity_id, version, event_type, message_id, payload, headers, created_at)" \
	" SELECT f.entity_type, f.entity_id,"                                                                     \
	"  coalesce((SELECT pg_catalog.max(e.version) FROM %s e"                                                  \
	"            WHERE e.entity_type = f.entity_type AND e.entity_id = f.entity_id), 0) + f.nth,"             \
	"  f.event_type, f.message_id, f.payload, f.headers, f.created_at"                                        \
	" FROM fresh f ORDER BY f.place"                                                                          \
	" ON CONFLICT (message_id) DO NOTHING"

static bool is_bytea(const struct event_store *store, enum store_column column)
{
	return strcmp(store->types[column], "bytea") == 0;
}

static char *insert_sql(const struct event_store *store)
{
	_cleanup_(buf_release) struct buf casts = { 0 }, arrays = { 0 };

	buf_init(&casts, 1 << 16);
	buf_init(&arrays, 1 << 16);
	for (int i = 0; i < STORE_FILLED; i++) {
		const char *name = store_column_names[i];

		/* An entity without a type has the empty one: NULLs would not meet in the unique index. */
		buf_printf(&casts, i == STORE_ENTITY_TYPE ? "%scoalesce(g.%s, '')::%s AS %s" : "%sg.%s::%s AS %s",
			   i ? ", " : "", name, store->types[i], name);
		buf_printf(&arrays, "%spg_catalog.unnest($%d::pg_catalog.%s[])", i ? ", " : "", i + 1,
			   is_bytea(store, i) ? "bytea" : "text");
	}
	return mem_printf(INSERT_SQL, buf_str(&casts), buf_str(&arrays), store->table, store->table, store->table);
}

static bool missing_table(const char *table, struct error *err)
{
	error_set(err, ERROR_CONFIG, "the event store %s does not exist", table);
	if (strcmp(table, "postrider.event") == 0)
		return error_hint(err, "run `postrider init`");
	return error_hint(err, "CREATE TABLE %s (LIKE postrider.event INCLUDING ALL);", table);
}

static bool missing_column(const char *table, enum store_column column, struct error *err)
{
	static const char *const types[STORE_COLUMNS] = {
		[STORE_ENTITY_TYPE] = "text NOT NULL DEFAULT ''", [STORE_ENTITY_ID] = "text NOT NULL",
		[STORE_EVENT_TYPE] = "text",                      [STORE_MESSAGE_ID] = "text NOT NULL UNIQUE",
		[STORE_PAYLOAD] = "json",                         [STORE_HEADERS] = "jsonb",
		[STORE_CREATED_AT] = "timestamptz",               [STORE_VERSION] = "bigint NOT NULL",
	};
	const char *name = store_column_names[column];

	error_set(err, ERROR_CONFIG, "the event store %s has no column %s", table, name);
	return error_hint(err, "ALTER TABLE %s ADD COLUMN %s %s;", table, name, types[column]);
}

char *event_store_column_list(void)
{
	_cleanup_(buf_release) struct buf list = { 0 };

	buf_init(&list, 1024);
	for (int i = 0; i < STORE_COLUMNS; i++)
		buf_printf(&list, "%c%s", i ? ',' : '{', store_column_names[i]);
	buf_add_char(&list, '}');
	return buf_take(&list);
}

static void event_store_free(struct store *base)
{
	struct event_store *store = (struct event_store *)base;

	for (int i = 0; i < STORE_COLUMNS; i++)
		free(store->types[i]);
	free(store->table);
	free(store->version_index);
	free(store->store.append);
	free(store);
}

static void event_store_freep(struct event_store **store)
{
	if (*store)
		event_store_free(&(*store)->store);
}

static bool event_store_learn(PGconn *conn, const char *table, struct store **ret, struct error *err)
{
	_cleanup_(event_store_freep) struct event_store *store = mem_new(struct event_store);
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *columns = event_store_column_list();

	if (!pg_quote_qualified(conn, table, &store->table, err))
		return false;
	if (!pg_query(conn, "look up the event store", LEARN_SQL, 3,
		      (const char *const[]){ store->table, columns, "{entity_id,entity_type,version}" }, &res, err))
		return false;
	if (PQgetvalue(res, 0, 0)[0] != 't')
		return missing_table(table, err);
	for (int i = 0; i < STORE_COLUMNS; i++) {
		if (PQgetisnull(res, i, 1))
			return missing_column(table, i, err);
		store->types[i] = mem_strdup(PQgetvalue(res, i, 1));
	}
	if (!PQgetisnull(res, 0, 2))
		store->version_index = mem_strdup(PQgetvalue(res, 0, 2));
	store->store.kind = &event_store_kind;
	store->store.append = insert_sql(store);
	store->store.n_columns = STORE_FILLED;
	for (int i = 0; i < STORE_FILLED; i++)
		store->store.bytes |= is_bytea(store, i) ? 1u << i : 0;
	*ret = &TAKE_PTR(store)->store;
	return true;
}

/* Two gave a version of an entity at the same time, or would have but for a deadlock. Readers that keep no order let that
 * happen. The next attempt finds the next version. */
static bool event_store_was_outrun(const struct store *base, const PGresult *res)
{
	const struct event_store *store = (const struct event_store *)base;
	const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	const char *constraint = PQresultErrorField(res, PG_DIAG_CONSTRAINT_NAME);

	if (store_was_deadlock(res))
		return true;
	return sqlstate && strcmp(sqlstate, "23505") == 0 && constraint && store->version_index &&
	       strcmp(constraint, store->version_index) == 0;
}

const struct store_kind event_store_kind = {
	.name = "event store",
	.learn = event_store_learn,
	.free = event_store_free,
	.was_outrun = event_store_was_outrun,
	.check = event_store_check,
};
