/* A few log lines per second of one sort, and how many were left out in between. */
#ifndef POSTRIDER_RELAY_LIMITER_H
#define POSTRIDER_RELAY_LIMITER_H

#include <stdbool.h>
#include <stdint.h>

struct limiter {
	int64_t second;
	uint32_t used;
	uint32_t suppressed;
};

/* True when a line may be written now; *ret_suppressed then says how many were not since the last. */
static inline bool limiter_allow(struct limiter *l, uint32_t per_second, int64_t now_ms, uint32_t *ret_suppressed)
{
	if (now_ms / 1000 != l->second) {
		l->second = now_ms / 1000;
		l->used = 0;
	}
	if (l->used >= per_second) {
		l->suppressed++;
		return false;
	}
	l->used++;
	*ret_suppressed = l->suppressed;
	l->suppressed = 0;
	return true;
}

#endif
