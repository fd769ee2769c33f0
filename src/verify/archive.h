/* The table that `postrider verify` believes: an archive of the outbox, or the outbox with rows that are marked and
 * kept. It has the columns of the outbox, except that nobody needs the payload; views will do. Reads in the transaction
 * that the caller has begun, through a cursor. One thread. */
#ifndef POSTRIDER_VERIFY_ARCHIVE_H
#define POSTRIDER_VERIFY_ARCHIVE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"
#include "config/config.h"
#include "relay/route.h"

struct archive;

struct archive_request {
	const struct outbox_config *outbox;
	const struct route *route;
	const char *table;              /* schema.table */
	const char *since, *until;      /* of created_at, as PostgreSQL writes times: from the first on and before the
	                                 * second; or NULL */
	const char *marked;             /* COLUMN or COLUMN=VALUE: which rows are published; or NULL */
	bool ranked;                    /* rows come in order, and with a rank */
};

struct archive_row {
	struct slice id;                /* what the header that consumers know the message by will say; NULL: the row
	                                 * cannot be a message, or not one with an id */
	struct slice row_id;            /* of the row in its table */
	struct slice entity;            /* NULL: none */
	struct slice topic;
	uint32_t rank;
	bool marked;
};

/* False, with `err`, to end the reading. Slices are valid during the call. */
typedef bool archive_row_fn(void *context, const struct archive_row *row, struct error *err);

/* ERROR_CONFIG when the table or a column is missing. `request` outlives the archive. */
bool archive_open(PGconn *conn, const struct archive_request *request, struct archive **ret, struct error *err);
void archive_free(struct archive *a);
void archive_freep(struct archive **a);         /* for _cleanup_ */

/* True when both are the same table of the same database. */
bool archive_is_same(const struct archive *a, const struct archive *b);
const char *archive_name(const struct archive *a);

bool archive_read(PGconn *conn, const struct archive *a, archive_row_fn *take, void *context, struct error *err);

/* The header that consumers know a message by. */
const char *archive_id_header(const struct outbox_config *outbox);

#endif
