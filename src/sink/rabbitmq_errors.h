/* What AMQP's reply codes and the library's own mean to us: one table for each. */
#ifndef POSTRIDER_SINK_RABBITMQ_ERRORS_H
#define POSTRIDER_SINK_RABBITMQ_ERRORS_H

#include <amqp.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

/* What the server said when it closed a channel or the connection, or returned a message. Fills in kind, message and hint.
 * Always false, as are the others. */
bool rabbitmq_error_code(struct error *err, uint16_t code, struct slice text);
/* What the library says: one of amqp_status_enum. */
bool rabbitmq_error_status(struct error *err, int status);
/* Either of them, after a call that waits for its reply. */
bool rabbitmq_error_reply(struct error *err, amqp_rpc_reply_t reply);

#endif
