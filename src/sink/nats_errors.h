/* What NATS says went wrong, and what that means to us: one table for the library's statuses and the codes of JetStream. */
#ifndef POSTRIDER_SINK_NATS_ERRORS_H
#define POSTRIDER_SINK_NATS_ERRORS_H

#include <nats/nats.h>

#include "base/error.h"

/* A code of JetStream that the table does not have is judged by its class, which is as in HTTP: 400, 404, 500, 503. */
enum error_kind nats_status_kind(natsStatus status);
enum error_kind nats_code_kind(int code, int class);

/* Both fill in kind, message and hint; always false. `detail` may be NULL. */
bool nats_status_error(struct error *err, natsStatus status, const char *detail);
bool nats_code_error(struct error *err, int code, int class, const char *description);

#endif
