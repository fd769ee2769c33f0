/* One entity of an outbox: what holds it back and who has it, letting it go, and putting it aside.
 *
 * What holds it back is one entry in postrider.retry. A person's has no row: readers leave the entity alone until it is let
 * go, rows that are on their way finish, and whatever becomes of them does not end it. In an outbox without order a row
 * stands for itself, and its id is what is held back. */
#ifndef POSTRIDER_STEER_ENTITY_H
#define POSTRIDER_STEER_ENTITY_H

#include "steer/target.h"

/* Columns of the entry, all as text. */
enum {
	ENTRY_ROW,              /* that was refused; NULL: a person made it */
	ENTRY_ATTEMPTS,
	ENTRY_KIND,
	ENTRY_ERROR,            /* or the reason that the person gave */
	ENTRY_FIRST_FAILED_AT,  /* RFC 3339, as the others */
	ENTRY_LAST_FAILED_AT,
	ENTRY_RETRY_AT,
	ENTRY_RETRY_MS,         /* until then; 0: it is due */
	ENTRY_BLOCKED_AT,       /* nobody tries any more since; NULL: it is tried again */
	ENTRY_PARKED,           /* t: by a person */
};

#define ENTITY_ROWS_MAX 100000          /* that are counted */

struct entity {
	PGresult *entry;                /* one row, or none */
	int64_t waiting;                /* rows of it in the outbox, at most ENTITY_ROWS_MAX … */
	char *first;                    /* … and the id of the first; NULL: there is none */
	int64_t put_aside;              /* with the reader wal: events in postrider.parked, at most so many */
	int64_t dead;                   /* dead letters */
	PGresult *holders;              /* see steer/holder.h */
};

bool entity_read(PGconn *conn, const struct target *t, const char *name, struct entity *ret, struct error *err);
void entity_release(struct entity *e);          /* also for _cleanup_ */

/* It is tried again at once, and attempts are counted anew. *ret_found: something held it back. */
bool entity_unblock(PGconn *conn, const struct target *t, const char *name, bool *ret_found, struct error *err);
/* Puts it aside until it is let go. */
bool entity_park(PGconn *conn, const struct target *t, const char *name, const char *reason, struct error *err);

#endif
