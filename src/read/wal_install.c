/* Makes the slot of an outbox, and the row that says how far it is read. A slot is no part of a transaction, so
 * whatever ends us in between leaves one of them without the other: a slot without a row has never been read from and
 * is made again, a row without a slot has lost something and needs somebody's consent. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "pg/conn.h"
#include "pg/exec.h"
#include "read/wal_schedule.h"
#include "read/wal_slot.h"
#include "read/wal_state.h"

struct installation {
	PGconn *conn;
	const struct database_config *database;
	const struct outbox_config *outbox;
	bool anew;
	void (*done)(const char *line);
	struct table *table;
	int number;                     /* in postrider.outbox */
	struct wal_state state;
};

static void installation_release(struct installation *i)
{
	table_free(i->table);
	wal_state_release(&i->state);
}

/* Whatever the slot needs must be there before it: the server decodes with what existed at the time. */
static bool check_lacks(struct installation *i, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *server = NULL, *publication = NULL;

	return wal_lacks_of_server(i->conn, &i->state, &server, err) && wal_lacks_refuse(server, err) &&
	       wal_lacks_of_publication(i->conn, i->state.publication, i->table, &publication, err) &&
	       wal_lacks_refuse(publication, err);
}

static bool drop_slot(PGconn *conn, const char *slot, struct error *err)
{
	return pg_query(conn, "drop the replication slot", "SELECT pg_drop_replication_slot($1)", 1,
			(const char *const[]){ slot }, NULL, err);
}

/* Somebody else's slot must not go because ours was given its name. Without consent only one goes that has a name
 * which we gave, and that nobody reads from. */
static bool may_drop(const struct installation *i, struct error *err)
{
	const struct wal_state *s = &i->state;

	if (s->foreign) {
		error_set(err, ERROR_CONFIG, "replication slot %s is there already, and is %s", s->existing,
			  s->foreign);
		return error_hint(err, "name another one in wal.slot");
	}
	if (s->used_by) {
		error_set(err, ERROR_CONFIG, "replication slot %s is in use by %s", s->existing, s->used_by);
		return error_hint(err, "stop it first");
	}
	if (i->anew || strncmp(s->existing, WAL_NAME_PREFIX, strlen(WAL_NAME_PREFIX)) == 0)
		return true;
	error_set(err, ERROR_CONFIG, "replication slot %s is there already, and nothing says that it is postrider's",
		  s->existing);
	return error_hint(err, "name another one in wal.slot; or, where nobody needs this one any more, `postrider init"
			       " --recreate-slot`");
}

static bool clear_the_way(struct installation *i, struct error *err)
{
	const struct wal_state *s = &i->state;
	_cleanup_(mem_freep) char *line = NULL;

	/* A copy of a database remembers the slot of the original. It is not in the way when ours has another name. */
	if (!s->exists || (s->foreign && strcmp(s->existing, s->slot) != 0))
		return true;
	if (!may_drop(i, err) || !drop_slot(i->conn, s->existing, err))
		return false;
	line = mem_printf("dropped the replication slot %s%s", s->existing,
			  s->remembered ? "" : ", which an init that did not end had left behind");
	i->done(line);
	return true;
}

/* --- a new slot ----------------------------------------------------------------------------------------------- */

/* All of it in the snapshot of the slot's beginning: what this sees is not in the slot's stream, and all else is. Rows
 * that are parked are published from there. */
static bool write_down(struct installation *i, const struct replication_system *system, const char *snapshot,
		       uint64_t lsn, char **ret_line, struct error *err)
{
	static const char doing[] = "list the rows from before the replication slot";
	const struct table *t = i->table;
	_cleanup_(pg_result_clearp) PGresult *listed = NULL;
	_cleanup_(mem_freep) char *number = mem_printf("%d", i->number);
	_cleanup_(mem_freep) char *timeline = mem_printf("%u", system->timeline);
	_cleanup_(mem_freep) char *begin = mem_printf("BEGIN ISOLATION LEVEL REPEATABLE READ;"
						      " SET TRANSACTION SNAPSHOT '%s'; SET LOCAL statement_timeout = 0",
						      snapshot);
	_cleanup_(mem_freep) char *pending = table_pending(t);
	_cleanup_(mem_freep) char *list =
		mem_printf("INSERT INTO postrider.wal_backlog (outbox, n, id)"
			   " SELECT $1, row_number() OVER (ORDER BY o.%s), o.%s::text FROM %s o"
			   " WHERE NOT EXISTS (SELECT FROM postrider.parked p"
			   "  WHERE p.outbox = $1 AND NOT p.is_message AND p.row_id = o.%s::text) AND %s%s%s%s",
			   t->order.quoted, t->columns[FIELD_ID].quoted, t->name, t->columns[FIELD_ID].quoted, pending,
			   /* The others are found when they are due. */
			   t->scheduled.name ? " AND o." : "", t->scheduled.name ? t->scheduled.quoted : "",
			   t->scheduled.name ? " IS NULL" : "");
	char confirmed[WAL_LSN_TEXT];

	wal_lsn_write(confirmed, lsn);
	if (!pg_script(i->conn, doing, begin, err) ||
	    !pg_query(i->conn, doing, "DELETE FROM postrider.wal_backlog WHERE outbox = $1", 1,
		      (const char *const[]){ number }, NULL, err) ||
	    !pg_query(i->conn, doing, "DELETE FROM postrider.wal WHERE outbox = $1", 1, (const char *const[]){ number },
		      NULL, err) ||
	    !pg_query(i->conn, doing, list, 1, (const char *const[]){ number }, &listed, err) ||
	    !pg_query(i->conn, "remember the replication slot",
		      "INSERT INTO postrider.wal (outbox, slot, publication, system_identifier, timeline, confirmed)"
		      " VALUES ($1, $2, $3, $4, $5, $6)",
		      6,
		      (const char *const[]){ number, i->state.slot, i->state.publication, system->identifier, timeline,
					     confirmed },
		      NULL, err) ||
	    !pg_script(i->conn, doing, "COMMIT", err))
		return false;
	if (strcmp(PQcmdTuples(listed), "0") != 0)
		*ret_line = mem_printf("listed %s rows of %s from before the slot: they are published first",
				       PQcmdTuples(listed), t->name);
	return true;
}

static bool make_slot(struct installation *i, struct error *err)
{
	_cleanup_(replication_close) struct replication r = { 0 };
	_cleanup_(mem_freep) char *snapshot = NULL, *line = NULL, *listed = NULL;
	struct replication_system system;
	struct error ignored;
	uint64_t lsn;

	if (!replication_open(&r, i->database, "init", i->outbox->wal.sender_timeout_ms, -1, err) ||
	    !replication_identify(&r, &system, err) ||
	    !replication_create_slot(&r, i->state.slot, &snapshot, &lsn, err))
		return false;
	if (!write_down(i, &system, snapshot, lsn, &listed, err)) {
		pg_script(i->conn, "roll back", "ROLLBACK", &ignored);
		drop_slot(i->conn, i->state.slot, &ignored);
		return false;
	}
	line = mem_printf("created the replication slot %s for %s", i->state.slot, i->table->name);
	i->done(line);
	if (listed)
		i->done(listed);
	return true;
}

/* --- the whole ------------------------------------------------------------------------------------------------ */

static bool install_alone(struct installation *i, struct error *err)
{
	if (!wal_state_read(&i->state, i->conn, i->outbox, i->number, err))
		return false;
	if (i->state.remembered && !i->anew)
		return wal_state_judge(&i->state, NULL, err);
	return check_lacks(i, err) && clear_the_way(i, err) && make_slot(i, err);
}

/* One at a time: a slot that another init has just made would look like one that was left behind. Locked for the
 * session and not for a transaction, because a slot is not made while transactions are open. */
bool wal_install(PGconn *conn, const struct database_config *database, const struct outbox_config *outbox, bool anew,
		 void (*done)(const char *line), struct error *err)
{
	_cleanup_(installation_release) struct installation i = { conn, database, outbox, anew, done, .number = 0 };
	struct error ignored;
	bool installed;

	if (!pg_require_session(conn, database, "the reader wal", err) ||
	    !table_open(conn, outbox, NULL, 0, &i.table, err) || !wal_schedule_is_possible(outbox, i.table, err) ||
	    !table_number(conn, i.table, &i.number, err) ||
	    !pg_query(conn, "wait for another init", "SELECT pg_advisory_lock(hashtextextended('postrider.wal', 0))", 0,
		      NULL, NULL, err))
		return false;
	installed = install_alone(&i, err);
	pg_query(conn, "let the next init go on", "SELECT pg_advisory_unlock(hashtextextended('postrider.wal', 0))", 0,
		 NULL, NULL, &ignored);
	return installed ? true : error_prefix(err, "outbox %s", outbox->name);
}
