/* Who has an entity at this moment, by what its reader takes it with: a lock of a session, a row with a lease, a shard, or
 * the lock of the one process that reads the outbox. */
#ifndef POSTRIDER_STEER_HOLDER_H
#define POSTRIDER_STEER_HOLDER_H

#include "base/buf.h"
#include "steer/target.h"

/* Columns of the result, all as text; NULL is not known, or does not apply. */
enum {
	HOLDER_BY,              /* lock, lease, shard, leader */
	HOLDER_PID,             /* of the server's process */
	HOLDER_APPLICATION,     /* what its session calls itself */
	HOLDER_CLIENT,          /* address where it comes from */
	HOLDER_NODE,            /* number, … */
	HOLDER_NAME,            /* … and name */
	HOLDER_WORKER,
	HOLDER_UNTIL,           /* RFC 3339: when it ends unless it is renewed */
	HOLDER_SHARD,
};

/* No row: nobody has it. In an outbox without order nobody has entities, and `name` is the id of a row. The caller clears
 * the result. */
bool holder_read(PGconn *conn, const struct target *t, const char *name, PGresult **ret, struct error *err);
/* "worker 2 of node 7 (web1), whose session is process 4711 of the server" */
void holder_describe(const PGresult *holders, int row, struct buf *to);

#endif
