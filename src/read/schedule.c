#include "read/schedule.h"

#include <stdlib.h>

#include "base/mem.h"
#include "pg/install.h"

bool schedule_take(const PGresult *res, int field, struct answer *answer)
{
	if (PQgetisnull(res, 0, field))
		return false;
	answer->due_in_ms = strtoll(PQgetvalue(res, 0, field), NULL, 10);
	return true;
}

char *schedule_index_sql(const struct outbox_config *o, const char *table)
{
	_cleanup_(mem_freep) char *order = install_literal(o->order_by.name[0] ? o->order_by.name : o->columns.id.name);
	_cleanup_(mem_freep) char *scheduled = install_literal(o->columns.scheduled_for.name);

	if (!o->columns.scheduled_for.name[0])
		return NULL;
	return mem_printf("SELECT postrider.index_order(%s::pg_catalog.regclass, %s, %s)", table, order, scheduled);
}
