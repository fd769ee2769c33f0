#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"

enum { EVERY_MS = 100, WIDTH = 30 };

void progress_show(struct progress *p, int64_t done)
{
	static const char full[] = "##############################", empty[] = "..............................";
	int64_t now = clock_ms();
	int filled = (int)(p->of > 0 ? MIN(done, p->of) * WIDTH / p->of : WIDTH);

	_Static_assert(sizeof(full) == WIDTH + 1 && sizeof(empty) == WIDTH + 1, "both are one bar long");
	if (now - p->shown_ms < EVERY_MS || !isatty(STDERR_FILENO))
		return;
	p->shown_ms = now;
	fprintf(stderr, "\r\033[K%s [%.*s%.*s] %lld of %lld", p->doing, filled, full, WIDTH - filled, empty, (long long)done,
		(long long)p->of);
}

void progress_end(struct progress *p)
{
	if (p->shown_ms > 0)
		fputs("\r\033[K", stderr);
	p->shown_ms = 0;
}
