/* What the reader `wal` needs in the database, and what is remembered of it: a publication that names the table, a slot
 * that remembers how far we are, and a row in postrider.wal that says of which server, and how far exactly.
 *
 * The publication is made before the slot, because the server decodes with the publications that existed at the time. Rows
 * that are in the table when the slot is made are listed in postrider.wal_backlog, in the snapshot that the slot begins
 * with: what is not in the list is in the log, and nothing is in both.
 *
 * A slot is never made anew behind anybody's back: what was written since the last one vanished may be lost, and somebody
 * has to know. */
#ifndef POSTRIDER_READ_WAL_SLOT_H
#define POSTRIDER_READ_WAL_SLOT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/finding.h"
#include "config/config.h"
#include "pg/replication.h"
#include "pg/table.h"

/* The caller frees. */
char *wal_slot_name(const struct outbox_config *outbox);
char *wal_publication_name(const struct outbox_config *outbox);

/* For the table of functions of the reader: see reader.h. */
char *wal_install_sql(const struct outbox_config *outbox, const char *table, const char *role);
bool wal_install(PGconn *conn, const struct database_config *database, const struct outbox_config *outbox, bool anew,
		 void (*done)(const char *line), struct error *err);
void wal_check(PGconn *conn, const struct outbox_config *outbox, const struct table *table, struct finding_list *findings);

/* Where reading goes on. */
struct wal_place {
	uint64_t confirmed_lsn;         /* everything that was committed up to here is settled */
	uint64_t transaction_lsn;       /* of the commit record of a transaction that is settled in part; 0: none … */
	uint64_t transaction_rows;      /* … and how many of its events, from the first on */
	bool has_backlog;               /* rows from before the slot are left */
};

/* Is this slot ours, of this server, alive, not ahead of what we remember, and its publication whole? `system` is what
 * the replication connection says. ERROR_CONFIG with what to do when it is not; ERROR_TRANSPORT when it is in use (by a
 * process that is just ending, or by a stranger: the message says by which pid). */
bool wal_place_find(PGconn *conn, const struct outbox_config *outbox, const struct table *table,
		    const struct replication_system *system, struct wal_place *ret, struct error *err);

/* How much log the server keeps for the slot, in bytes; its state as pg_replication_slots has it (wal_status); and
 * whether its publication still publishes inserts into the table. From PostgreSQL 18 on, a publication that is gone is
 * no error in the stream: rows are left out, and nothing shows it but this. */
#define WAL_SQL_RETAINED                                                                                        \
	"SELECT coalesce(pg_current_wal_lsn() - s.restart_lsn, 0)::bigint, coalesce(s.wal_status, 'lost'),"     \
	" EXISTS (SELECT FROM postrider.wal w JOIN postrider.outbox o ON o.id = w.outbox"                       \
	"  JOIN pg_publication p ON p.pubname = w.publication AND p.pubinsert"                                  \
	"  JOIN pg_publication_tables t ON t.pubname = p.pubname"                                               \
	"   AND format('%I.%I', t.schemaname, t.tablename) = o.table_name WHERE w.slot = s.slot_name)"          \
	" FROM pg_replication_slots s WHERE s.slot_name = $1"

#endif
