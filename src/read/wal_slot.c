#include "read/wal_slot.h"

#include <string.h>

#include "base/mem.h"
#include "pg/exec.h"
#include "pg/install.h"
#include "read/wal_state.h"

/* Slots have small letters, digits and underscores in their names, and outboxes may have a hyphen besides, and branches a
 * dot. */
static char *name_of(const char *chosen, const struct outbox_config *outbox)
{
	char *name;

	if (chosen[0])
		return mem_strdup(chosen);
	name = mem_printf(WAL_NAME_PREFIX "%s", outbox->name);
	for (char *p = name; *p; p++)
		if (*p == '-' || *p == '.')
			*p = '_';
	return name;
}

char *wal_slot_name(const struct outbox_config *outbox)
{
	return name_of(outbox->wal.slot, outbox);
}

char *wal_publication_name(const struct outbox_config *outbox)
{
	return name_of(outbox->wal.publication, outbox);
}

char *wal_install_sql(const struct outbox_config *outbox, const char *table, const char *role)
{
	_cleanup_(mem_freep) char *name = wal_publication_name(outbox);
	_cleanup_(mem_freep) char *literal = install_literal(name);
	_cleanup_(mem_freep) char *grant =
		role ? mem_printf("\nUNION ALL SELECT postrider.grant_replication(%s)", role) : mem_strdup("");

	return mem_printf("SELECT postrider.publish(%s::pg_catalog.regclass, %s)%s", table, literal, grant);
}

/* A failover gives the log a new timeline. Remembered, so that nobody goes back to an older one. Where the replica had
 * the slot's newest place and not yet ours, ours is of events that the stream leaves out: it goes on at the slot's. */
static bool remember_failover(PGconn *conn, int outbox, struct wal_state *s, const struct replication_system *system,
			      struct error *err)
{
	_cleanup_(mem_freep) char *number = mem_printf("%d", outbox);
	_cleanup_(mem_freep) char *timeline = mem_printf("%u", system->timeline);
	char lsn[WAL_LSN_TEXT];

	if (s->remembered_timeline == system->timeline)
		return true;
	if (s->slot_lsn <= s->place.confirmed_lsn)
		return pg_query(conn, "remember the timeline",
				"UPDATE postrider.wal SET timeline = $2 WHERE outbox = $1", 2,
				(const char *const[]){ number, timeline }, NULL, err);
	wal_lsn_write(lsn, s->slot_lsn);
	s->place = (struct wal_place){ .confirmed_lsn = s->slot_lsn, .has_backlog = s->place.has_backlog };
	return pg_query(conn, "remember the slot's place",
			"UPDATE postrider.wal SET timeline = $2, confirmed = $3, transaction = NULL,"
			" transaction_rows = 0, settled_behind = '' WHERE outbox = $1",
			3, (const char *const[]){ number, timeline, lsn }, NULL, err);
}

bool wal_place_find(PGconn *conn, const struct outbox_config *outbox, const struct table *table,
		    const struct replication_system *system, struct wal_place *ret, struct error *err)
{
	_cleanup_(wal_state_release) struct wal_state s = { 0 };
	_cleanup_(pg_result_clearp) PGresult *lacks = NULL;
	int number;

	if (!table_number(conn, table, &number, err) || !wal_state_read(&s, conn, outbox, number, err) ||
	    !wal_state_judge(&s, system, err))
		return false;
	if (s.used_by)
		return error_set(err, ERROR_TRANSPORT, "replication slot %s is in use by %s", s.existing, s.used_by);
	if (!wal_lacks_of_publication(conn, s.publication, table, &lacks, err) || !wal_lacks_refuse(lacks, err) ||
	    !remember_failover(conn, number, &s, system, err))
		return false;
	*ret = s.place;
	return true;
}
