/* What may be wrong with the tables of branches, and what removed ones have left behind. Blocks. */
#ifndef POSTRIDER_SINK_BRANCH_CHECK_H
#define POSTRIDER_SINK_BRANCH_CHECK_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/finding.h"
#include "config/config.h"

/* For `check`: columns that the outbox has and a branch does not, or has of another type, and the right to lock rows. */
void branch_check_tables(PGconn *conn, const struct outbox_config *outbox, struct finding_list *findings);

enum { BRANCH_COUNTED_MAX = 100000 };
#define BRANCH_LEFT_OVER_HINT                                                                                   \
	"put the branch back into the settings until its table is empty, or DROP TABLE, which gives the rows up"

/* Calls `found` for each table that was a branch of this outbox, is none of the settings, and has rows; they are counted up to
 * the number above. */
typedef void branch_left_over(void *arg, const char *table, long rows);
bool branch_find_left_over(PGconn *conn, const struct outbox_config *outbox, branch_left_over *found, void *arg,
			   struct error *err);

#endif
