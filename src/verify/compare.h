/* Compares what arrived with what should have: the records of topics, one by one, with a ledger. Pure: no server, no
 * clock. Delivery is at least once, so order is judged by the first occurrence of each row, within a partition: between
 * partitions there is none. */
#ifndef POSTRIDER_VERIFY_COMPARE_H
#define POSTRIDER_VERIFY_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "verify/ledger.h"

/* What can be found. compare.c has a row for each. */
enum verify_kind {
	VERIFY_LOST,
	VERIFY_UNKNOWN,
	VERIFY_DISORDER,
	VERIFY_SCATTERED,
	VERIFY_MISPLACED,
	VERIFY_UNROUTABLE,
	VERIFY_DUPLICATE,
	VERIFY_KINDS
};

struct verify_rules {
	bool unordered;                 /* order was not promised, so it is counted and not judged */
	bool partial;                   /* the ledger has only some of the rows: other records are none of ours */
};

struct verify_record {
	struct slice id;                /* NULL: the record has none */
	uint32_t topic;                 /* number in the ledger's topics */
	int32_t partition;
	int64_t offset;
};

/* One thing that was found, for people to look at. */
struct verify_case {
	uint32_t row;                   /* number in the ledger; WORDS_NONE: it is not about a row */
	uint32_t entity;                /* WORDS_NONE: it is not about an entity */
	uint32_t behind;                /* out of order: the later row that came first; otherwise WORDS_NONE */
	char *id;                       /* not in the ledger, cut to some length; NULL: none, or `row` has it */
	size_t id_len;
	uint32_t topic;                 /* WORDS_NONE: no record is meant */
	int32_t partition;              /* -1: not one partition is meant */
	int64_t offset;                 /* -1: not one record is meant */
};

struct verify_found {
	uint64_t count;
	struct verify_case *cases;      /* the first of them */
	uint32_t n_cases;
};

struct comparison {
	const struct ledger *ledger;
	uint32_t show;                  /* cases kept of each kind */
	uint64_t records;
	uint64_t rows_seen;
	uint64_t pending;               /* rows that are missing and may be */
	struct verify_found found[VERIFY_KINDS];

	bool *seen;                     /* by number of the row */
	uint32_t *first_lane;           /* by number of the entity; 0: none yet */
	struct verify_lane *lanes;      /* an entity's rows in one partition; number 0 is not used */
	uint32_t n_lanes, lanes_room;
};

/* The ledger is complete and outlives the comparison. */
void compare_init(struct comparison *c, const struct ledger *ledger, uint32_t show);
void compare_release(struct comparison *c);

/* Records of one partition come in the order of their offsets. */
void compare_take(struct comparison *c, const struct verify_record *r);
/* All records have been taken: what is missing is lost. Once. */
void compare_finish(struct comparison *c);

const char *verify_kind_name(enum verify_kind kind);            /* "out_of_order" */
const char *verify_kind_meaning(enum verify_kind kind);
/* Whether the rules count this kind as a violation. */
bool verify_kind_judged(enum verify_kind kind, const struct verify_rules *rules);
bool compare_is_clean(const struct comparison *c, const struct verify_rules *rules);

#endif
