#include "read/reader.h"

#include <string.h>

#include "base/mem.h"
#include "pg/conn.h"

extern const struct reader_driver reader_advisory;

const struct reader_driver *const reader_drivers[] = {
	&reader_advisory,
	NULL,
};

const struct reader_driver *reader_driver_find(const char *name)
{
	for (size_t i = 0; reader_drivers[i]; i++)
		if (strcmp(reader_drivers[i]->name, name) == 0)
			return reader_drivers[i];
	return NULL;
}

bool reader_check_session(const struct reader_driver *driver, PGconn *conn, const struct database_config *database,
			  struct error *err)
{
	_cleanup_(mem_freep) char *who = mem_printf("the reader %s", driver->name);

	return !driver->needs_session || pg_require_session(conn, database, who, err);
}
