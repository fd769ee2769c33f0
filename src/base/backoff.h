/* How long to wait before the n-th try: doubling, with a part that is left to chance, so that many workers which lost the
 * same server do not come back in step. */
#ifndef POSTRIDER_BASE_BACKOFF_H
#define POSTRIDER_BASE_BACKOFF_H

#include <stdint.h>

struct backoff {
	int64_t first_ms;
	int64_t max_ms;
	uint32_t tries;
	uint64_t seed;
};

uint64_t random_next(uint64_t *seed);                   /* splitmix64 */
uint64_t random_seed(void);                             /* from the kernel */

void backoff_init(struct backoff *b, int64_t first_ms, int64_t max_ms, uint64_t seed);
int64_t backoff_next(struct backoff *b);                /* milliseconds to wait now */
void backoff_reset(struct backoff *b);

/* The wait after `tries` failures, without keeping state: at most what doubling gives, and up to `jitter` percent less. */
int64_t backoff_after(uint32_t tries, int64_t first_ms, int64_t max_ms, int64_t jitter, uint64_t *seed);

#endif
