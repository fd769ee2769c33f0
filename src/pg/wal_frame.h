/* What travels in a replication connection, around the messages of the output plugin: data and keepalives from the
 * server, status from us. Pure functions over bytes. */
#ifndef POSTRIDER_PG_WAL_FRAME_H
#define POSTRIDER_PG_WAL_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

struct wal_frame {
	enum { WAL_DATA, WAL_KEEPALIVE } kind;
	uint64_t start_lsn;             /* WAL_DATA: of the record; 0 for some kinds of message */
	uint64_t end_lsn;               /* WAL_KEEPALIVE: how far the server has sent its log; WAL_DATA: as start_lsn */
	bool reply_wanted;              /* WAL_KEEPALIVE: at once, or the server ends the connection */
	struct slice data;              /* WAL_DATA; into the bytes */
};

/* False with ERROR_BUG when it is none. */
bool wal_frame_decode(struct slice bytes, struct wal_frame *ret, struct error *err);

#define WAL_STATUS_SIZE 34
/* `confirmed` is told as written, flushed and applied. `now_us` is microseconds since 2000-01-01 UTC. */
void wal_status_encode(char out[WAL_STATUS_SIZE], uint64_t confirmed, int64_t now_us);

/* "16/B374D848", as PostgreSQL writes it; buffer of at least WAL_LSN_TEXT bytes. And back: false when it is none. */
#define WAL_LSN_TEXT 18
void wal_lsn_write(char *out, uint64_t lsn);
bool wal_lsn_parse(const char *text, uint64_t *ret);

#endif
