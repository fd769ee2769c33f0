#include "read/wal_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "pg/exec.h"

#define LIST_CEILING (1 << 20)

/* $1: number of the outbox, $2: name of the slot. The view on slots has other columns in each version: what only some
 * have is looked up by way of JSON. */
#define SELECT_STATE                                                                                                \
	"SELECT w.slot, w.publication, w.system_identifier, w.timeline, w.confirmed, w.transaction,"                \
	" w.transaction_rows, EXISTS (SELECT FROM postrider.wal_backlog b WHERE b.outbox = $1),"                    \
	" s.slot_name, s.confirmed_flush_lsn,"                                                                      \
	" CASE WHEN s.slot_type <> 'logical' THEN 'a physical slot'"                                                \
	"  WHEN s.database <> current_database() THEN 'of database ' || quote_ident(s.database)"                    \
	"  WHEN s.plugin <> 'pgoutput' THEN 'of the output plugin ' || quote_ident(s.plugin)"                       \
	"  WHEN s.temporary THEN 'a temporary slot' END,"                                                           \
	" CASE WHEN s.slot_name IS NOT NULL THEN coalesce(to_jsonb(s) ->> 'invalidation_reason',"                   \
	"  CASE WHEN s.wal_status = 'lost' THEN 'wal_removed' END) END,"                                            \
	" format('process %s', s.active_pid) || coalesce(format(' (%s)', nullif(a.application_name, '')), ''),"     \
	" s.active_pid IS NOT NULL, coalesce((to_jsonb(s) ->> 'synced')::bool, false),"                             \
	" w.polling_since IS NOT NULL"                                                                              \
	" FROM (SELECT) AS one LEFT JOIN postrider.wal w ON w.outbox = $1"                                          \
	" LEFT JOIN pg_replication_slots s ON s.slot_name = coalesce(w.slot, $2)"                                   \
	" LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid"

enum {
	STATE_SLOT, STATE_PUBLICATION, STATE_SYSTEM, STATE_TIMELINE, STATE_CONFIRMED, STATE_TRANSACTION,
	STATE_TRANSACTION_ROWS, STATE_BACKLOG, STATE_EXISTING, STATE_SLOT_LSN, STATE_FOREIGN, STATE_LOST, STATE_USER,
	STATE_IN_USE, STATE_SYNCHRONISED, STATE_POLLED,
};

void wal_state_release(struct wal_state *s)
{
	free(s->slot);
	free(s->publication);
	free(s->remembered_slot);
	free(s->remembered_publication);
	free(s->remembered_system);
	free(s->existing);
	free(s->foreign);
	free(s->lost);
	free(s->used_by);
	*s = (struct wal_state){ 0 };
}

static char *text_of(const PGresult *res, int column)
{
	return PQgetisnull(res, 0, column) ? NULL : mem_strdup(PQgetvalue(res, 0, column));
}

/* 0 where there is none. */
static uint64_t lsn_of(const PGresult *res, int column)
{
	uint64_t lsn = 0;

	wal_lsn_parse(PQgetvalue(res, 0, column), &lsn);
	return lsn;
}

bool wal_state_read(struct wal_state *s, PGconn *conn, const struct outbox_config *settings, int outbox,
		    struct error *err)
{
	_cleanup_(mem_freep) char *number = mem_printf("%d", outbox);
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	wal_state_release(s);
	s->slot = wal_slot_name(settings);
	s->publication = wal_publication_name(settings);
	if (!pg_query(conn, "look up the replication slot", SELECT_STATE, 2, (const char *const[]){ number, s->slot },
		      &res, err))
		return false;
	s->remembered = !PQgetisnull(res, 0, STATE_SLOT);
	s->remembered_slot = text_of(res, STATE_SLOT);
	s->remembered_publication = text_of(res, STATE_PUBLICATION);
	s->remembered_system = text_of(res, STATE_SYSTEM);
	s->remembered_timeline = (uint32_t)strtoul(PQgetvalue(res, 0, STATE_TIMELINE), NULL, 10);
	s->place = (struct wal_place){
		.confirmed_lsn = lsn_of(res, STATE_CONFIRMED),
		.transaction_lsn = lsn_of(res, STATE_TRANSACTION),
		.transaction_rows = strtoull(PQgetvalue(res, 0, STATE_TRANSACTION_ROWS), NULL, 10),
		.has_backlog = PQgetvalue(res, 0, STATE_BACKLOG)[0] == 't',
	};
	s->exists = !PQgetisnull(res, 0, STATE_EXISTING);
	s->existing = text_of(res, STATE_EXISTING);
	s->foreign = text_of(res, STATE_FOREIGN);
	s->lost = text_of(res, STATE_LOST);
	s->used_by = PQgetvalue(res, 0, STATE_IN_USE)[0] == 't' ? text_of(res, STATE_USER) : NULL;
	s->synchronised = PQgetvalue(res, 0, STATE_SYNCHRONISED)[0] == 't';
	s->polled = PQgetvalue(res, 0, STATE_POLLED)[0] == 't';
	s->slot_lsn = lsn_of(res, STATE_SLOT_LSN);
	return true;
}

/* --- judging -------------------------------------------------------------------------------------------------- */

/* Before anything was remembered, nothing can be lost either. */
static bool judge_unknown(const struct wal_state *s, struct error *err)
{
	if (s->exists)
		error_set(err, ERROR_CONFIG, "replication slot %s is there, and postrider.wal does not know it",
			  s->existing);
	else
		error_set(err, ERROR_CONFIG, "there is no replication slot %s yet", s->slot);
	return error_hint(err, "run `postrider init` with these settings");
}

static bool judge_names(const struct wal_state *s, struct error *err)
{
	if (strcmp(s->remembered_slot, s->slot) != 0)
		error_set(err, ERROR_CONFIG, "the outbox is read from replication slot %s, and the settings say %s",
			  s->remembered_slot, s->slot);
	else if (strcmp(s->remembered_publication, s->publication) != 0)
		error_set(err, ERROR_CONFIG, "the slot was made for publication %s, and the settings say %s",
			  s->remembered_publication, s->publication);
	else
		return true;
	return error_hint(err, "set it back; or make a new slot: " WAL_RECREATE_HINT);
}

static bool judge_slot(const struct wal_state *s, struct error *err)
{
	if (s->foreign) {
		error_set(err, ERROR_CONFIG, "replication slot %s is %s", s->existing, s->foreign);
		return error_hint(err, "name another one in wal.slot");
	}
	if (s->polled)
		error_set(err, ERROR_CONFIG,
			  "replication slot %s was dropped when it kept more log than wal.budget, and the table is polled"
			  " since", s->remembered_slot);
	else if (!s->exists)
		error_set(err, ERROR_CONFIG,
			  "replication slot %s is gone: somebody dropped it, or the server was restored or failed over"
			  " without it", s->remembered_slot);
	else if (s->lost)
		error_set(err, ERROR_CONFIG,
			  "the server has given up replication slot %s (%s), and with it what was not read yet",
			  s->existing, s->lost);
	else
		return true;
	return error_hint(err, WAL_RECREATE_HINT);
}

/* A slot may be behind what we remember, because the server writes its place down only now and then. It is not ahead:
 * we write first, and confirm then. Only a replica that was promoted may have had the slot's place, and not our row. */
static bool is_ahead(const struct wal_state *s, const struct replication_system *system)
{
	return s->slot_lsn > s->place.confirmed_lsn &&
	       !(s->synchronised && system->timeline > s->remembered_timeline);
}

static bool judge_place(const struct wal_state *s, const struct replication_system *system, struct error *err)
{
	char confirmed[WAL_LSN_TEXT], flushed[WAL_LSN_TEXT], slot[WAL_LSN_TEXT];

	wal_lsn_write(confirmed, s->place.confirmed_lsn);
	wal_lsn_write(flushed, system->flushed_lsn);
	wal_lsn_write(slot, s->slot_lsn);
	if (strcmp(s->remembered_system, system->identifier) != 0)
		error_set(err, ERROR_CONFIG, "this is server %s, and the slot was read from server %s",
			  system->identifier, s->remembered_system);
	else if (system->timeline < s->remembered_timeline)
		error_set(err, ERROR_CONFIG,
			  "the server is on timeline %u, and timeline %u was read already: it is a primary from before"
			  " a failover", system->timeline, s->remembered_timeline);
	else if (system->flushed_lsn < s->place.confirmed_lsn)
		error_set(err, ERROR_CONFIG,
			  "the server's log ends at %s, before %s that was already published: it was restored from a"
			  " backup or failed over to a replica that was behind", flushed, confirmed);
	else if (is_ahead(s, system))
		error_set(err, ERROR_CONFIG,
			  "replication slot %s stands at %s, past %s that was published last: it was made anew, or"
			  " somebody else has read from it", s->existing, slot, confirmed);
	else
		return true;
	return error_hint(err, WAL_RECREATE_HINT);
}

bool wal_state_judge(const struct wal_state *s, const struct replication_system *system, struct error *err)
{
	if (!s->remembered)
		return judge_unknown(s, err);
	return judge_names(s, err) && judge_slot(s, err) && (!system || judge_place(s, system, err));
}

/* --- what is lacking ------------------------------------------------------------------------------------------ */

#define RUN_INIT "'run `postrider init` with these settings'"

/* $1: the slot exists; $2: somebody reads from it. */
#define SELECT_LACKS_OF_SERVER                                                                                   \
	"SELECT l.what, l.fix, l.fatal FROM ("                                                                   \
	" SELECT 1, format('wal_level is %s, and must be logical', current_setting('wal_level')),"               \
	"  'ALTER SYSTEM SET wal_level = logical; and restart the server', true"                                 \
	"  WHERE current_setting('wal_level') <> 'logical'"                                                      \
	" UNION ALL SELECT 2, format('all %s replication slots of the server are taken',"                        \
	"   current_setting('max_replication_slots')),"                                                          \
	"  'drop slots that nobody needs (SELECT slot_name, active FROM pg_replication_slots), or ALTER SYSTEM SET" \
	" max_replication_slots = …; and restart the server', true"                                              \
	"  WHERE NOT $1::bool AND (SELECT count(*) FROM pg_replication_slots)"                                   \
	"   >= current_setting('max_replication_slots')::int"                                                    \
	" UNION ALL SELECT 3, format('all %s WAL senders of the server are busy',"                               \
	"   current_setting('max_wal_senders')),"                                                                \
	"  'ALTER SYSTEM SET max_wal_senders = …; and restart the server', true"                                 \
	"  WHERE NOT $2::bool AND (SELECT count(*) FROM pg_stat_get_wal_senders())"                              \
	"   >= current_setting('max_wal_senders')::int"                                                          \
	" UNION ALL SELECT 4, format('role %I may not follow replication slots', session_user),"                 \
	"  CASE WHEN to_regrole('rds_replication') IS NULL"                                                      \
	"   THEN format('ALTER ROLE %I REPLICATION;', session_user)"                                             \
	"   ELSE format('GRANT rds_replication TO %I;', session_user) END, true"                                 \
	"  WHERE NOT postrider.may_replicate(session_user)"                                                      \
	" UNION ALL SELECT 5, format('idle_replication_slot_timeout is %s: the server gives the slot up when no" \
	" relay reads from it for so long', current_setting('idle_replication_slot_timeout', true)),"            \
	"  'ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();', false"                \
	"  WHERE coalesce(current_setting('idle_replication_slot_timeout', true), '0') <> '0'"                   \
	") AS l(n, what, fix, fatal) ORDER BY l.n"

bool wal_lacks_of_server(PGconn *conn, const struct wal_state *s, PGresult **ret, struct error *err)
{
	return pg_query(conn, "look whether the server can decode its log", SELECT_LACKS_OF_SERVER, 2,
			(const char *const[]){ s->exists ? "true" : "false", s->used_by ? "true" : "false" }, ret, err);
}

/* $1: the publication, $2: oid of the table, $3: columns that the settings name. */
#define SELECT_LACKS_OF_PUBLICATION                                                                              \
	"WITH wanted AS (SELECT n.nspname, c.relname, c.relkind,"                                                \
	"  format('%I.%I', n.nspname, c.relname) AS qualified"                                                   \
	"  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $2::oid),"                \
	" publication AS (SELECT p.*, concat_ws(', ', CASE WHEN p.pubupdate THEN 'update' END,"                  \
	"   CASE WHEN p.pubdelete THEN 'delete' END, CASE WHEN p.pubtruncate THEN 'truncate' END) AS others"     \
	"  FROM pg_publication p WHERE p.pubname = $1),"                                                         \
	" published AS (SELECT t.* FROM pg_publication_tables t JOIN wanted w"                                   \
	"  ON t.schemaname = w.nspname AND t.tablename = w.relname WHERE t.pubname = $1)"                        \
	" SELECT l.what, l.fix, l.fatal FROM ("                                                                  \
	" SELECT 1, format('there is no publication %I', $1::text), " RUN_INIT ", true"                          \
	"  WHERE NOT EXISTS (SELECT FROM publication)"                                                           \
	" UNION ALL SELECT 2, format('publication %I publishes no inserts', p.pubname), " RUN_INIT ", true"      \
	"  FROM publication p WHERE NOT p.pubinsert"                                                             \
	" UNION ALL SELECT 3, format('publication %I publishes partitions of %s under their own names',"         \
	"   p.pubname, w.qualified), " RUN_INIT ", true"                                                         \
	"  FROM publication p, wanted w WHERE w.relkind = 'p' AND NOT p.pubviaroot"                              \
	" UNION ALL SELECT 4, format('publication %I lacks the table %s', p.pubname, w.qualified), " RUN_INIT ", true" \
	"  FROM publication p, wanted w"                                                                         \
	"  WHERE NOT EXISTS (SELECT FROM published) AND (w.relkind <> 'p' OR p.pubviaroot)"                      \
	" UNION ALL SELECT 5, format('publication %I does not publish %s of %s', t.pubname,"                     \
	"   string_agg(quote_ident(c.name), ', '), w.qualified),"                                                \
	"  format('publish all columns: ALTER PUBLICATION %1$I DROP TABLE %2$s; ALTER PUBLICATION %1$I ADD TABLE" \
	" %2$s; (a generated column needs PostgreSQL 18 and publish_generated_columns = stored)',"               \
	"   t.pubname, w.qualified), true"                                                                       \
	"  FROM published t, wanted w, unnest($3::text[]) AS c(name) WHERE c.name <> ALL (t.attnames)"           \
	"  GROUP BY t.pubname, w.qualified"                                                                      \
	" UNION ALL SELECT 6, format('publication %I has a filter for %s, and rows that it hides are never"      \
	" published', t.pubname, w.qualified),"                                                                  \
	"  format('ALTER PUBLICATION %1$I DROP TABLE %2$s; ALTER PUBLICATION %1$I ADD TABLE %2$s;',"             \
	"   t.pubname, w.qualified), false"                                                                      \
	"  FROM published t, wanted w WHERE t.rowfilter IS NOT NULL"                                             \
	" UNION ALL SELECT 7, format('publication %I publishes %s besides inserts: work for nothing when rows of" \
	" %s go', p.pubname, p.others, w.qualified),"                                                            \
	"  format('unless others use it: ALTER PUBLICATION %I SET (publish = ''insert'');', p.pubname), false"   \
	"  FROM publication p, wanted w WHERE p.others <> ''"                                                    \
	") AS l(n, what, fix, fatal) ORDER BY l.n"

static void add_name(struct buf *list, const struct table_column *c)
{
	if (!c->name)
		return;
	buf_add_char(list, list->len ? ',' : '{');
	buf_add_array_element(list, slice_of(c->name));
}

bool wal_lacks_of_publication(PGconn *conn, const char *publication, const struct table *table, PGresult **ret,
			      struct error *err)
{
	_cleanup_(buf_release) struct buf names = { 0 };
	_cleanup_(mem_freep) char *oid = mem_printf("%u", table->oid);

	buf_init(&names, LIST_CEILING);
	for (enum field f = 0; f < FIELD_EXTRA; f++)
		add_name(&names, &table->columns[f]);
	for (size_t i = 0; i < table->n_extra; i++)
		add_name(&names, &table->extra[i]);
	add_name(&names, &table->scheduled);
	buf_add_char(&names, '}');
	return pg_query(conn, "look at the publication", SELECT_LACKS_OF_PUBLICATION, 3,
			(const char *const[]){ publication, oid, buf_str(&names) }, ret, err);
}

bool wal_lacks_refuse(const PGresult *lacks, struct error *err)
{
	for (int i = 0; i < PQntuples(lacks); i++) {
		if (PQgetvalue(lacks, i, WAL_LACK_FATAL)[0] != 't')
			continue;
		error_set(err, ERROR_CONFIG, "%s", PQgetvalue(lacks, i, WAL_LACK_WHAT));
		return error_hint(err, "%s", PQgetvalue(lacks, i, WAL_LACK_FIX));
	}
	return true;
}
