/* What `check` says of an outbox that is read from the log. Everything is asked over the connection that is there:
 * whether the role may replicate is a matter of the catalogue. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "pg/exec.h"
#include "pg/migrate.h"
#include "read/wal_schedule.h"
#include "read/wal_slot.h"
#include "read/wal_state.h"

struct wal_checks {
	PGconn *conn;
	const struct outbox_config *outbox;
	const struct table *table;
	struct finding_list *findings;
	int number;                     /* in postrider.outbox */
	struct wal_state state;
	char *kept;                     /* how much log the server keeps, in words; NULL: not known */
};

static void wal_checks_release(struct wal_checks *k)
{
	wal_state_release(&k->state);
	free(k->kept);
}

#define fix_printf(...) _cleanup_(mem_freep) char *fix = mem_printf(__VA_ARGS__)
#define report(k, level, fix, text, ...) \
	finding_add((k)->findings, level, fix, "outbox %s: " text, (k)->outbox->name __VA_OPT__(, ) __VA_ARGS__)

static void report_error(struct wal_checks *k, struct error *err)
{
	error_prefix(err, "outbox %s", k->outbox->name);
	finding_add_error(k->findings, err);
}

/* False, and a finding, when it fails. */
static bool ask(struct wal_checks *k, const char *doing, const char *sql, int n_params, const char *const *params,
		PGresult **ret)
{
	struct error err;

	if (pg_query(k->conn, doing, sql, n_params, params, ret, &err))
		return true;
	report_error(k, &err);
	return false;
}

static bool is_true(const PGresult *res, int column)
{
	return PQgetvalue(res, 0, column)[0] == 't';
}

/* False when our own tables cannot be read, and looking into them would only say so again. */
static bool check_own_privileges(struct wal_checks *k)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!ask(k, "read the privileges on the schema postrider",
		 "SELECT string_agg(p.privilege || ' ON ' || w.relation, ', ' ORDER BY w.relation, p.privilege),"
		 " quote_ident(current_user)"
		 " FROM (VALUES ('postrider.wal', '{SELECT,UPDATE}'), ('postrider.wal_backlog', '{SELECT,DELETE}'),"
		 "  ('postrider.parked', '{SELECT,INSERT,UPDATE,DELETE}')) AS w(relation, privileges),"
		 " unnest(w.privileges::text[]) AS p(privilege)"
		 " WHERE NOT has_table_privilege(w.relation, p.privilege)",
		 0, NULL, &res))
		return false;
	if (PQgetisnull(res, 0, 0))
		return true;
	fix_printf("postrider init --existing %s --role %s    (as the owner of the table)", k->table->name,
		   PQgetvalue(res, 0, 1));
	finding_add(k->findings, FINDING_FAIL, fix, "schema postrider: role %s lacks %s", PQgetvalue(res, 0, 1),
		    PQgetvalue(res, 0, 0));
	return false;
}

static void report_lacks(struct wal_checks *k, const PGresult *lacks)
{
	for (int i = 0; i < PQntuples(lacks); i++)
		report(k, PQgetvalue(lacks, i, WAL_LACK_FATAL)[0] == 't' ? FINDING_FAIL : FINDING_WARN,
		       PQgetvalue(lacks, i, WAL_LACK_FIX), "%s", PQgetvalue(lacks, i, WAL_LACK_WHAT));
}

static void check_lacks(struct wal_checks *k)
{
	_cleanup_(pg_result_clearp) PGresult *server = NULL, *publication = NULL;
	struct error err;

	if (wal_lacks_of_server(k->conn, &k->state, &server, &err))
		report_lacks(k, server);
	else
		report_error(k, &err);
	if (wal_lacks_of_publication(k->conn, k->state.publication, k->table, &publication, &err))
		report_lacks(k, publication);
	else
		report_error(k, &err);
}

/* What IDENTIFY_SYSTEM would say. The timeline is in the names of the log's files: the control file has it only after
 * the next checkpoint. */
#define SELECT_SYSTEM                                                                                           \
	"SELECT c.system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int,"    \
	" pg_current_wal_flush_lsn() FROM pg_control_system() c"

static void check_slot(struct wal_checks *k)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	struct replication_system system = { 0 };
	struct error err;

	if (!ask(k, "ask which server it is", SELECT_SYSTEM, 0, NULL, &res))
		return;
	snprintf(system.identifier, sizeof(system.identifier), "%s", PQgetvalue(res, 0, 0));
	system.timeline = (uint32_t)strtoul(PQgetvalue(res, 0, 1), NULL, 10);
	wal_lsn_parse(PQgetvalue(res, 0, 2), &system.flushed_lsn);
	if (!wal_state_judge(&k->state, &system, &err))
		report_error(k, &err);
}

/* $1: the slot, $2: wal.budget. */
#define SELECT_KEPT                                                                                                \
	"SELECT pg_size_pretty(kept.bytes), pg_size_pretty($2::bigint), kept.bytes > $2::bigint,"                  \
	" kept.status = 'unreserved', pg_size_pretty(ceiling.bytes), ceiling.bytes < 0,"                           \
	" ceiling.bytes >= 0 AND ceiling.bytes < $2::bigint"                                                       \
	" FROM (" WAL_SQL_RETAINED ") AS kept(bytes, status, published),"                                          \
	" (SELECT setting::bigint * 1024 * 1024 FROM pg_settings WHERE name = 'max_slot_wal_keep_size')"           \
	" AS ceiling(bytes)"

enum { KEPT_SIZE, KEPT_BUDGET, KEPT_TOO_MUCH, KEPT_AT_RISK, KEPT_CEILING, KEPT_ENDLESS, KEPT_CEILING_LOW };

static void check_kept(struct wal_checks *k)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *budget = mem_printf("%lld", (long long)k->outbox->wal.budget_bytes);
	const char *size, *ceiling;

	if (!k->state.exists || k->state.lost || k->state.foreign ||
	    !ask(k, "look how much log the server keeps", SELECT_KEPT, 2,
		 (const char *const[]){ k->state.existing, budget }, &res) ||
	    PQntuples(res) == 0)
		return;
	size = PQgetvalue(res, 0, KEPT_SIZE);
	ceiling = PQgetvalue(res, 0, KEPT_CEILING);
	if (is_true(res, KEPT_TOO_MUCH) || is_true(res, KEPT_AT_RISK))
		report(k, FINDING_WARN,
		       "run the relay, and see in `postrider status` what it waits for; or raise wal.budget",
		       "the server keeps %s of log for slot %s, and wal.budget is %s%s", size, k->state.existing,
		       PQgetvalue(res, 0, KEPT_BUDGET),
		       is_true(res, KEPT_AT_RISK) ? "; it gives the slot up at one of the next checkpoints" : "");
	if (is_true(res, KEPT_CEILING_LOW)) {
		fix_printf("set outboxes.%s.wal.budget to less than %s, or raise max_slot_wal_keep_size",
			   outbox_path(k->outbox), ceiling);
		report(k, FINDING_WARN, fix,
		       "the server gives slot %s up when it would keep more than %s for it (max_slot_wal_keep_size),"
		       " before wal.budget warns of anything", k->state.existing, ceiling);
	}
	if (is_true(res, KEPT_ENDLESS))
		k->kept = mem_printf("the server keeps %s of log for it, and as much as it takes"
				     " (max_slot_wal_keep_size = -1)", size);
	else
		k->kept = mem_printf("the server keeps %s of log for it, and up to %s (max_slot_wal_keep_size)", size,
				     ceiling);
}

static void check_deleting(struct wal_checks *k)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *oid = mem_printf("%u", k->table->oid);
	const struct table_column *id = &k->table->columns[FIELD_ID];

	if (k->outbox->published == PUBLISHED_KEEP ||
	    !ask(k, "read the indexes of the table",
		 "SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
		 " WHERE i.indrelid = $1::oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = $2",
		 2, (const char *const[]){ oid, id->name }, &res) ||
	    PQntuples(res) > 0)
		return;
	/* Of a partitioned table, PostgreSQL builds none concurrently, and no unique one without its partition key. */
	fix_printf(k->table->partitioned ? "CREATE INDEX ON %s (%s);" : "CREATE UNIQUE INDEX CONCURRENTLY ON %s (%s);",
		   k->table->name, id->quoted);
	report(k, FINDING_WARN, fix,
	       "no index of %s begins with the id, and to delete rows by it reads the whole table", k->table->name);
}

void wal_check(PGconn *conn, const struct outbox_config *outbox, const struct table *table,
	       struct finding_list *findings)
{
	_cleanup_(wal_checks_release) struct wal_checks k = { conn, outbox, table, findings, .number = 0 };
	size_t before = findings->count;
	struct error err;

	/* What is wrong with the schema or the table was said already. */
	if (!migrate_version_check(conn, &err) || !table_number(conn, table, &k.number, &err) ||
	    !check_own_privileges(&k))
		return;
	if (!wal_state_read(&k.state, conn, outbox, k.number, &err)) {
		report_error(&k, &err);
		return;
	}
	if (!wal_schedule_is_possible(outbox, table, &err))
		report_error(&k, &err);
	check_lacks(&k);
	check_slot(&k);
	check_kept(&k);
	check_deleting(&k);
	if (findings->count == before)
		report(&k, FINDING_OK, NULL, "publication %s and slot %s are right; %s", k.state.publication,
		       k.state.slot, k.kept ? k.kept : "nothing is known of its log");
}
