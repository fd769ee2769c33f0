/* The statements of the reader `advisory`, over the names that read/sql.h replaces. advisory.c says what their order
 * means. */
#ifndef POSTRIDER_READ_ADVISORY_SQL_H
#define POSTRIDER_READ_ADVISORY_SQL_H

/* Every entity in flight is a slot of the server's shared lock table (some 6,400 in a default installation), so a claim
 * takes no more of them than this, and a worker has at most two such claims in flight. */
enum { ENTITIES_MAX = 128 };

enum advisory_statement_number {
	ST_SETTLE,
	ST_SETTLE_BY_KEY,
	ST_HOLD,
	ST_CLEAR,
	ST_UNLOCK,
	ST_CLAIM,
	ST_READ,
	ST_READ_LARGE,
	ST_COUNT
};

struct advisory_statement {
	const char *name;               /* that it is prepared under */
	const char *doing;              /* for messages: "could not <doing>: …" */
	const char *sql;
};

extern const struct advisory_statement advisory_statements[ST_COUNT];

/* Fields of the answer to ST_CLAIM, one row per entity or one with a NULL entity. */
enum {
	CLAIM_ENTITY,
	CLAIM_NUMBER,                   /* of the entity, from 1 */
	CLAIM_ROW_ID,                   /* that the entity was held back for; NULL: it was not */
	CLAIM_ATTEMPTS,
	CLAIM_PID,                      /* of the server process: it must stay the same */
	CLAIM_TOAST,                    /* bytes of values too large for a page */
	CLAIM_HAND,                     /* the last entity looked at */
	CLAIM_LOOKED,                   /* how many */
	CLAIM_EXHAUSTED,                /* there were no others */
};

#endif
