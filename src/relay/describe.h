/* What the workers of this process hold and have done, as JSON for postrider.node.state. `postrider status` shows it, and
 * docs/operate.md says what each member means. */
#ifndef POSTRIDER_RELAY_DESCRIBE_H
#define POSTRIDER_RELAY_DESCRIBE_H

#include <stddef.h>

#include "relay/worker.h"

/* `workers` are those of all outboxes, in their order; there may be none yet. `surveys`: this node can read the figures of its tables
 * for all (observe/survey.h). Any thread. The caller frees. */
char *describe_workers(const struct outbox *outboxes, size_t n_outboxes, struct worker *const *workers, size_t n_workers,
		       bool surveys);

#endif
