/* What `check` says of how lean an outbox table is: what keeps vacuum from its work, and what the setting `published` needs
 * and is not there. Each question is one query, whose rows are findings. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "pg/exec.h"
#include "pg/table.h"

/* A transaction that lasts so many times longer than a row waits at most: five minutes, unless the settings differ. */
enum { LONG_POLLS = 60 };

enum { LACK_FATAL, LACK_WHAT, LACK_FIX };

/* The table itself, or its partitions: $1 is its oid. */
#define LEAVES                                                                                                  \
	"(SELECT c.oid, c.oid::regclass AS name, c.reltuples, c.reloptions FROM pg_class c"                     \
	"  WHERE (c.oid = $1::oid OR c.oid IN (SELECT t.relid FROM pg_partition_tree($1::oid) t)) AND c.relkind = 'r') AS c"

/* $2 milliseconds */
static const char long_transactions[] =
	"SELECT false, format('session %s (%s, user %s) has had a transaction open for %s: nothing that was deleted since can be"
	" vacuumed', a.pid, coalesce(nullif(a.application_name, ''), 'without a name'), a.usename,"
	" date_trunc('second', clock_timestamp() - a.xact_start)),"
	" format('SELECT pg_terminate_backend(%s);    (or let it end; idle_in_transaction_session_timeout ends idle ones)', a.pid)"
	" FROM pg_stat_activity a WHERE a.datname = current_database() AND a.backend_type = 'client backend'"
	"  AND a.xact_start < clock_timestamp() - $2::bigint * interval '1 millisecond' AND a.pid <> pg_backend_pid()"
	"  AND $1::oid IS NOT NULL"
	" UNION ALL"
	" SELECT false, format('prepared transaction %s is %s old: nothing that was deleted since can be vacuumed', p.gid,"
	" date_trunc('second', clock_timestamp() - p.prepared)), format('COMMIT PREPARED %L; or ROLLBACK PREPARED %L;', p.gid, p.gid)"
	" FROM pg_prepared_xacts p WHERE p.database = current_database()"
	"  AND p.prepared < clock_timestamp() - $2::bigint * interval '1 millisecond'";

static const char dead_rows[] =
	"SELECT false, format('%s dead rows beside %s others: claims and vacuum have to pass over them', sum(s.n_dead_tup),"
	" sum(s.n_live_tup)), format('VACUUM %s;    (and see whether a transaction has been open for long)', $1::oid::regclass)"
	" FROM " LEAVES " JOIN pg_stat_all_tables s ON s.relid = c.oid"
	" HAVING sum(s.n_dead_tup) > 10000 AND sum(s.n_dead_tup) > 2 * sum(s.n_live_tup)";

/* Rows come and go all the time, so vacuum must come after some thousands of them, not after a share of a large table. */
static const char autovacuum[] =
	"SELECT false, 'autovacuum is off on this server, and nobody else removes deleted rows',"
	" 'set autovacuum = on in postgresql.conf' WHERE NOT current_setting('autovacuum')::boolean AND $1::oid IS NOT NULL"
	" UNION ALL"
	" SELECT false, format('autovacuum is off for %s, and nobody else removes deleted rows', c.name),"
	" format('ALTER TABLE %s RESET (autovacuum_enabled);', c.name)"
	" FROM " LEAVES ", pg_options_to_table(c.reloptions) o WHERE o.option_name = 'autovacuum_enabled'"
	"  AND o.option_value IN ('off', 'false', 'no', '0')"
	" UNION ALL"
	" SELECT false, format('autovacuum comes to %s only after %s dead rows', c.name, v.after::bigint),"
	" format('ALTER TABLE %s SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);', c.name)"
	" FROM " LEAVES " CROSS JOIN LATERAL (SELECT greatest(c.reltuples, 0) *"
	"   coalesce((SELECT o.option_value FROM pg_options_to_table(c.reloptions) o"
	"     WHERE o.option_name = 'autovacuum_vacuum_scale_factor'), current_setting('autovacuum_vacuum_scale_factor'))::float8 +"
	"   coalesce((SELECT o.option_value FROM pg_options_to_table(c.reloptions) o"
	"     WHERE o.option_name = 'autovacuum_vacuum_threshold'), current_setting('autovacuum_vacuum_threshold'))::float8"
	"  ) AS v(after) WHERE v.after > 50000";

/* --- what a way of `published` needs: $1 oid, $2 the way ------------------------------------------------------------ */

#define OF_LEAN                                                                                                 \
	" FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace"                                        \
	" JOIN postrider.outbox o ON o.table_name = format('%I.%I', n.nspname, t.relname)"                      \
	" JOIN postrider.lean l ON l.outbox = o.id AND l.published = $2::text"
#define AS_OWNER "'postrider init --role ' || quote_ident(current_user) || '    (as the owner of the table)'"
#define MAY_RUN(function)                                                                                       \
	" UNION ALL SELECT true, 'role ' || quote_ident(current_user) || ' may not run " function "', " AS_OWNER \
	OF_LEAN " WHERE t.oid = $1::oid AND NOT has_function_privilege('" function "', 'EXECUTE')"
#define PREPARED                                                                                                \
	"SELECT true, 'it is not prepared for `published: ' || $2::text || '`', " AS_OWNER                      \
	" WHERE NOT EXISTS (SELECT " OF_LEAN " WHERE t.oid = $1::oid)"

static const char mark_needs[] =
	PREPARED
	" UNION ALL SELECT true, format('role %I may not update %I', current_user, l.column_name),"
	" format('GRANT UPDATE (%I) ON %s TO %I;', l.column_name, o.table_name, current_user)"
	OF_LEAN " WHERE t.oid = $1::oid AND NOT has_column_privilege(t.oid, l.column_name, 'UPDATE')"
	" UNION ALL SELECT false, format('no index finds rows past their retention', l.column_name),"
	" format('CREATE INDEX ON %s (%I) WHERE %I IS NOT NULL;', o.table_name, l.column_name, l.column_name)"
	OF_LEAN " WHERE t.oid = $1::oid AND NOT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
	"  AND a.attnum = i.indkey[0] WHERE i.indrelid = t.oid AND i.indisvalid AND a.attname = l.column_name)";

static const char archive_needs[] =
	PREPARED
	" UNION ALL SELECT true, format('role %I may not write to %s', current_user, l.archive),"
	" format('GRANT SELECT, INSERT ON %s TO %I;', l.archive, current_user)"
	OF_LEAN " WHERE t.oid = $1::oid AND NOT has_table_privilege(l.archive, 'INSERT')"
	" UNION ALL SELECT false, format('its archive %s has no partition for tomorrow: no janitor has run', l.archive),"
	" 'start the relay; or, as the owner of the table, postrider init'"
	OF_LEAN " WHERE t.oid = $1::oid AND NOT EXISTS (SELECT FROM postrider.partition p WHERE p.outbox = o.id"
	"  AND p.ends_at > now() + interval '1 day')"
	" UNION ALL SELECT false, format('its archive %s has no column %I, which is not archived', l.archive, a.attname), " AS_OWNER
	OF_LEAN " JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped"
	" WHERE t.oid = $1::oid AND NOT EXISTS (SELECT FROM pg_attribute h WHERE h.attrelid = l.archive::regclass"
	"  AND h.attname = a.attname)"
	MAY_RUN("postrider.extend_archive(integer)") MAY_RUN("postrider.expire_archive(integer, bigint)");

static const char partitions_needs[] =
	PREPARED
	" UNION ALL SELECT true, 'it is not in partitions', " AS_OWNER OF_LEAN " WHERE t.oid = $1::oid AND t.relkind <> 'p'"
	" UNION ALL SELECT false, 'it has no partition ahead: rows go to the one for the rest, and nothing of that can be dropped',"
	" 'start the relay; or, as the owner of the table, postrider init'"
	OF_LEAN " WHERE t.oid = $1::oid AND NOT EXISTS (SELECT FROM postrider.partition p WHERE p.outbox = o.id"
	"  AND p.begins > CASE WHEN has_sequence_privilege(pg_get_serial_sequence(o.table_name, l.column_name), 'SELECT')"
	"   THEN coalesce(pg_sequence_last_value(pg_get_serial_sequence(o.table_name, l.column_name)::regclass), 0) ELSE 0 END)"
	MAY_RUN("postrider.add_partition(integer, bigint, integer)") MAY_RUN("postrider.empty_partition(integer)")
	MAY_RUN("postrider.drop_partitions(integer)");

static const struct {
	const char *name;
	const char *sql;
} ways[] = {
	[PUBLISHED_MARK] = { "mark", mark_needs },
	[PUBLISHED_ARCHIVE] = { "archive", archive_needs },
	[PUBLISHED_PARTITIONS] = { "partitions", partitions_needs },
	[PUBLISHED_KEEP] = { NULL, NULL },
};

/* --- asking ----------------------------------------------------------------------------------------------------------- */

struct lean_check {
	PGconn *conn;
	const struct table *table;
	struct finding_list *findings;
};

static void ask(const struct lean_check *k, const char *doing, const char *sql, int n_params, const char *second)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *oid = mem_printf("%u", k->table->oid);
	struct error err;

	if (!pg_query(k->conn, doing, sql, n_params, (const char *const[]){ oid, second }, &res, &err)) {
		finding_add_error(k->findings, &err);
		return;
	}
	for (int i = 0; i < PQntuples(res); i++)
		finding_add(k->findings, PQgetvalue(res, i, LACK_FATAL)[0] == 't' ? FINDING_FAIL : FINDING_WARN,
			    PQgetvalue(res, i, LACK_FIX), "table %s: %s", k->table->name, PQgetvalue(res, i, LACK_WHAT));
}

void table_check_lean(PGconn *conn, const struct outbox_config *outbox, const struct table *t, struct finding_list *findings)
{
	const struct lean_check k = { conn, t, findings };
	_cleanup_(mem_freep) char *long_ms = mem_printf("%lld", (long long)outbox->poll_interval_ms * LONG_POLLS);

	ask(&k, "look for long transactions", long_transactions, 2, long_ms);
	ask(&k, "count dead rows", dead_rows, 1, NULL);
	ask(&k, "look at the settings of autovacuum", autovacuum, 1, NULL);
	if (ways[outbox->published].sql)
		ask(&k, "look at what becomes of published rows", ways[outbox->published].sql, 2, ways[outbox->published].name);
}
