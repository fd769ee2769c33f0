/* A time on the command line, as the server understands it. */
#ifndef POSTRIDER_VERIFY_MOMENT_H
#define POSTRIDER_VERIFY_MOMENT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct moment {
	char *text;                     /* as PostgreSQL writes it; NULL: not given */
	int64_t ms;                     /* since 1970 */
};

/* A duration ("10m") is that long ago, by the server's clock; anything else is for the server to read. `text` may be
 * NULL: then *ret stays as it is. `flag` is for messages; what nobody understands is ERROR_CONFIG. */
bool moment_read(PGconn *conn, const char *flag, const char *text, struct moment *ret, struct error *err);
void moment_release(struct moment *m);

#endif
