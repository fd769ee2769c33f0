/* What a database says of the slot of an outbox, and what postrider.wal remembers of it: read at once, and judged by
 * the same rules for init, check and the reader. Main thread, or the reader's. */
#ifndef POSTRIDER_READ_WAL_STATE_H
#define POSTRIDER_READ_WAL_STATE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "pg/replication.h"
#include "pg/table.h"
#include "read/wal_slot.h"

#define WAL_NAME_PREFIX "postrider_"

#define WAL_RECREATE_HINT                                                                                   \
	"`postrider init --recreate-slot` makes the slot anew and publishes what is in the table then; events"  \
	" that were never in it, or are no longer, are lost"

struct wal_state {
	char *slot, *publication;       /* as the settings name them */

	bool remembered;                /* there is a row in postrider.wal … */
	char *remembered_slot, *remembered_publication, *remembered_system;
	uint32_t remembered_timeline;
	struct wal_place place;

	bool exists;                    /* there is a slot of the remembered name, or else of that in the settings … */
	char *existing;                 /* … which is this */
	char *foreign;                  /* what it is when it cannot be ours: "a physical slot"; NULL: it can */
	char *lost;                     /* why the server has given it up; NULL: it has not */
	char *used_by;                  /* "process 4711 (postrider orders)"; NULL: nobody reads from it */
	bool polled;                    /* it was dropped on purpose: see wal.over_budget */
	bool synchronised;              /* a replica had it from its primary, the slot of the same name there */
	uint64_t slot_lsn;              /* how far it was confirmed */
};

/* `outbox` is the number in postrider.outbox. The caller releases, also after failure. */
bool wal_state_read(struct wal_state *s, PGconn *conn, const struct outbox_config *settings, int outbox,
		    struct error *err);
void wal_state_release(struct wal_state *s);            /* also for _cleanup_ */

/* Can reading go on from what is remembered? ERROR_CONFIG with what to do when it cannot. Says nothing of who reads.
 * Without a `system` (NULL), only whether slot and row are there and belong together. */
bool wal_state_judge(const struct wal_state *s, const struct replication_system *system, struct error *err);

/* What the reader needs of the server and of the publication, and does not find: rows of text, each what is wrong, how
 * to mend it, and whether reading is impossible so ("t") or only worse. */
enum { WAL_LACK_WHAT, WAL_LACK_FIX, WAL_LACK_FATAL };
bool wal_lacks_of_server(PGconn *conn, const struct wal_state *s, PGresult **ret, struct error *err);
bool wal_lacks_of_publication(PGconn *conn, const char *publication, const struct table *table, PGresult **ret,
			      struct error *err);
/* The first that makes reading impossible, as an ERROR_CONFIG; true: there is none. */
bool wal_lacks_refuse(const PGresult *lacks, struct error *err);

#endif
