#include "relay/verdict.h"

#include <string.h>

#include "base/backoff.h"
#include "base/macros.h"
#include "config/options.h"

#define FOR_EVER_MS ((int64_t)100 * 365 * 24 * 3600 * 1000)

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

/* When retries are used up. */
static const enum hold_kind last_holds[] = {
	[REFUSED_BLOCK]       = HOLD_BLOCK,
	[REFUSED_DEAD_LETTER] = HOLD_BURY,
	[REFUSED_SKIP]        = HOLD_SKIP,
	[REFUSED_STOP]        = HOLD_STOP,
};

const struct verdict *verdict_of(enum error_kind kind)
{
	return &verdicts[kind];
}

/* A star at the end of the pattern stands for any ending. */
static bool fits(const char *pattern, struct slice topic)
{
	size_t len = strlen(pattern);
	bool open = len > 0 && pattern[len - 1] == '*';

	len -= open;
	return (open ? topic.len >= len : topic.len == len) && memcmp(pattern, topic.ptr, len) == 0;
}

enum when_refused when_refused_of(const struct failure_config *policy, struct slice topic)
{
	enum when_refused then = policy->then;

	for (size_t i = 0; topic.ptr && i < policy->topics.count; i++) {
		if (fits(policy->topics.pairs[i].key, topic)) {
			option_when_refused(policy->topics.pairs[i].value, &then);
			break;
		}
	}
	return then;
}

enum hold_kind verdict_hold_kind(const struct failure_config *policy, const struct event *ev)
{
	enum when_refused then = when_refused_of(policy, event_own_topic(ev));

	/* A letter is given up already, whatever became of it. */
	if (ev->letter && verdict_of(ev->failure->kind)->counts)
		return HOLD_BURY;
	if (!verdict_of(ev->failure->kind)->counts)
		return HOLD_RETRY;
	/* Who is to stop at a refusal does so at the first one. */
	return then == REFUSED_STOP || ev->attempt >= policy->max_retries ? last_holds[then] : HOLD_RETRY;
}

/* After a stop the row is tried again at once, by whoever starts next. */
struct hold verdict_hold(const struct failure_config *policy, struct event *ev, uint64_t *seed)
{
	struct hold h = {
		.event = ev,
		.kind = verdict_hold_kind(policy, ev),
		.attempts = ev->attempt + verdict_of(ev->failure->kind)->counts,
	};

	if (h.kind == HOLD_BLOCK)
		h.delay_ms = FOR_EVER_MS;
	else if (h.kind == HOLD_RETRY)
		h.delay_ms = backoff_after(MAX(h.attempts, 1), policy->first_delay_ms, policy->max_delay_ms, policy->jitter, seed);
	return h;
}
