/* A connection that speaks PostgreSQL's replication protocol: the one way to follow a slot. It belongs to one thread and
 * never waits once it streams. */
#ifndef POSTRIDER_PG_REPLICATION_H
#define POSTRIDER_PG_REPLICATION_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"
#include "config/config.h"
#include "pg/wal_frame.h"

struct replication {
	PGconn *conn;                   /* NULL: none */
	char *message;                  /* of libpq: what the last frame points into */
	bool unflushed;                 /* libpq has bytes to send */
};

struct replication_system {
	char identifier[32];
	uint32_t timeline;
	uint64_t flushed_lsn;
};

/* As pg_connect, with replication=database and wal_sender_timeout set for this connection. Waits. */
bool replication_open(struct replication *r, const struct database_config *db, const char *purpose,
		      int64_t sender_timeout_ms, int interrupt_fd, struct error *err);
void replication_close(struct replication *r);          /* accepts one that was never opened (all zero) */

bool replication_identify(struct replication *r, struct replication_system *ret, struct error *err);
/* Makes a logical slot with pgoutput, failover on from PostgreSQL 17 on. *ret_snapshot (the caller frees) is the snapshot of
 * its beginning, for SET TRANSACTION SNAPSHOT: valid until the connection is used for anything else. */
bool replication_create_slot(struct replication *r, const char *slot, char **ret_snapshot, uint64_t *ret_lsn,
			     struct error *err);

/* Begins to stream: inserts of the publication, and logical messages if `messages`. From then on only the functions below.
 * ERROR_TRANSPORT when the slot is in use, ERROR_CONFIG when it is gone, invalid or of another kind. */
bool replication_start(struct replication *r, const char *slot, const char *publication, bool messages, uint64_t from_lsn,
		       struct error *err);
int replication_pollfd(const struct replication *r, short *ret_events);
/* Takes from the socket what is there. False: the connection is gone. */
bool replication_read(struct replication *r, struct error *err);
/* The next whole frame, valid until the next call; *ret_any false: nothing more has arrived. False: the connection is gone,
 * or the server ended the stream. */
bool replication_next(struct replication *r, bool *ret_any, struct wal_frame *ret, struct error *err);
/* Everything up to here may be forgotten by the server. Does not wait. */
bool replication_confirm(struct replication *r, uint64_t lsn, struct error *err);
bool replication_flush(struct replication *r, struct error *err);

#endif
