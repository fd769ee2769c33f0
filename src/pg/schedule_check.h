/* For `check`, of tables that have a column of schedules; nothing for others. Uses functions of the schema
 * postrider. */
#ifndef POSTRIDER_PG_SCHEDULE_CHECK_H
#define POSTRIDER_PG_SCHEDULE_CHECK_H

#include <libpq-fe.h>

#include "base/finding.h"
#include "config/config.h"
#include "pg/table.h"

void schedule_check(PGconn *conn, const struct outbox_config *outbox, const struct table *t,
		    struct finding_list *findings);
/* The same of readers that walk rows in order, whatever the entity. */
void schedule_check_order(PGconn *conn, const struct outbox_config *outbox, const struct table *t,
			  struct finding_list *findings);

#endif
