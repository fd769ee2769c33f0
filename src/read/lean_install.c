#include "read/lean_install.h"

#include <string.h>

#include "base/mem.h"
#include "pg/exec.h"
#include "pg/install.h"
#include "read/sql.h"

/* The expression of the reader `shards` as a literal, or NULL for all others. */
static char *shard_literal(const struct outbox_config *o)
{
	_cleanup_(mem_freep) char *key = NULL, *id = NULL, *shard = NULL;

	if (strcmp(o->reader, "shards") != 0)
		return mem_strdup("NULL");
	key = pg_quote_name(NULL, o->columns.entity_id.name);
	id = pg_quote_name(NULL, o->columns.id.name);
	shard = sql_shard_of(o, key, id);
	return install_literal(shard);
}

char *lean_install_sql(const struct outbox_config *o, bool recommended, const char *table, const char *role)
{
	_cleanup_(mem_freep) char *key = install_literal(o->columns.entity_id.name);
	_cleanup_(mem_freep) char *id = install_literal(o->columns.id.name);
	_cleanup_(mem_freep) char *order = install_literal(o->order_by.name[0] ? o->order_by.name : o->columns.id.name);
	_cleanup_(mem_freep) char *marker = install_literal(o->columns.published_at.name);
	_cleanup_(mem_freep) char *shard = shard_literal(o);
	const char *to = role ? role : "NULL";

	switch (o->published) {
	case PUBLISHED_MARK:
		return mem_printf("SELECT postrider.keep_marked(%s::pg_catalog.regclass, %s, %s, %s, %s, %s, %s)", table, key, order,
				  marker, shard, recommended ? "true" : "false", to);
	case PUBLISHED_ARCHIVE:
		return mem_printf("SELECT postrider.keep_archive(%s::pg_catalog.regclass, %s, %s, %s)", table, key, order, to);
	case PUBLISHED_PARTITIONS:
		return mem_printf("SELECT postrider.keep_partitions(%s::pg_catalog.regclass, %s, %lld, %lld, %s)", table, id,
				  (long long)o->partitions.rows, (long long)o->partitions.ahead, to);
	default:
		return mem_printf("SELECT postrider.keep_nothing(%s::pg_catalog.regclass)", table);
	}
}
