#include "read/reader.h"

#include <string.h>

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
