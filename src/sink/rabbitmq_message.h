/* An event as a message of AMQP: its properties and headers, and what does not fit into them. */
#ifndef POSTRIDER_SINK_RABBITMQ_MESSAGE_H
#define POSTRIDER_SINK_RABBITMQ_MESSAGE_H

#include <amqp.h>
#include <amqp_framing.h>
#include <stdint.h>

#include "base/error.h"
#include "relay/event.h"
#include "relay/route.h"

/* Where properties are put together, over and over. */
struct rabbitmq_message {
	amqp_basic_properties_t properties;
	amqp_table_entry_t *entries;
	uint32_t room;
};

void rabbitmq_message_release(struct rabbitmq_message *m);
/* `properties` is valid until the next one is built, and as long as the event. ERROR_REJECTED when the event cannot be such a
 * message: names and ids end at 255 bytes, and all properties together at one frame. */
bool rabbitmq_message_build(struct rabbitmq_message *m, const struct event *ev, const char *content_type, int frame_max,
			    struct error *err);

/* What can never be a routing key. */
topic_fault rabbitmq_topic_fault;

#endif
