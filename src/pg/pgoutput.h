/* The messages of pgoutput, PostgreSQL's own plugin for logical decoding, protocol version 1 with values as text: from
 * bytes to a struct, and nothing else. Whoever wrote the bytes is not trusted: no length is believed before it was
 * compared with what is there. Slices point into the bytes. */
#ifndef POSTRIDER_PG_PGOUTPUT_H
#define POSTRIDER_PG_PGOUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

#define PGOUTPUT_COLUMNS_MAX 1600       /* of a table, as the server has it */

enum pgoutput_kind {
	PGOUTPUT_BEGIN,
	PGOUTPUT_COMMIT,
	PGOUTPUT_RELATION,
	PGOUTPUT_INSERT,
	PGOUTPUT_MESSAGE,               /* of pg_logical_emit_message */
	PGOUTPUT_OTHER,                 /* no news to an outbox: update, delete, truncate, type, origin */
};

struct pgoutput_begin {
	uint64_t final_lsn;             /* of the commit record */
	int64_t commit_time;            /* microseconds since 2000-01-01 UTC */
	uint32_t xid;
};

struct pgoutput_commit {
	uint64_t lsn;                   /* of the commit record … */
	uint64_t end_lsn;               /* … and where what follows begins: what is confirmed to the server */
	int64_t commit_time;
};

struct pgoutput_column {
	struct slice name;
	uint32_t type;                  /* oid */
};

struct pgoutput_relation {
	uint32_t oid;
	struct slice schema;
	struct slice name;
	uint32_t n_columns;
	struct pgoutput_column columns[PGOUTPUT_COLUMNS_MAX];
};

struct pgoutput_insert {
	uint32_t relation;              /* oid; its columns came with an earlier PGOUTPUT_RELATION */
	uint32_t n_values;
	struct slice values[PGOUTPUT_COLUMNS_MAX];      /* as text; a NULL ptr is NULL */
};

struct pgoutput_emitted {
	bool transactional;
	uint64_t lsn;
	struct slice prefix;
	struct slice content;
};

/* Large; keep one and use it again. Only the member that belongs to `kind` means something. */
struct pgoutput {
	enum pgoutput_kind kind;
	union {
		struct pgoutput_begin begin;
		struct pgoutput_commit commit;
		struct pgoutput_relation relation;
		struct pgoutput_insert insert;
		struct pgoutput_emitted message;
	};
};

/* One whole message. False with ERROR_BUG and what is wrong, with its place, when it is none: *ret is garbage then. */
bool pgoutput_decode(struct slice bytes, struct pgoutput *ret, struct error *err);

#endif
