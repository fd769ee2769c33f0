/* What follows a failure: one row per kind of error. */
#ifndef POSTRIDER_RELAY_VERDICT_H
#define POSTRIDER_RELAY_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "relay/window.h"

struct verdict {
	enum window_action action;
	bool counts;            /* as an attempt of this row */
};

const struct verdict *verdict_of(enum error_kind kind);

/* How long a held entity waits after its row has been refused `attempts` times; at least one wait even when none counts. */
int64_t verdict_delay_ms(uint32_t attempts, uint64_t *seed);

#endif
