#include "pg/migrate.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "pg/exec.h"

/* Two installations at once take turns. */
#define TAKE_TURNS "PERFORM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('postrider.migration', 0));\n"

static const char bootstrap[] =
	"DO $postrider$\n"
	"BEGIN\n"
	"\t" TAKE_TURNS
	"\tIF pg_catalog.to_regnamespace('postrider') IS NULL THEN\n"
	"\t\tCREATE SCHEMA postrider;\n"
	"\tEND IF;\n"
	"\tIF pg_catalog.to_regclass('postrider.migration') IS NULL THEN\n"
	"\t\tCREATE TABLE postrider.migration (\n"
	"\t\t\tversion    integer PRIMARY KEY,\n"
	"\t\t\tname       text NOT NULL,\n"
	"\t\t\tchecksum   text NOT NULL,\n"
	"\t\t\tapplied_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()\n"
	"\t\t);\n"
	"\tEND IF;\n"
	/* Schemas of version 2 and older have no such column. */
	"\tIF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = 'postrider.migration'::pg_catalog.regclass\n"
	"\t\tAND attname = 'serves') THEN\n"
	"\t\tALTER TABLE postrider.migration ADD COLUMN serves integer;\n"
	"\tEND IF;\n"
	"END\n"
	"$postrider$";

char *migrate_bootstrap_sql(void)
{
	return mem_strdup(bootstrap);
}

/* A DO block, so that a script of all migrations can be run again by hand: it is one transaction by itself, and skips
 * what is recorded. */
char *migrate_sql(const struct migration *m)
{
	return mem_printf("DO $postrider$\n"
			  "BEGIN\n"
			  "\t" TAKE_TURNS
			  "\tIF EXISTS (SELECT FROM postrider.migration WHERE version = %d) THEN\n"
			  "\t\tRETURN;\n"
			  "\tEND IF;\n"
			  "\tEXECUTE $migration$\n"
			  "%s"
			  "$migration$;\n"
			  "\tINSERT INTO postrider.migration (version, name, checksum, serves) VALUES\n"
			  "\t\t(%d, '%s', '%s', %d);\n"
			  "END\n"
			  "$postrider$",
			  m->version, m->sql, m->version, m->name, m->checksum, m->serves);
}

static bool is_installed(PGconn *conn, const char *doing, bool *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	/* The catalogue answers without a privilege on the schema, so that "not installed" and "not allowed" differ. */
	if (!pg_query(conn, doing,
		      "SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
		      " WHERE n.nspname = 'postrider' AND c.relname = 'migration'",
		      0, NULL, &res, err))
		return false;
	*ret = PQntuples(res) > 0;
	return true;
}

static bool compare(int version, const char *checksum, struct error *err)
{
	if (version >= 1 && strcmp(migrations[version - 1].checksum, checksum) == 0)
		return true;
	error_set(err, ERROR_CONFIG, "version %d of the schema postrider is not the one that this program knows", version);
	return error_hint(err, "it was made by a development version or changed by hand: compare "
			       "postrider.migration with `postrider init --print-sql`");
}

/* What the database has: its version, and the oldest program that it still serves, as the newest version that this
 * program knows. Both 0 where there is no schema. Migrations that we know must be ours. */
static bool read_schema(PGconn *conn, int *ret_version, int *ret_serves, struct error *err)
{
	static const char doing[] = "read the version of the schema postrider";
	_cleanup_(pg_result_clearp) PGresult *applied = NULL;
	bool installed;

	*ret_version = *ret_serves = 0;
	if (!is_installed(conn, doing, &installed, err))
		return false;
	if (!installed)
		return true;
	/* By way of JSON, because an old schema does not have the column. */
	if (!pg_query(conn, doing,
		      "SELECT m.version, m.checksum, COALESCE((to_jsonb(m) ->> 'serves')::integer, m.version)"
		      " FROM postrider.migration m ORDER BY m.version",
		      0, NULL, &applied, err))
		return false;
	for (int i = 0; i < PQntuples(applied); i++) {
		int serves = atoi(PQgetvalue(applied, i, 2));

		*ret_version = atoi(PQgetvalue(applied, i, 0));
		if (*ret_version > (int)n_migrations)
			*ret_serves = MAX(*ret_serves, serves);
		else if (!compare(*ret_version, PQgetvalue(applied, i, 1), err))
			return false;
	}
	return true;
}

static bool newer(int version, struct error *err)
{
	return error_set(err, ERROR_CONFIG, "the schema postrider has version %d, which is newer than this program: it knows"
			 " up to %zu", version, n_migrations);
}

bool migrate_version(PGconn *conn, int *ret, struct error *err)
{
	int version, serves;

	if (!read_schema(conn, &version, &serves, err))
		return false;
	if (version > (int)n_migrations) {
		newer(version, err);
		return error_hint(err, "run the `postrider init` that made it, or a newer one");
	}
	*ret = version;
	return true;
}

bool migrate_version_served(PGconn *conn, int *ret, struct error *err)
{
	int version, serves;

	if (!read_schema(conn, &version, &serves, err))
		return false;
	*ret = version;
	if (version == 0) {
		error_set(err, ERROR_CONFIG, "the schema postrider is not installed");
		return error_hint(err, "run `postrider init`");
	}
	if (version < (int)n_migrations) {
		error_set(err, ERROR_CONFIG, "the schema postrider has version %d, and this program needs %zu", version,
			  n_migrations);
		return error_hint(err, "run `postrider init`");
	}
	if (serves > (int)n_migrations) {
		newer(version, err);
		return error_hint(err, "it serves programs that know version %d or later: install the postrider that made it, or"
				  " a newer one", serves);
	}
	return true;
}

bool migrate_version_check(PGconn *conn, struct error *err)
{
	int version;

	return migrate_version_served(conn, &version, err);
}
