#include "pg/install.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "pg/exec.h"
#include "pg/migrate.h"

/* %1$s: the table; %2$s: its column of schedules, or nothing. Its indexes: postrider.index_outbox. */
#define CREATE_OUTBOX                                                                                            \
	"CREATE TABLE IF NOT EXISTS %1$s (\n"                                                                    \
	"\tid          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,                -- order\n"               \
	"\tmessage_id  uuid NOT NULL DEFAULT pg_catalog.gen_random_uuid(),             -- deduplication\n"       \
	"\tentity_type text NOT NULL,                                                  -- topic\n"               \
	"\tentity_id   text NOT NULL,                                                  -- key\n"                 \
	"\tevent_type  text NOT NULL,\n"                                                                         \
	"\tpayload     json,                                                           -- kept byte for byte\n"  \
	"\theaders     jsonb,\n"                                                                                 \
	"\ttopic       text,                                                           -- overrides\n"           \
	"\ttraceparent text,                                                           -- W3C trace context\n"   \
	"\tcreated_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()%2$s\n"                         \
	") WITH (\n"                                                                                             \
	"\t-- Each row is deleted soon after it is written, and the size of the table swings between nothing\n"  \
	"\t-- and a backlog: vacuum by the number of dead rows, not by a share of the size, and at full speed.\n" \
	"\tautovacuum_vacuum_scale_factor = 0,\n"                                                                \
	"\tautovacuum_vacuum_threshold = 1000,\n"                                                                \
	"\tautovacuum_vacuum_cost_delay = 0,\n"                                                                  \
	"\ttoast.autovacuum_vacuum_scale_factor = 0,\n"                                                          \
	"\ttoast.autovacuum_vacuum_threshold = 1000,\n"                                                          \
	"\ttoast.autovacuum_vacuum_cost_delay = 0\n"                                                             \
	")"

#define CREATE_SCHEDULED ",\n\tscheduled_for timestamptz                     -- not before this; NULL: at once"

/* The statements for one outbox. */
struct outbox_sql {
	char *schema, *name;
	char *create;
	char *index;
	char *attach;
	char *schedule;         /* NULL: no column can be one of schedules */
	char *grant;            /* NULL: nobody gets anything */
};

static void outbox_sql_release(struct outbox_sql *s)
{
	free(s->schema);
	free(s->name);
	free(s->create);
	free(s->index);
	free(s->attach);
	free(s->schedule);
	free(s->grant);
}

/* With standard_conforming_strings, which is on in every session of ours and in the script, only quotes need care. */
char *install_literal(const char *text)
{
	_cleanup_(buf_release) struct buf quoted = { 0 };

	buf_init(&quoted, 2 * strlen(text) + 3);
	buf_add_char(&quoted, '\'');
	for (; *text; text++) {
		if (*text == '\'')
			buf_add_char(&quoted, '\'');
		buf_add_char(&quoted, *text);
	}
	buf_add_char(&quoted, '\'');
	return buf_take(&quoted);
}

static bool make_sql(const struct install_outbox *outbox, const char *role, struct outbox_sql *ret, struct error *err)
{
	_cleanup_(mem_freep) char *quoted = NULL, *literal = NULL, *role_literal = NULL;
	_cleanup_(mem_freep) char *scheduled = install_literal(outbox->scheduled);

	if (!pg_split_qualified(outbox->table, &ret->schema, &ret->name, err) ||
	    !pg_quote_qualified(NULL, outbox->table, &quoted, err))
		return false;
	literal = install_literal(quoted);
	ret->create = mem_printf(CREATE_OUTBOX, quoted, outbox->scheduled[0] ? CREATE_SCHEDULED : "");
	ret->index = mem_printf("SELECT postrider.index_outbox(%s::pg_catalog.regclass, 'entity_id', 'id', 'scheduled_for')",
				literal);
	ret->attach = mem_printf("SELECT postrider.attach(%s::pg_catalog.regclass)", literal);
	if (outbox->scheduled[0])
		ret->schedule = mem_printf("SELECT postrider.attach_schedule(%s::pg_catalog.regclass, %s)", literal, scheduled);
	if (!role)
		return true;
	role_literal = install_literal(role);
	ret->grant = mem_printf("SELECT postrider.grant_relay(%s::pg_catalog.regclass, %s)", literal, role_literal);
	return true;
}

static bool run_migrations(PGconn *conn, void (*done)(const char *line), struct error *err)
{
	_cleanup_(mem_freep) char *bootstrap = migrate_bootstrap_sql();
	int version;

	if (!migrate_version(conn, &version, err))
		return false;
	if (version < (int)n_migrations && !pg_script(conn, "create the schema postrider", bootstrap, err))
		return false;
	if (version == 0)
		done("created the schema postrider");
	for (size_t i = (size_t)version; i < n_migrations; i++) {
		_cleanup_(mem_freep) char *sql = migrate_sql(&migrations[i]);
		_cleanup_(mem_freep) char *line = mem_printf("applied migration %04d_%s", migrations[i].version,
							     migrations[i].name);

		if (!pg_script(conn, "apply a migration", sql, err))
			return error_prefix(err, "%04d_%s", migrations[i].version, migrations[i].name);
		done(line);
	}
	return true;
}

/* A function of the schema that returns a line for each thing it did. */
static bool run_lines(PGconn *conn, const char *doing, const char *sql, void (*done)(const char *line),
		      struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pg_query(conn, doing, sql, 0, NULL, &res, err))
		return false;
	for (int i = 0; i < PQntuples(res); i++)
		done(PQgetvalue(res, i, 0));
	return true;
}

static bool ensure_table(PGconn *conn, const struct install_outbox *outbox, const struct outbox_sql *sql,
			 void (*done)(const char *line), struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *line = mem_printf("created the table %s", outbox->table);

	if (!pg_query(conn, "look up the table",
		      "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace n WHERE n.nspname = $1::pg_catalog.text),"
		      " EXISTS (SELECT FROM pg_catalog.pg_class c"
		      "  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
		      "  WHERE n.nspname = $1::pg_catalog.text AND c.relname = $2::pg_catalog.text)",
		      2, (const char *const[]){ sql->schema, sql->name }, &res, err))
		return false;
	if (PQgetvalue(res, 0, 1)[0] == 't')
		return true;
	error_set(err, ERROR_CONFIG, "there is no table %s", outbox->table);
	if (PQgetvalue(res, 0, 0)[0] != 't')
		return error_hint(err, "there is no schema %s either: CREATE SCHEMA it first", sql->schema);
	if (!outbox->create)
		return error_hint(err, "create it first: init makes only the recommended table, and not where the "
				       "settings name columns or with --existing");
	if (!pg_script(conn, "create the table", sql->create, err))
		return error_prefix(err, "%s", outbox->table);
	done(line);
	return true;
}

static bool run_outbox(PGconn *conn, const struct install_outbox *outbox, const char *role,
		       void (*done)(const char *line), struct error *err)
{
	_cleanup_(outbox_sql_release) struct outbox_sql sql = { 0 };

	if (!make_sql(outbox, role, &sql, err))
		return false;
	if (outbox->branch_sql && !run_lines(conn, "make the table of a branch", outbox->branch_sql, done, err))
		return error_prefix(err, "%s", outbox->table);
	if (!ensure_table(conn, outbox, &sql, done, err))
		return false;
	if ((outbox->create && !run_lines(conn, "index the table", sql.index, done, err)) ||
	    !run_lines(conn, "attach the table", sql.attach, done, err) ||
	    (sql.schedule && !run_lines(conn, "attach the table", sql.schedule, done, err)))
		return error_prefix(err, "%s", outbox->table);
	if (outbox->lean_sql && !run_lines(conn, "keep the table lean", outbox->lean_sql, done, err))
		return error_prefix(err, "%s", outbox->table);
	if (outbox->reader_sql && !run_lines(conn, "prepare the table for its reader", outbox->reader_sql, done, err))
		return error_prefix(err, "%s", outbox->table);
	return !sql.grant || run_lines(conn, "grant privileges", sql.grant, done, err);
}

bool install_run(PGconn *conn, const struct install_plan *plan, void (*done)(const char *line), struct error *err)
{
	if (!run_migrations(conn, done, err))
		return false;
	for (size_t i = 0; i < plan->n_outboxes; i++)
		if (!run_outbox(conn, &plan->outboxes[i], plan->role, done, err))
			return false;
	return true;
}

static void print_statement(FILE *out, const char *sql)
{
	fprintf(out, "%s;\n\n", sql);
}

static void print_migrations(FILE *out)
{
	_cleanup_(mem_freep) char *bootstrap = migrate_bootstrap_sql();

	print_statement(out, bootstrap);
	for (size_t i = 0; i < n_migrations; i++) {
		_cleanup_(mem_freep) char *sql = migrate_sql(&migrations[i]);

		print_statement(out, sql);
	}
}

bool install_print(const struct install_plan *plan, FILE *out, struct error *err)
{
	fputs("-- What `postrider init` does, for psql. It may be run again: what is there already stays as it is.\n"
	      "BEGIN;\n"
	      "SET LOCAL search_path = pg_catalog;\n"
	      "SET LOCAL standard_conforming_strings = on;\n"
	      "SET LOCAL lock_timeout = '5s';\n\n",
	      out);
	print_migrations(out);
	for (size_t i = 0; i < plan->n_outboxes; i++) {
		_cleanup_(outbox_sql_release) struct outbox_sql sql = { 0 };

		if (!make_sql(&plan->outboxes[i], plan->role, &sql, err))
			return false;
		if (plan->outboxes[i].branch_sql)
			print_statement(out, plan->outboxes[i].branch_sql);
		if (plan->outboxes[i].create) {
			print_statement(out, sql.create);
			print_statement(out, sql.index);
		}
		print_statement(out, sql.attach);
		if (sql.schedule)
			print_statement(out, sql.schedule);
		if (plan->outboxes[i].lean_sql)
			print_statement(out, plan->outboxes[i].lean_sql);
		if (plan->outboxes[i].reader_sql)
			print_statement(out, plan->outboxes[i].reader_sql);
		if (sql.grant)
			print_statement(out, sql.grant);
	}
	fputs("COMMIT;\n", out);
	return true;
}
