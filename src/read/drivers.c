#include "read/reader.h"

#include <string.h>

#include "base/mem.h"
#include "pg/conn.h"

extern const struct reader_driver reader_advisory;
extern const struct reader_driver reader_lease;
extern const struct reader_driver reader_dispatcher;
extern const struct reader_driver reader_wal;
extern const struct reader_driver reader_shards;
extern const struct reader_driver reader_skip_locked;

const struct reader_driver *const reader_drivers[] = {
	&reader_advisory,
	&reader_lease,
	&reader_shards,
	&reader_dispatcher,
	&reader_wal,
	&reader_skip_locked,
	NULL,
};

const struct reader_driver *reader_driver_find(const char *name)
{
	for (size_t i = 0; reader_drivers[i]; i++)
		if (strcmp(reader_drivers[i]->name, name) == 0)
			return reader_drivers[i];
	return NULL;
}

bool reader_keeps_order(const struct reader_driver *driver, const struct outbox_config *outbox)
{
	return !driver->keeps_order || driver->keeps_order(outbox);
}

bool reader_check_settings(const struct reader_driver *driver, const struct outbox_config *outbox, struct error *err)
{
	if (outbox->order != ORDER_NONE || !reader_keeps_order(driver, outbox))
		return true;
	error_set(err, ERROR_CONFIG, "outbox %s: order is none, and the reader %s always keeps the order of an entity",
		  outbox->name, driver->name);
	return error_hint(err, "leave `order` out, or choose a reader that can do without: see docs/readers.md");
}

bool reader_check_session(const struct reader_driver *driver, PGconn *conn, const struct database_config *database,
			  struct error *err)
{
	_cleanup_(mem_freep) char *who = mem_printf("the reader %s", driver->name);

	return !driver->needs_session || pg_require_session(conn, database, who, err);
}
