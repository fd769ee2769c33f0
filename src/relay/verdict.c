#include "relay/verdict.h"

#include "base/backoff.h"
#include "base/macros.h"

enum { FIRST_DELAY_MS = 1000, MAX_DELAY_MS = 5 * 60 * 1000 };

/* An outage is not a message's fault: what was on its way is sent again when the sink takes rows, and nothing is
 * counted. A row that is refused holds back its own entity only. */
static const struct verdict verdicts[ERROR_KIND_COUNT] = {
	/* kind                 action         counts */
	[ERROR_NONE]      = { WINDOW_HOLD,   false },    /* a failure without a reason is a bug */
	[ERROR_TRANSPORT] = { WINDOW_RESEND, false },
	[ERROR_THROTTLED] = { WINDOW_RESEND, false },
	[ERROR_REJECTED]  = { WINDOW_HOLD,   true },
	[ERROR_AUTH]      = { WINDOW_HOLD,   false },
	[ERROR_CONFIG]    = { WINDOW_HOLD,   false },
	[ERROR_LOST]      = { WINDOW_RESEND, false },
	[ERROR_BUG]       = { WINDOW_HOLD,   false },
};

const struct verdict *verdict_of(enum error_kind kind)
{
	return &verdicts[kind];
}

int64_t verdict_delay_ms(uint32_t attempts, uint64_t *seed)
{
	return backoff_after(MAX(attempts, 1), FIRST_DELAY_MS, MAX_DELAY_MS, seed);
}
