/* An event as a message of NATS. */
#ifndef POSTRIDER_SINK_NATS_MESSAGE_H
#define POSTRIDER_SINK_NATS_MESSAGE_H

#include <nats/nats.h>

#include "base/buf.h"
#include "relay/event.h"

/* The header that has the key of the message. */
#define NATS_KEY_HEADER "Postrider-Key"

/* A copy of the event, to be answered at `reply`. `stream` is the one that must have it, "" : any. What a header of NATS cannot
 * hold is ERROR_REJECTED. `scratch` is for work only. The caller destroys *ret. */
bool nats_message_build(const struct event *ev, const char *reply, const char *stream, struct buf *scratch, natsMsg **ret,
			struct error *err);

#endif
