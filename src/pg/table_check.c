/* What `check` says about an outbox table. Each check is one function and adds a finding only for what is wrong; a
 * table with nothing wrong gets one that says so. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "pg/exec.h"
#include "pg/migrate.h"
#include "pg/schedule_check.h"
#include "pg/table.h"

enum { NAMELESS_MAX = 10000 };          /* nobody needs to know how many more there are */

struct table_checks {
	PGconn *conn;
	const struct outbox_config *outbox;
	const struct table *table;
	struct finding_list *findings;
	char oid[16];
	char *role;                     /* quoted */
	int number;                     /* in postrider.outbox; 0: not registered */
};

#define fix_printf(...) _cleanup_(mem_freep) char *fix = mem_printf(__VA_ARGS__)
#define report(k, level, fix, text, ...) \
	finding_add((k)->findings, level, fix, "table %s: " text, (k)->table->name __VA_OPT__(, ) __VA_ARGS__)

/* A query about the table that gives one row. False, and a finding, when it fails. */
static bool ask(struct table_checks *k, const char *doing, const char *sql, int n_params, const char *const *params,
		PGresult **ret)
{
	struct error err;

	if (pg_query(k->conn, doing, sql, n_params, params, ret, &err))
		return true;
	finding_add_error(k->findings, &err);
	return false;
}

static bool is_true(const PGresult *res, int column)
{
	return PQntuples(res) > 0 && PQgetvalue(res, 0, column)[0] == 't';
}

static bool has_type(const struct table_column *c, const char *type)
{
	return c->name && strcmp(c->type, type) == 0;
}

/* False when the table cannot be read, and looking into it would only say so again. */
static bool check_privileges(struct table_checks *k)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	size_t before = k->findings->count;

	if (!ask(k, "read the privileges on the table",
		 "SELECT pg_catalog.has_table_privilege($1::pg_catalog.oid, 'SELECT')"
		 " AND pg_catalog.has_table_privilege($1::pg_catalog.oid, 'DELETE'),"
		 " pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE'), c.relnamespace::pg_catalog.regnamespace,"
		 " pg_catalog.row_security_active(c.oid)"
		 " FROM pg_catalog.pg_class c WHERE c.oid = $1::pg_catalog.oid",
		 1, (const char *const[]){ k->oid }, &res))
		return false;
	if (!is_true(res, 1)) {
		fix_printf("GRANT USAGE ON SCHEMA %s TO %s;", PQgetvalue(res, 0, 2), k->role);
		report(k, FINDING_FAIL, fix, "role %s may not look into its schema", k->role);
	}
	if (!is_true(res, 0)) {
		fix_printf("GRANT SELECT, DELETE ON %s TO %s;", k->table->name, k->role);
		report(k, FINDING_FAIL, fix, "role %s lacks SELECT or DELETE", k->role);
	}
	if (k->findings->count > before)
		return false;
	if (is_true(res, 3)) {
		fix_printf("ALTER ROLE %s BYPASSRLS;", k->role);
		report(k, FINDING_WARN, fix,
		       "row-level security applies to role %s, and rows that it hides are never published", k->role);
	}
	return true;
}

/* The server itself says best whether the rows can be read and sorted as readers do. */
static void check_readable(struct table_checks *k)
{
	_cleanup_(mem_freep) char *read = NULL, *sort = NULL;
	const struct table_column *entity = &k->table->columns[FIELD_ENTITY];
	struct error err;

	read = mem_printf("SELECT %s FROM %s o LIMIT 0", k->table->select_list, k->table->name);
	if (!pg_query(k->conn, "read the table", read, 0, NULL, NULL, &err))
		finding_add_error(k->findings, &err);
	sort = mem_printf("SELECT FROM %s o ORDER BY o.%s, o.%s LIMIT 0", k->table->name, entity->quoted,
			  k->table->order.quoted);
	if (pg_query(k->conn, "sort", sort, 0, NULL, NULL, &err))
		return;
	fix_printf("set outboxes.%s.order_by to a column that says in which order rows were written", outbox_path(k->outbox));
	report(k, FINDING_FAIL, fix, "rows cannot be put in order by %s and %s: %s", entity->name, k->table->order.name,
	       err.message);
}

/* Version 7 begins with the time; of others nothing can be sorted. Rows or the default tell which it is. */
static void check_uuid_order(struct table_checks *k)
{
	_cleanup_(mem_freep) char *sql = NULL;
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	const char *column = k->table->order.quoted;

	if (!has_type(&k->table->order, "uuid"))
		return;
	sql = mem_printf("SELECT coalesce(bool_and(substr(s.%s::text, 15, 1) = '7'),"
			 " (SELECT pg_get_expr(d.adbin, d.adrelid) ~ 'uuid.*v7' FROM pg_attrdef d JOIN pg_attribute a"
			 "  ON a.attrelid = d.adrelid AND a.attnum = d.adnum"
			 "  WHERE d.adrelid = $1::oid AND a.attname = $2::text))"
			 " FROM (SELECT o.%s FROM %s o LIMIT 100) s",
			 column, column, k->table->name);
	if (!ask(k, "look at the order column", sql, 2, (const char *const[]){ k->oid, k->table->order.name }, &res) ||
	    is_true(res, 0))
		return;
	fix_printf("set outboxes.%s.order_by to a column that grows (an identity column, a version 7 uuid), or use a "
		   "reader that follows commit order",
		   outbox_path(k->outbox));
	report(k, FINDING_WARN, fix,
	       "%s is a random uuid, which says nothing about the order in which rows were written",
	       k->table->order.name);
}

/* Rows that only some readers publish: those that keep no order, and `wal`. True when there are any. */
static bool check_nameless(struct table_checks *k, const struct table_column *c)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *sql = mem_printf("SELECT count(*) FROM (SELECT FROM %s o WHERE o.%s IS NULL LIMIT %d) s",
						    k->table->name, c->quoted, NAMELESS_MAX);
	long long rows;

	if (!ask(k, "count rows without an entity", sql, 0, NULL, &res))
		return false;
	rows = atoll(PQgetvalue(res, 0, 0));
	if (rows == 0)
		return false;
	fix_printf("UPDATE %s SET %s = %s::text WHERE %s IS NULL; ALTER TABLE %s ALTER COLUMN %s SET NOT NULL;",
		   k->table->name, c->quoted, k->table->columns[FIELD_ID].quoted, c->quoted, k->table->name, c->quoted);
	report(k, FINDING_WARN, fix, "%s is NULL in %lld%s rows, which are never published where order is kept", c->name,
	       rows, rows == NAMELESS_MAX ? " or more" : "");
	return true;
}

static void check_nullable(struct table_checks *k)
{
	const struct table_column *c = &k->table->columns[FIELD_ENTITY];

	if (!c->nullable || check_nameless(k, c))
		return;
	fix_printf("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL;", k->table->name, c->quoted);
	report(k, FINDING_WARN, fix, "%s may be NULL, and a row without it is never published", c->name);
}

/* Is there a valid btree index that begins with these columns? second may be NULL. It has the rows of which `null`, if
 * there is such a column, is NULL; or all rows, where these are not many more: not those that are marked as published. */
static bool has_index(struct table_checks *k, const char *first, const char *second, const struct table_column *null,
		      bool unique, bool *ret)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *test = null && null->name ? mem_printf("(%s IS NULL)", null->name) : NULL;
	bool whole = !test || null != &k->table->published_at;

	if (!ask(k, "read the indexes of the table",
		 "SELECT EXISTS (SELECT FROM pg_index i"
		 " JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam"
		 " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
		 " LEFT JOIN pg_attribute b ON b.attrelid = i.indrelid AND b.attnum = i.indkey[1]"
		 " WHERE i.indrelid = $1::oid AND i.indisvalid AND m.amname = 'btree'"
		 " AND CASE WHEN i.indpred IS NULL THEN $6::bool"
		 "   ELSE replace(pg_get_expr(i.indpred, i.indrelid), '\"', '') = coalesce($5::text, '') END"
		 " AND a.attname = $2::text AND ($3::text IS NULL OR b.attname = $3::text)"
		 " AND (NOT $4::bool OR (i.indisunique AND i.indnkeyatts = 1)))",
		 6, (const char *const[]){ k->oid, first, second, unique ? "true" : "false", test, whole ? "true" : "false" }, &res))
		return false;
	*ret = is_true(res, 0);
	return true;
}

static void check_indexes(struct table_checks *k)
{
	const struct table_column *id = &k->table->columns[FIELD_ID], *entity = &k->table->columns[FIELD_ENTITY];
	const struct table_column *order = &k->table->order;
	/* PostgreSQL cannot build an index of a partitioned table concurrently. */
	const char *how = k->table->partitioned ? "INDEX" : "INDEX CONCURRENTLY";
	const struct table_column *null = k->table->published_at.name ? &k->table->published_at : &k->table->scheduled;
	bool walk, find, unique = true;

	if (!has_index(k, entity->name, order->name, null, false, &walk) ||
	    !has_index(k, id->name, NULL, NULL, false, &find))
		return;
	if (!walk) {
		fix_printf("CREATE %s ON %s (%s, %s)%s%s%s;", how, k->table->name, entity->quoted, order->quoted,
			   null->name ? " WHERE " : "", null->name ? null->quoted : "", null->name ? " IS NULL" : "");
		report(k, FINDING_WARN, fix, "no index on (%s, %s), so each claim reads the whole table", entity->name,
		       order->name);
	}
	/* A unique index of a partitioned table must contain its partition key, and seldom is of the id alone. */
	if (find && !k->table->partitioned && !has_index(k, id->name, NULL, NULL, true, &unique))
		return;
	if (!find || !unique) {
		fix_printf("CREATE %s%s ON %s (%s);", k->table->partitioned ? "" : "UNIQUE ", how, k->table->name,
			   id->quoted);
		report(k, FINDING_WARN, fix, "%s",
		       find ? "the id is not unique, so a message's id may be another's too"
			    : "no index on the id, so nothing keeps two rows from having the same");
	}
}

static void check_sequence(struct table_checks *k)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!ask(k, "read the sequence of the order column",
		 "SELECT s.seqrelid::regclass, s.seqcache FROM pg_sequence s"
		 " WHERE s.seqrelid = pg_get_serial_sequence($1::text, $2::text)::regclass AND s.seqcache > 1",
		 2, (const char *const[]){ k->table->name, k->table->order.name }, &res) ||
	    PQntuples(res) == 0)
		return;
	fix_printf("ALTER SEQUENCE %s CACHE 1;", PQgetvalue(res, 0, 0));
	report(k, FINDING_WARN, fix,
	       "the sequence of %s gives %s numbers at a time to each session, so a later row can get a lower number",
	       k->table->order.name, PQgetvalue(res, 0, 1));
}

/* The schema postrider: what the relay's role may do there. */
static void check_own_privileges(struct table_checks *k)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!ask(k, "read the privileges on the schema postrider",
		 "SELECT string_agg(p.privilege || ' ON ' || w.relation, ', ' ORDER BY w.relation, p.privilege)"
		 " FROM postrider.relay_right w, unnest(w.privileges) AS p(privilege)"
		 " WHERE NOT has_table_privilege(w.relation, p.privilege)",
		 0, NULL, &res) ||
	    PQgetisnull(res, 0, 0))
		return;
	fix_printf("postrider init --existing %s --role %s    (as the owner of the table)", k->table->name, k->role);
	finding_add(k->findings, FINDING_FAIL, fix, "schema postrider: role %s lacks %s", k->role,
		    PQgetvalue(res, 0, 0));
}

static void check_bell(struct table_checks *k)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *bell = mem_printf("postrider.bell_%d", k->number);

	if (k->outbox->wakeup == WAKEUP_OFF)
		return;
	if (!ask(k, "look for the trigger",
		 "SELECT to_regclass($2::text) IS NOT NULL"
		 " AND EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = $1::oid AND t.tgname = 'postrider_ring'"
		 "  AND t.tgenabled IN ('O', 'A')),"
		 " coalesce(has_sequence_privilege(to_regclass($2::text), 'UPDATE'), true)",
		 2, (const char *const[]){ k->oid, bell }, &res))
		return;
	if (!is_true(res, 0)) {
		fix_printf("postrider init --existing %s    (or set outboxes.%s.wakeup: off)", k->table->name,
			   outbox_path(k->outbox));
		report(k, FINDING_WARN, fix,
		       "the trigger postrider_ring or its bell is missing, so rows wait for the next poll");
	}
	if (!is_true(res, 1)) {
		fix_printf("GRANT SELECT, UPDATE ON SEQUENCE %s TO %s;", bell, k->role);
		report(k, FINDING_FAIL, fix, "role %s may not set its bell", k->role);
	}
}

static void check_installation(struct table_checks *k)
{
	struct error err;

	/* Said once for the whole database, by the caller. */
	if (!migrate_version_check(k->conn, &err))
		return;
	check_own_privileges(k);
	schedule_check(k->conn, k->outbox, k->table, k->findings);
	if (!table_number(k->conn, k->table, &k->number, &err))
		finding_add_error(k->findings, &err);
	else
		check_bell(k);
	if (!table_check_marks(k->conn, k->outbox, k->table, &err))
		finding_add_error(k->findings, &err);
	table_check_lean(k->conn, k->outbox, k->table, k->findings);
}

static void table_checks_release(struct table_checks *k)
{
	free(k->role);
}

void table_check(PGconn *conn, const struct outbox_config *outbox, const struct table *t,
		 struct finding_list *findings)
{
	_cleanup_(table_checks_release) struct table_checks k = { conn, outbox, t, findings, .role = NULL };
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	size_t before = findings->count;

	snprintf(k.oid, sizeof(k.oid), "%u", t->oid);
	if (!ask(&k, "ask for the role", "SELECT pg_catalog.quote_ident(current_user)", 0, NULL, &res))
		return;
	k.role = mem_strdup(PQgetvalue(res, 0, 0));
	if (check_privileges(&k)) {
		check_readable(&k);
		check_uuid_order(&k);
	}
	check_nullable(&k);
	check_indexes(&k);
	check_sequence(&k);
	check_installation(&k);
	if (findings->count == before)
		report(&k, FINDING_OK, NULL, "columns, privileges, indexes, order and trigger are right");
}
