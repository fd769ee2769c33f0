#include "sink/redis_dial.h"

#include <stdlib.h>

#include "base/errand.h"
#include "base/macros.h"
#include "base/mem.h"

struct redis_dial {
	const struct redis_server *server;
	struct errand errand;

	/* Written by the thread, read after it has ended. */
	struct redis_link *link;        /* NULL: `why` */
	struct error why;
};

static void run(void *dial)
{
	struct redis_dial *d = dial;

	redis_server_connect(d->server, d->errand.interrupt_fd, &d->link, &d->why);
}

struct redis_dial *redis_dial_start(const struct redis_server *server)
{
	struct redis_dial *d = mem_new(struct redis_dial);

	d->server = server;
	errand_start(&d->errand, run, d, &d->why);
	return d;
}

int redis_dial_fd(const struct redis_dial *d)
{
	return d->errand.over_fd;
}

bool redis_dial_is_over(const struct redis_dial *d)
{
	return errand_is_over(&d->errand);
}

bool redis_dial_finish(struct redis_dial *d, struct redis_link **ret, struct error *err)
{
	struct redis_link *l;

	errand_end(&d->errand);
	l = d->link;
	if (l)
		*ret = l;
	else
		*err = d->why;
	free(d);
	return l != NULL;
}

void redis_dial_cancel(struct redis_dial *d)
{
	_cleanup_(redis_link_freep) struct redis_link *l = NULL;
	struct error err;

	if (!d)
		return;
	errand_interrupt(&d->errand);
	redis_dial_finish(d, &l, &err);
}
