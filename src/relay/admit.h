/* From the answer to a claim into the window: a batch for its rows, a message for each, and a place in its lane. */
#ifndef POSTRIDER_RELAY_ADMIT_H
#define POSTRIDER_RELAY_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "read/reader.h"
#include "relay/mailbox.h"
#include "relay/route.h"
#include "relay/window.h"

/* What is the same for all claims of a worker. */
struct admission {
	const struct route *route;
	const struct reader_driver *driver;
	bool keeps_order;               /* otherwise each row is a lane of its own */
	struct mailbox *outcomes;
	const char *node;               /* these three sign rows, where a template wants that */
	uint32_t worker;
	uint32_t session;               /* how many connections the worker has had */
};

/* How many rows an answer brings. */
uint32_t answer_rows(const struct answer *a);
/* Takes in an answer with at least one row, which is taken over. Rows that cannot be routed are refused, those that the
 * window passes over are left. Returns how many came in. */
uint32_t admit_rows(const struct admission *to, const struct answer *a, struct window *w);

#endif
