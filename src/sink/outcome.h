/* How a sink gives events back to its worker: delivered, or failed with a reason.
 *
 * One per sink, in the worker's thread. A sink that keeps order asks outcomes_unread before it takes more: a row behind
 * one whose failure lies unread in the mailbox would otherwise overtake it. */
#ifndef POSTRIDER_SINK_OUTCOME_H
#define POSTRIDER_SINK_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "relay/mailbox.h"

struct outcomes {
	struct mailbox *box;
	bool failed;                    /* something failed since the mailbox was last seen empty */
};

void outcomes_deliver(struct outcomes *o, struct event *const events[], uint32_t n);
/* Each event gets its own copy of `why`. */
void outcomes_fail(struct outcomes *o, struct event *const events[], uint32_t n, const struct error *why);
/* Another thread has posted a failure to the box, or may have. */
void outcomes_failed_elsewhere(struct outcomes *o);
/* True while the worker may not know of a failure yet. */
bool outcomes_unread(struct outcomes *o);

#endif
