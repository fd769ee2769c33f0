/* The sink `postgres`: an event store (event_store.h). */
#include "base/mem.h"
#include "pg/exec.h"
#include "sink/event_store.h"
#include "sink/store_sink.h"

static bool postgres_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err)
{
	const struct postgres_sink_config *own = &config->postgres;
	_cleanup_(mem_freep) char *schema = NULL, *table = NULL;

	if (!pg_split_qualified(own->table, &schema, &table, err))
		return false;
	*ret = store_target_new(&event_store_kind, &own->database, config->outbox_database, own->table);
	return true;
}

extern const struct sink_driver sink_postgres;
const struct sink_driver sink_postgres = {
	.name = "postgres",
	.summary = "an event store in PostgreSQL: a version per entity, each message id once",
	.caps = SINK_KEEPS_ORDER | SINK_ONE_STREAM | SINK_RIDES,
	.target_open = postgres_target_open,
	STORE_SINK_FUNCTIONS,
};
