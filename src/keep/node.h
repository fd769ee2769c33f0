/* This process among those that relay: a row in postrider.node, kept alive by its heart (keep/heart.h). Others may
 * take what a dead node held, so whoever holds something by the number of the node asks before he acts whether others
 * may take it for dead by now. */
#ifndef POSTRIDER_KEEP_NODE_H
#define POSTRIDER_KEEP_NODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { NODE_SILENT_BEATS = 3 };         /* missed: others may take us for dead */

/* Where nodes hear that somebody has changed what holds for all of them: see keep/steering.h. The payload is the number of the
 * outbox. */
#define STEERING_CHANNEL "postrider_steer"

struct node {
	const char *name;
	int64_t heartbeat_ms;
	_Atomic int64_t id;             /* in postrider.node; 0: not registered */
	_Atomic int64_t beat_ms;        /* monotonic ms (clock_ms): when the last beat that arrived was sent */
};

/* Until when nobody can take us for dead, with half a heartbeat to spare. Any thread. */
static inline int64_t node_trusted_until(const struct node *n)
{
	return atomic_load(&n->beat_ms) + n->heartbeat_ms * NODE_SILENT_BEATS - n->heartbeat_ms / 2;
}

static inline bool node_is_trusted(const struct node *n, int64_t now_ms)
{
	return atomic_load(&n->id) != 0 && now_ms <= node_trusted_until(n);
}

/* What the database knows of another node, as SQL over a row `n` of postrider.node. A session that we may not look at
 * shows its pid only. */
#define NODE_IS_SILENT                                                                                  \
	"(clock_timestamp() - n.heartbeat_at > 3 * n.heartbeat_ms * interval '1 millisecond')"
#define NODE_IS_GONE                                                                                    \
	"(n.backend_pid IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_get_activity(n.backend_pid) a"  \
	" WHERE a.backend_start IS NULL OR a.backend_start = n.backend_start))"

#endif
