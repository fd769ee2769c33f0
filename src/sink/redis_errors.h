/* What Redis' error replies mean to us: one table. */
#ifndef POSTRIDER_SINK_REDIS_ERRORS_H
#define POSTRIDER_SINK_REDIS_ERRORS_H

#include "base/error.h"
#include "base/slice.h"

/* `reply` is the text of an error reply, such as "WRONGTYPE Operation against …". */
enum error_kind redis_error_kind(struct slice reply);
/* Fills in kind, message and hint. Nothing that we sent is repeated in the message. Always false. */
bool redis_error_set(struct error *err, struct slice reply);

#endif
