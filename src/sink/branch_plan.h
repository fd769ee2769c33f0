/* How rows of an outbox get into the tables of its branches: the statements, made from what the catalogue says of both.
 *
 * Each row is copied by the transaction that settles it, and locked first, so that it is settled if it is copied: nobody else
 * can change or take it between the two. Who lost its claim finds the row gone, and copies nothing. */
#ifndef POSTRIDER_SINK_BRANCH_PLAN_H
#define POSTRIDER_SINK_BRANCH_PLAN_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "config/config.h"

enum branch_way {
	BRANCH_BY_ADDRESS,              /* $1 where the rows are, $2 their ids */
	BRANCH_BY_KEY,                  /* $1 their entities, $2 their ids */
	BRANCH_WAYS,
};

struct branch_plan {
	size_t n_branches;
	struct branch_copy {
		char *sql[BRANCH_WAYS];
	} *copies;                      /* in the order of the settings */
};

/* Blocks. ERROR_CONFIG when a table is missing or is none for a branch. The caller frees *ret. */
bool branch_plan_learn(PGconn *conn, const struct outbox_config *outbox, struct branch_plan **ret, struct error *err);
void branch_plan_free(struct branch_plan *plan);

/* Columns that are the outbox's own and not copied, as an array of PostgreSQL. The caller frees. */
char *branch_own_columns(const struct outbox_config *outbox);

#endif
