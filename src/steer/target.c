#include "steer/target.h"

#include <stdio.h>

#include "base/mem.h"
#include "keep/steering.h"
#include "pg/exec.h"
#include "read/sql.h"

bool target_open(struct target *t, PGconn *conn, const struct outbox_config *config, struct error *err)
{
	*t = (struct target){ .config = config, .driver = reader_driver_find(config->reader) };
	t->ordered = reader_keeps_order(t->driver, config);
	return table_open(conn, config, NULL, 0, &t->table, err) && table_number(conn, t->table, &t->number, err);
}

void target_release(struct target *t)
{
	table_free(t->table);
	*t = (struct target){ 0 };
}

char *target_sql(const struct target *t, const char *sql)
{
	return sql_for_table(sql, t->table, t->config, t->ordered, t->number);
}

bool target_query(const struct target *t, PGconn *conn, const char *doing, const char *sql, int n_params,
		  const char *const *params, PGresult **ret, struct error *err)
{
	_cleanup_(mem_freep) char *made = target_sql(t, sql);

	return pg_query(conn, doing, made, n_params, params, ret, err);
}

bool target_notify(const struct target *t, PGconn *conn, struct error *err)
{
	return target_query(t, conn, "tell the nodes", "SELECT pg_notify('" STEERING_CHANNEL "', '{outbox}')", 0, NULL, NULL, err);
}
