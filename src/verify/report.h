/* What `postrider verify` says: a table for people, or one JSON object with the same content. */
#ifndef POSTRIDER_VERIFY_REPORT_H
#define POSTRIDER_VERIFY_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "verify/compare.h"

/* One topic, by its number in the ledger. */
struct verify_topic {
	int32_t partitions;             /* 0: it does not exist */
	uint64_t records;               /* read */
	uint64_t missing;               /* offsets before its first one: deleted by retention */
};

struct verify_report {
	const char *outbox;
	const char *table;
	const struct comparison *comparison;
	const struct verify_topic *topics;
	struct verify_rules rules;
	bool outbox_itself;             /* the table is the outbox, and nothing says which rows are published */
};

/* The owner of the buffer names its ceiling, and asks for overflow. */
void report_write_text(const struct verify_report *r, struct buf *out);
void report_write_json(const struct verify_report *r, struct buf *out);

#endif
