/* How many rows in a second workers have settled lately: the difference of what an overview says of them now and said some
 * samples ago. */
#ifndef POSTRIDER_CLI_RATES_H
#define POSTRIDER_CLI_RATES_H

#include <libpq-fe.h>
#include <stddef.h>
#include <stdint.h>

/* Hearts write once in a second, at moments of their own: a few samples more even that out. */
#define RATES_SAMPLES 6

struct rates {
	struct rate_sample {
		int64_t at_ms;
		PGresult *workers;
	} samples[RATES_SAMPLES];       /* the oldest first */
	size_t n;
};

/* The rows of overview.workers; they are copied. */
void rates_add(struct rates *r, int64_t now_ms, const PGresult *workers);
/* Of the workers whose WORKER_… column has this value; -1 as long as there is only one sample. */
int64_t rates_of(const struct rates *r, int column, const char *value);
void rates_release(struct rates *r);

#endif
