/* Secrets come from files, and leave no trace in messages. Callable from any thread. */
#ifndef POSTRIDER_CONFIG_SECRET_H
#define POSTRIDER_CONFIG_SECRET_H

#include <stdbool.h>

#include "base/error.h"

#define SECRET_MAX_BYTES (64 * 1024)

/* The content of a password file without its trailing newline. The caller frees *ret. Failure is ERROR_CONFIG; the
 * message names the path and never the content. */
bool config_read_secret(const char *path, char **ret, struct error *err);

/* A connection URL or key=value string fit for logs: passwords, and everything not known to be harmless, become ***.
 * Also for strings that libpq would refuse. The caller frees; NULL gives NULL. */
char *config_redact_url(const char *url);
/* Does config_redact_url hide anything in it? */
bool config_url_has_secret(const char *url);
/* Is this the name of a Kafka property whose value is a secret? */
bool config_is_secret_name(const char *name);

#endif
