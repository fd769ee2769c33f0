/* What is sent to Redis, as text of its protocol (RESP), which is binary-safe.
 *
 * An entry of a stream has these fields, in this order; docs/sinks.md shows them to consumers:
 *   id           what consumers deduplicate by
 *   key          the message key; no such field where there is none
 *   h:<name>     one for each header; empty where the header has no value
 *   payload      the bytes as they are; no such field for a null value */
#ifndef POSTRIDER_SINK_REDIS_ENTRY_H
#define POSTRIDER_SINK_REDIS_ENTRY_H

#include <stdint.h>

#include "base/buf.h"
#include "relay/event.h"

/* A server's own limit for one field unless it is told otherwise. Far above it (1 GiB) it would refuse an entry for its
 * sum, and only when the transaction runs. */
#define REDIS_ENTRY_MAX_BYTES ((size_t)512 << 20)

/* What the entry has in bytes, more or less. */
size_t redis_entry_bytes(const struct event *ev);
/* XADD. `max_len` 0: the stream keeps everything. */
void buf_add_xadd(struct buf *b, const struct event *ev, int64_t max_len);
/* Any other command, of words. */
void buf_add_command(struct buf *b, const char *const words[], uint32_t n);

#endif
