#include "cli/rates.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "keep/overview.h"

void rates_add(struct rates *r, int64_t now_ms, const PGresult *workers)
{
	PGresult *copy = PQcopyResult(workers, PG_COPYRES_ATTRS | PG_COPYRES_TUPLES);

	if (!copy)
		abort();        /* out of memory */
	if (r->n == RATES_SAMPLES) {
		PQclear(r->samples[0].workers);
		memmove(&r->samples[0], &r->samples[1], (RATES_SAMPLES - 1) * sizeof(r->samples[0]));
		r->n--;
	}
	r->samples[r->n++] = (struct rate_sample){ now_ms, copy };
}

void rates_release(struct rates *r)
{
	while (r->n > 0)
		PQclear(r->samples[--r->n].workers);
}

static bool is_same_worker(const PGresult *a, int i, const PGresult *b, int k)
{
	static const int name[] = { WORKER_NODE, WORKER_OUTBOX, WORKER_NUMBER };

	for (size_t n = 0; n < sizeof(name) / sizeof(name[0]); n++)
		if (strcmp(PQgetvalue(a, i, name[n]), PQgetvalue(b, k, name[n])) != 0)
			return false;
	return true;
}

/* What the worker had settled then. One that was not there has begun since, and so with nothing. */
static int64_t settled_before(const PGresult *then, const PGresult *now, int row)
{
	for (int i = 0; i < PQntuples(then); i++)
		if (is_same_worker(then, i, now, row))
			return atoll(PQgetvalue(then, i, WORKER_SETTLED));
	return 0;
}

int64_t rates_of(const struct rates *r, int column, const char *value)
{
	const struct rate_sample *first = &r->samples[0], *last;
	int64_t rows = 0, ms;

	if (r->n < 2)
		return -1;
	last = &r->samples[r->n - 1];
	ms = last->at_ms - first->at_ms;
	for (int i = 0; i < PQntuples(last->workers); i++) {
		int64_t settled = atoll(PQgetvalue(last->workers, i, WORKER_SETTLED)), before;

		if (strcmp(PQgetvalue(last->workers, i, column), value) != 0)
			continue;
		before = settled_before(first->workers, last->workers, i);
		/* Who has settled less than before has begun anew. */
		rows += settled >= before ? settled - before : settled;
	}
	return ms > 0 ? rows * 1000 / ms : -1;
}
