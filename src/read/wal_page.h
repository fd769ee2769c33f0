/* Rows that come out of the write-ahead log, as the result of a query: everything behind a reader sees no difference.
 * A page is a PGresult with the fields of pg/table.h, all as text (a payload of type bytea as its bytes), and behind
 * them two more, as other readers have them: `part`, an integer of four bytes in network order, and `address`. */
#ifndef POSTRIDER_READ_WAL_PAGE_H
#define POSTRIDER_READ_WAL_PAGE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/slice.h"
#include "pg/pgoutput.h"
#include "pg/table.h"
#include "read/wal_text.h"

/* Which column of a relation is which field of the table. Relations change: a mapping belongs to the last message about
 * it. */
struct wal_mapping {
	uint32_t relation;              /* oid */
	uint32_t n_columns;
	int32_t *column_of;             /* of each field, FIELD_EXTRA + n_extra of them; -1: the table has none */
	uint32_t *types;                /* of each field, as the relation says; 0: the table has none */
	enum wal_conversion *conversions;
	int32_t scheduled;              /* the column of schedules; -1: there is none */
};

/* *m is written only on success; one that was there before is the caller's to release. ERROR_CONFIG when a column that
 * the settings name is not in the relation (any more), or not published. */
bool wal_mapping_make(struct wal_mapping *m, const struct table *table, const struct pgoutput_relation *relation,
		      struct error *err);
void wal_mapping_release(struct wal_mapping *m);        /* it is all zero after that */

struct wal_page {
	const struct table *table;
	int n_fields;                   /* of the table, without the two more */
	PGresult *rows;                 /* NULL: none yet */
	uint32_t n_rows;
	size_t bytes;                   /* of all values in it */
	struct buf scratch;             /* for values that are converted */
};

void wal_page_init(struct wal_page *p, const struct table *table);
void wal_page_release(struct wal_page *p);

/* Adds a row. The number of the row in the page is n_rows before the call. ERROR_BUG, and nothing added, when it does
 * not fit the mapping. */
bool wal_page_add(struct wal_page *p, const struct wal_mapping *m, const struct pgoutput_insert *insert, int32_t part,
		  struct error *err);
/* A row whose fields are as they have to be. */
void wal_page_add_fields(struct wal_page *p, const struct slice *fields, int32_t part, struct slice address);
/* The same for a logical message, see read/wal_message.h. Nothing is added when it is refused or *ret_foreign. */
bool wal_page_add_message(struct wal_page *p, struct slice json, const char *outbox, uint64_t lsn, int32_t part,
			  bool *ret_foreign, struct error *err);

/* What was added so far; the caller's. The page is empty after that. */
PGresult *wal_page_take(struct wal_page *p);

#endif
