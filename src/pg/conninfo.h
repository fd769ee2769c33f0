/* The parameters that libpq gets: what the user wrote, over what we want of every connection. Does not
 * connect. */
#ifndef POSTRIDER_PG_CONNINFO_H
#define POSTRIDER_PG_CONNINFO_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "config/config.h"

/* NULL-ended, as PQconnectStartParams takes them; of two equal keywords the later counts. Holds the password: never
 * print it. */
struct conninfo {
	char **keywords;
	char **values;
	size_t count;
};

/* Reads database.url and the password's file. ERROR_CONFIG when one of them is wrong; messages show no part of the URL,
 * because in a broken one nobody can tell where the password begins. */
bool conninfo_build(const struct database_config *db, const char *purpose, struct conninfo *ret, struct error *err);
void conninfo_release(struct conninfo *info);           /* also for _cleanup_ */
/* Adds what counts more than all before it; both are copied. */
void conninfo_set(struct conninfo *info, const char *keyword, const char *value);
/* The value that counts, or NULL. */
const char *conninfo_get(const struct conninfo *info, const char *keyword);

#endif
