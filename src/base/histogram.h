/* How long things took, in fixed steps. One thread adds; who reads has a copy, or is that thread. */
#ifndef POSTRIDER_BASE_HISTOGRAM_H
#define POSTRIDER_BASE_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_STEPS = 17 };

/* Upper bounds in microseconds, each included. */
static const int64_t histogram_bounds_us[HISTOGRAM_STEPS] = {
	500,    1000,    2500,    5000,     10000,    25000,    50000,    100000,    250000,
	500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000, 300000000,
};

struct histogram {
	uint64_t counts[HISTOGRAM_STEPS + 1];   /* those of one step only; the last has no bound */
	uint64_t sum_us;
};

/* What clocks that differ make negative counts as nothing. */
static inline void histogram_add(struct histogram *h, int64_t us)
{
	int step = 0;

	while (step < HISTOGRAM_STEPS && us > histogram_bounds_us[step])
		step++;
	h->counts[step]++;
	h->sum_us += us > 0 ? (uint64_t)us : 0;
}

static inline void histogram_merge(struct histogram *to, const struct histogram *from)
{
	for (int i = 0; i <= HISTOGRAM_STEPS; i++)
		to->counts[i] += from->counts[i];
	to->sum_us += from->sum_us;
}

#endif
