/* Points in time as messages carry them. */
#ifndef POSTRIDER_RELAY_RFC3339_H
#define POSTRIDER_RELAY_RFC3339_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"

/* Turns what PostgreSQL prints for a timestamp in a session of ours (ISO dates, UTC) into RFC 3339:
 * "2026-11-15 09:45:27.123456+00" becomes "2026-11-15T09:45:27.123456Z", in the arena. A timestamp without time zone is
 * taken for UTC; an offset other than zero stays one. False for text that is no such time ("infinity", a year before
 * Christ, a number): *ret is not touched. */
bool rfc3339_from_postgres(struct slice text, struct arena *arena, struct slice *ret);

/* Microseconds since 1970 of a time as above makes it, or as PostgreSQL prints it. False when it is none. */
bool rfc3339_parse(struct slice text, int64_t *ret_us);

#endif
