/* An event as a request: URL, headers, body. */
#ifndef POSTRIDER_SINK_WEBHOOK_REQUEST_H
#define POSTRIDER_SINK_WEBHOOK_REQUEST_H

#include "base/buf.h"
#include "relay/event.h"
#include "sink/http.h"
#include "sink/webhook_keys.h"

#define WEBHOOK_TOPIC "{topic}"

/* Memory that requests are built in, one after the other. */
struct webhook_request {
	struct buf url;
	struct buf text;                /* the headers, each with a NUL behind it */
	size_t *begins;                 /* of each in `text` */
	const char **lines;
	uint32_t n_lines, room;
};

void webhook_request_init(struct webhook_request *r);
void webhook_request_release(struct webhook_request *r);

/* What *ret points to is valid until the next one is built, except the body, which is the event's own. What HTTP has no
 * place for is ERROR_REJECTED. `timestamp` is in seconds since 1970. */
bool webhook_request_build(struct webhook_request *r, const struct webhook_config *config, const struct webhook_keys *keys,
			   const struct event *ev, int64_t timestamp, struct http_request *ret, struct error *err);

/* What can be a name of a header, or the beginning of one. */
bool webhook_is_name(struct slice name);

#endif
