/* An event as an entry of SendMessageBatch; docs/sinks.md shows it to consumers.
 *
 *   body                    the payload, where it is text that SQS takes
 *   id                      attribute: the message id
 *   postrider-key           attribute: the key, where there is one
 *   postrider-encoding      attribute, where the body is not the payload: base64 of its bytes, `empty`, or `null`
 *   <name>                  attribute: a header
 *   postrider-headers       attribute: a JSON object of what cannot be an attribute of its own, because SQS takes ten of
 *                           them, and no empty values, no control characters, and few characters in a name
 *
 * A FIFO queue gets a group, which is the key or else the entity, and the message id to know repeats by. */
#ifndef POSTRIDER_SINK_SQS_MESSAGE_H
#define POSTRIDER_SINK_SQS_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "relay/event.h"

#define SQS_MESSAGE_MAX_BYTES (1024 * 1024)

/* Non-empty text of those characters only that SQS takes. */
bool sqs_text_is_allowed(struct slice s);
/* A group, or an id for deduplication: the text itself, or its hash where it is too long or has other characters. */
void buf_add_sqs_name(struct buf *b, struct slice s);

/* Adds the entry with this number as JSON, and says what it counts for against the limits of SQS. */
size_t buf_add_sqs_entry(struct buf *b, const struct event *ev, uint32_t number, bool fifo);

#endif
