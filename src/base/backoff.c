#include "base/backoff.h"

#include <sys/random.h>

#include "base/clock.h"

enum { HALF = 50 };

uint64_t random_next(uint64_t *seed)
{
	uint64_t z = (*seed += 0x9E3779B97F4A7C15u);

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

uint64_t random_seed(void)
{
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = (uint64_t)clock_us();
	return seed;
}

int64_t backoff_after(uint32_t tries, int64_t first_ms, int64_t max_ms, int64_t jitter, uint64_t *seed)
{
	int64_t wait = first_ms, chance;

	for (uint32_t i = 1; i < tries && wait < max_ms; i++)
		wait *= 2;
	if (wait > max_ms)
		wait = max_ms;
	chance = wait * jitter / 100;
	return wait - chance + (int64_t)(random_next(seed) % (uint64_t)(chance + 1));
}

void backoff_init(struct backoff *b, int64_t first_ms, int64_t max_ms, uint64_t seed)
{
	*b = (struct backoff){ .first_ms = first_ms, .max_ms = max_ms, .seed = seed };
}

int64_t backoff_next(struct backoff *b)
{
	b->tries++;
	return backoff_after(b->tries, b->first_ms, b->max_ms, HALF, &b->seed);
}

void backoff_reset(struct backoff *b)
{
	b->tries = 0;
}
