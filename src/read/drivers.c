#include "read/reader.h"

#include <string.h>

#include "base/buf.h"
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

/* "advisory, lease or shards" */
static void add_carriers(struct buf *b)
{
	const char *last = NULL;

	for (size_t i = 0; reader_drivers[i]; i++) {
		if (!reader_drivers[i]->carries_riders)
			continue;
		if (last)
			buf_printf(b, "%s%s", b->len ? ", " : "", last);
		last = reader_drivers[i]->name;
	}
	buf_printf(b, " or %s", last);
}

static bool check_branches(const struct reader_driver *driver, const struct outbox_config *outbox, struct error *err)
{
	_cleanup_(buf_release) struct buf carriers = { .ceiling = 1000 };

	if (outbox->n_branches == 0 || driver->carries_riders)
		return true;
	add_carriers(&carriers);
	error_set(err, ERROR_CONFIG, "outbox %s has branches, and the reader %s cannot move rows into them", outbox->name,
		  driver->name);
	error_hint(err, "set its `reader` to %s; a branch may be read with another one", buf_str(&carriers));
	return outbox->where ? error_prefix(err, "%s", outbox->where) : false;
}

bool reader_check_settings(const struct reader_driver *driver, const struct outbox_config *outbox, struct error *err)
{
	if (!check_branches(driver, outbox, err))
		return false;
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
