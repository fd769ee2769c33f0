/* How a node comes among the others: it gets its row in postrider.node, and with it a number, unless another node reads
 * one of its tables with another reader, or in another order. Readers keep their own kind from taking the same rows by
 * different means (session locks, leases, row locks), so two of them would publish rows twice, and out of order.
 *
 * Nodes enter one at a time, and each is seen with what it reads before any of its workers runs. So of two nodes that
 * differ and start at the same moment one gets in, and the other one is told. */
#ifndef POSTRIDER_KEEP_ENTRY_H
#define POSTRIDER_KEEP_ENTRY_H

#include "keep/line.h"

struct entry {
	const char *name;
	int schema;                     /* newest version of the schema that the program knows */
	int64_t heartbeat_ms;
	const char *state;              /* JSON: at least table, reader and order of each outbox */
	int64_t watching_ms;            /* how long we have been connected: who has just come cannot tell who is dead */
};

enum entry_result {
	ENTRY_DONE,                     /* it is in */
	ENTRY_DEAD,                     /* a dead node is in the way: bury it, then try again */
	ENTRY_LATER,                    /* one is in the way that may be dead, which will show soon */
	ENTRY_REFUSED,                  /* a living one is in the way: ERROR_CONFIG */
	ENTRY_FAILED,                   /* the database failed, or a right is missing */
};

/* The error is filled unless it is done. */
enum entry_result entry_try(struct line *l, const struct entry *e, int64_t *ret_number, struct error *err);

#endif
