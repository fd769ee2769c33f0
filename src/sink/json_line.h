/* Events as JSON: one line each for files and pipes, and their headers as an object. */
#ifndef POSTRIDER_SINK_JSON_LINE_H
#define POSTRIDER_SINK_JSON_LINE_H

#include "base/buf.h"
#include "relay/event.h"

/* {"name":"value",…} in the order of the headers; a header without a value is null. */
void buf_add_headers(struct buf *b, const struct event *ev);

/* {"id":…,"topic":…,"key":…,"headers":{…},"payload":…} and a line feed.
 *
 * The payload is what its bytes are: JSON stays JSON, other text in UTF-8 becomes a string, and the rest appears as
 * "payload_base64" instead. No payload is null. Line breaks between the tokens of JSON become blanks; nothing else in
 * it changes, so numbers keep all their digits. */
void buf_add_event_line(struct buf *b, const struct event *ev);

#endif
