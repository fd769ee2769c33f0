/* What there is to see of this process. The supervisor owns it. Handlers run in the server's thread, from before the first
 * worker starts until after the last has ended. */
#ifndef POSTRIDER_OBSERVE_OBSERVED_H
#define POSTRIDER_OBSERVE_OBSERVED_H

#include <stdatomic.h>

#include "config/config.h"
#include "keep/heart.h"
#include "keep/node.h"
#include "relay/worker.h"

struct survey;

struct observed {
	const struct config *config;
	const struct node *node;
	struct outbox *outboxes;                /* as many as the settings have */

	/* What follows is there once `running` is set, and stays. */
	struct worker *const *workers;          /* of all outboxes, in their order */
	const struct heart *heart;
	struct survey *survey;
	_Atomic bool running;
};

/* The first worker of each outbox, one outbox after the other: `next` is 0 at first. */
static inline struct worker *const *observed_workers(const struct observed *seen, size_t outbox, size_t *next)
{
	struct worker *const *first = seen->workers + *next;

	*next += (size_t)seen->config->outboxes[outbox].workers;
	return first;
}

#endif
