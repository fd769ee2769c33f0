/* A logical message as the fields of a row: a JSON object whose members are named as the columns are, see docs/wal.md.
 * Anybody may write one, and as bytes: nothing about it is sure until it was read here. */
#ifndef POSTRIDER_READ_WAL_MESSAGE_H
#define POSTRIDER_READ_WAL_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/slice.h"
#include "pg/table.h"
#include "pg/wal_frame.h"
#include "relay/names.h"

#define WAL_MESSAGE_FIELDS (FIELD_EXTRA + NAMES_EXTRA_MAX)

struct wal_message {
	struct arena arena;             /* for what has escapes */
	char id[WAL_LSN_TEXT];
	/* For wal_page_add_fields. They point into the JSON, the arena and the id: it cannot be moved. */
	struct slice fields[WAL_MESSAGE_FIELDS];
};

/* *m is all zero before, and the caller's to release whatever comes back. `lsn` becomes the id. ERROR_REJECTED when the
 * JSON is not such an object; *ret_foreign, and no use in the fields, when its member `outbox` names another one. */
bool wal_message_read(struct wal_message *m, const struct table *table, struct slice json, const char *outbox,
		      uint64_t lsn, bool *ret_foreign, struct error *err);
void wal_message_release(struct wal_message *m);        /* it is all zero after that */

#endif
