/* What was published on a channel and not confirmed yet, by delivery tag.
 *
 * The server counts publishes from 1 and answers with that number, alone or for all up to it. A message that no queue
 * takes is returned first, without its number, and confirmed like the others after that: it is found by its message id.
 * Returns come in the order of publishing, so the oldest that fits and was not returned before is the one.
 *
 * One thread. */
#ifndef POSTRIDER_SINK_RABBITMQ_CONFIRMS_H
#define POSTRIDER_SINK_RABBITMQ_CONFIRMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/event.h"

enum { CONFIRMS_MAX = 1024, CONFIRMS_MAX_BYTES = 4 * 1024 * 1024 };

struct confirms {
	uint64_t oldest, next;          /* tags: the oldest that may be outstanding, and that of the next publish */
	uint64_t returned_to;           /* below it returns have been matched */
	uint32_t count;
	size_t bytes;
	struct event *events[CONFIRMS_MAX];     /* by tag; NULL: answered */
	bool returned[CONFIRMS_MAX];
};

/* For a new channel; nothing may be outstanding. */
void confirms_begin(struct confirms *c);
/* Whether another event may be published: so many, and so many bytes, but one always. */
bool confirms_has_room(const struct confirms *c, const struct event *ev);
/* To be called for each publish, in order. */
void confirms_add(struct confirms *c, struct event *ev);
/* False when no such message is outstanding. */
bool confirms_return(struct confirms *c, struct slice message_id);
/* The oldest event that an answer settles, and whether it had been returned; NULL when there is none any more: to be called
 * until then. */
struct event *confirms_settle(struct confirms *c, uint64_t tag, bool multiple, bool *ret_returned);
/* The oldest that is outstanding, which no longer is; NULL: none. */
struct event *confirms_abandon(struct confirms *c);

#endif
