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
			  "\tINSERT INTO postrider.migration (version, name, checksum) VALUES\n"
			  "\t\t(%d, '%s', '%s');\n"
			  "END\n"
			  "$postrider$",
			  m->version, m->sql, m->version, m->name, m->checksum);
}

static bool compare(int version, const char *checksum, struct error *err)
{
	if ((size_t)version > n_migrations) {
		error_set(err, ERROR_CONFIG, "the schema postrider has version %d, and this program knows up to %zu",
			  version, n_migrations);
		return error_hint(err, "install the postrider that made it, or a newer one");
	}
	if (version < 1 || strcmp(migrations[version - 1].checksum, checksum) != 0) {
		error_set(err, ERROR_CONFIG,
			  "version %d of the schema postrider is not the one that this program knows", version);
		return error_hint(err, "it was made by a development version or changed by hand: compare "
				       "postrider.migration with `postrider init --print-sql`");
	}
	return true;
}

bool migrate_version(PGconn *conn, int *ret, struct error *err)
{
	static const char doing[] = "read the version of the schema postrider";
	_cleanup_(pg_result_clearp) PGresult *exists = NULL, *applied = NULL;
	int version = 0;

	/* The catalogue answers without a privilege on the schema, so that "not installed" and "not allowed" differ. */
	if (!pg_query(conn, doing,
		      "SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
		      " WHERE n.nspname = 'postrider' AND c.relname = 'migration'",
		      0, NULL, &exists, err))
		return false;
	if (PQntuples(exists) == 0) {
		*ret = 0;
		return true;
	}
	if (!pg_query(conn, doing, "SELECT version, checksum FROM postrider.migration ORDER BY version", 0, NULL,
		      &applied, err))
		return false;
	for (int i = 0; i < PQntuples(applied); i++) {
		version = atoi(PQgetvalue(applied, i, 0));
		if (!compare(version, PQgetvalue(applied, i, 1), err))
			return false;
	}
	*ret = version;
	return true;
}

bool migrate_version_check(PGconn *conn, struct error *err)
{
	int version;

	if (!migrate_version(conn, &version, err))
		return false;
	if ((size_t)version == n_migrations)
		return true;
	if (version == 0)
		error_set(err, ERROR_CONFIG, "the schema postrider is not installed");
	else
		error_set(err, ERROR_CONFIG, "the schema postrider has version %d, and this program needs %zu", version,
			  n_migrations);
	return error_hint(err, "run `postrider init`");
}
