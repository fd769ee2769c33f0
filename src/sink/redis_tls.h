/* TLS to a Redis server. hiredis verifies no host name, so the session is set up here. Two files implement this: one
 * with hiredis_ssl, and one for builds that do not have it. */
#ifndef POSTRIDER_SINK_REDIS_TLS_H
#define POSTRIDER_SINK_REDIS_TLS_H

#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"
#include "sink/redis_link.h"

struct redis_tls;       /* what connections share; immutable once made, so for any thread */

/* `server_name` is what the certificate must name. Wrong files are ERROR_CONFIG, and so is a build without TLS. */
bool redis_tls_new(const struct redis_config *config, const char *server_name, struct redis_tls **ret, struct error *err);
void redis_tls_free(struct redis_tls *t);       /* accepts NULL */

/* Begins the handshake; the first request completes it. */
bool redis_tls_start(const struct redis_tls *t, struct redis_link *l, struct error *err);
/* Says more in `err`, with which the first requests on `l` failed, where a certificate is the reason, or may be. */
void redis_tls_explain(const struct redis_tls *t, const struct redis_link *l, struct error *err);

#endif
