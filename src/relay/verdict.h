/* What follows a failure: one row for each kind of error, and one for each policy when the retries of a row are used up. */
#ifndef POSTRIDER_RELAY_VERDICT_H
#define POSTRIDER_RELAY_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "read/reader.h"
#include "relay/event.h"
#include "relay/window.h"

struct verdict {
	enum window_action action;
	bool counts;            /* as a refusal of this row: retries are limited */
};

const struct verdict *verdict_of(enum error_kind kind);

/* The policy for rows of a topic, which may be NULL where the row could not be routed. */
enum when_refused when_refused_of(const struct failure_config *policy, struct slice topic);

/* What a refused row comes to. */
enum hold_kind verdict_hold_kind(const struct failure_config *policy, const struct event *ev);
/* And all that is recorded of it. */
struct hold verdict_hold(const struct failure_config *policy, struct event *ev, uint64_t *seed);

#endif
