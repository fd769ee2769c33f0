/* One value: from the text that a user wrote into the field of a config struct. */
#ifndef POSTRIDER_CONFIG_VALUE_H
#define POSTRIDER_CONFIG_VALUE_H

#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"
#include "config/options.h"

/* Replaces what the field holds. `object` is the struct of the option's scope. `where` is remembered by columns; NULL
 * marks a default. Not for maps. On failure the field keeps what it had, and err->message begins with "must be". */
bool value_set(const struct option *o, void *object, const char *text, const char *where, struct error *err);
/* Adds to a map, or replaces the value of a key that it has. */
bool value_set_pair(const struct option *o, void *object, const char *key, const char *text, const char *where,
		    struct error *err);
/* From one object of its scope to another. What a map of the second has already it keeps, in front. */
void value_copy(const struct option *o, const void *from, void *to);
/* The text of an OPTION_TEXT or OPTION_COLUMN. */
const char *value_text(const struct option *o, const void *object);
void value_release(const struct option *o, void *object);

#endif
