#include "sink/branch_check.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "pg/exec.h"
#include "sink/branch_plan.h"

#define LIST_CEILING (64 * 1024)

/* $1 outbox, $2 branch, $3 columns that the outbox has for itself, $4 the column of ids. Of which type each column is that the
 * branch lacks, or has of another type; and whether the role may do what is done there. */
#define SELECT_COLUMNS                                                                                               \
	"SELECT pg_catalog.quote_ident(a.attname), pg_catalog.format_type(a.atttypid, a.atttypmod),"                 \
	" pg_catalog.format_type(b.atttypid, b.atttypmod)"                                                           \
	" FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attribute b ON b.attrelid = pg_catalog.to_regclass($2)" \
	"  AND b.attname = a.attname AND b.attnum > 0"                                                               \
	" WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped"                     \
	"  AND a.attname <> ALL ($3::pg_catalog.text[]) AND pg_catalog.to_regclass($2) IS NOT NULL"                  \
	"  AND (b.attname IS NULL OR b.atttypid <> a.atttypid OR b.atttypmod <> a.atttypmod) ORDER BY a.attnum"

static void check_columns(PGconn *conn, const struct outbox_config *outbox, const char *table,
			  const struct outbox_config *branch, struct finding_list *findings)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *own = branch_own_columns(outbox);
	struct error err;

	if (!pg_query(conn, "compare a branch with its outbox", SELECT_COLUMNS, 3,
		      (const char *const[]){ table, branch->table, own }, &res, &err)) {
		finding_add_error(findings, &err);
		return;
	}
	for (int i = 0; i < PQntuples(res); i++) {
		const char *column = PQgetvalue(res, i, 0), *type = PQgetvalue(res, i, 1);
		_cleanup_(mem_freep) char *alter = mem_printf("ALTER TABLE %s ALTER COLUMN %s TYPE %s;", branch->table, column, type);

		if (PQgetisnull(res, i, 2))
			finding_add(findings, FINDING_WARN, "run `postrider init`, and start the relay again",
				    "branch %s: column %s of %s is not copied, %s does not have it", branch->name, column,
				    outbox->table, branch->table);
		else
			finding_add(findings, FINDING_WARN, alter, "branch %s: column %s is of type %s, and in %s of type %s",
				    branch->name, column, PQgetvalue(res, i, 2), outbox->table, type);
	}
}

static void check_locking(PGconn *conn, const struct outbox_config *outbox, const char *table, struct finding_list *findings)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *id = pg_quote_name(conn, outbox->columns.id.name);
	_cleanup_(mem_freep) char *fix = mem_printf("GRANT UPDATE (%s) ON %s TO the role of the relay", id, table);
	struct error err;

	if (!pg_query(conn, "look at the right to lock rows", "SELECT has_any_column_privilege($1, 'UPDATE')", 1,
		      (const char *const[]){ table }, &res, &err))
		finding_add_error(findings, &err);
	else if (PQgetvalue(res, 0, 0)[0] != 't')
		finding_add(findings, FINDING_FAIL, fix,
			    "outbox %s: rows are locked while they move to branches, for which PostgreSQL wants UPDATE on some column",
			    outbox->name);
}

void branch_check_tables(PGconn *conn, const struct outbox_config *outbox, struct finding_list *findings)
{
	_cleanup_(mem_freep) char *table = NULL;
	struct error ignored;

	if (!pg_quote_qualified(conn, outbox->table, &table, &ignored))
		return; /* told with the table itself */
	check_locking(conn, outbox, table, findings);
	for (size_t i = 0; i < outbox->n_branches; i++)
		check_columns(conn, outbox, table, &outbox->branches[i], findings);
}

static char *tables_of(const struct outbox_config *outbox)
{
	_cleanup_(buf_release) struct buf list = { 0 };

	buf_init(&list, LIST_CEILING);
	buf_add_char(&list, '{');
	for (size_t i = 0; i < outbox->n_branches; i++) {
		if (i > 0)
			buf_add_char(&list, ',');
		buf_add_array_element(&list, slice_of(outbox->branches[i].table));
	}
	buf_add_char(&list, '}');
	return buf_take(&list);
}

static bool count_rows(PGconn *conn, const char *table, long *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *sql = mem_printf("SELECT count(*) FROM (SELECT FROM %s LIMIT %d) AS counted", table,
						    BRANCH_COUNTED_MAX);

	if (!pg_query(conn, "count the rows of a former branch", sql, 0, NULL, &res, err))
		return false;
	*ret = atol(PQgetvalue(res, 0, 0));
	return true;
}

bool branch_find_left_over(PGconn *conn, const struct outbox_config *outbox, branch_left_over *found, void *arg,
			   struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *tables = tables_of(outbox), *table = NULL;

	if (!pg_quote_qualified(conn, outbox->table, &table, err) ||
	    !pg_query(conn, "look for former branches",
		      "SELECT o.table_name FROM postrider.branch b JOIN postrider.outbox o ON o.id = b.outbox"
		      " JOIN postrider.outbox p ON p.id = b.parent"
		      " WHERE pg_catalog.to_regclass(p.table_name) = pg_catalog.to_regclass($1)"
		      "  AND o.table_name <> ALL ($2::pg_catalog.text[]) AND pg_catalog.to_regclass(o.table_name) IS NOT NULL"
		      " ORDER BY o.id",
		      2, (const char *const[]){ table, tables }, &res, err))
		return false;
	for (int i = 0; i < PQntuples(res); i++) {
		long rows;

		if (!count_rows(conn, PQgetvalue(res, i, 0), &rows, err))
			return false;
		if (rows > 0)
			found(arg, PQgetvalue(res, i, 0), rows);
	}
	return true;
}
