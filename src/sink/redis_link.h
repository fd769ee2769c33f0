/* One connection to a Redis server: hiredis on a socket that does not block. Requests go out as text (redis_entry.h),
 * replies come back in the same order. For one thread at a time. */
#ifndef POSTRIDER_SINK_REDIS_LINK_H
#define POSTRIDER_SINK_REDIS_LINK_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/slice.h"

struct redis_link {
	redisContext *context;
	void *tls;                      /* the TLS session, if there is one; it belongs to the context */
	bool unflushed;                 /* something waits to be sent */
};

/* Takes the connected socket; the caller frees. */
struct redis_link *redis_link_new(int fd);
/* Drops what was not sent. Accepts NULL. */
void redis_link_free(struct redis_link *l);
void redis_link_freep(struct redis_link **l);
int redis_link_fd(const struct redis_link *l);

/* Sends as much as goes; flush goes on with the rest. A failure is ERROR_TRANSPORT, and replies may still be there. */
bool redis_link_send(struct redis_link *l, struct slice text, struct error *err);
bool redis_link_flush(struct redis_link *l, struct error *err);
/* Takes in what has come. After a failure of any of these, what came before it can still be had by redis_link_next. */
bool redis_link_read(struct redis_link *l, struct error *err);
/* The next reply, to be freed by the caller, or NULL: there is none yet. */
bool redis_link_next(struct redis_link *l, redisReply **ret, struct error *err);

/* The text of a reply that has one. */
struct slice redis_reply_text(const redisReply *r);
void redis_reply_freep(redisReply **r);

#endif
