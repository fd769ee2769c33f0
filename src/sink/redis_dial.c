#include "sink/redis_dial.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/mem.h"

struct redis_dial {
	const struct redis_server *server;
	pthread_t thread;
	bool started;
	int interrupt_fd, over_fd;      /* eventfds */

	/* Written by the thread, read after it was joined. */
	struct redis_link *link;        /* NULL: `why` */
	struct error why;
};

static void *dial_run(void *arg)
{
	struct redis_dial *d = arg;

	redis_server_connect(d->server, d->interrupt_fd, &d->link, &d->why);
	eventfd_write(d->over_fd, 1);
	return NULL;
}

struct redis_dial *redis_dial_start(const struct redis_server *server)
{
	struct redis_dial *d = mem_new(struct redis_dial);
	int failure;

	d->server = server;
	d->interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	d->over_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->interrupt_fd < 0 || d->over_fd < 0)
		abort();        /* out of descriptors: nothing can run */
	failure = pthread_create(&d->thread, NULL, dial_run, d);
	if (failure) {
		error_set(&d->why, ERROR_TRANSPORT, "could not start a thread to connect with: %s", strerror(failure));
		eventfd_write(d->over_fd, 1);
	}
	d->started = failure == 0;
	return d;
}

int redis_dial_fd(const struct redis_dial *d)
{
	return d->over_fd;
}

bool redis_dial_is_over(const struct redis_dial *d)
{
	struct pollfd over = { .fd = d->over_fd, .events = POLLIN };

	return poll(&over, 1, 0) > 0;
}

bool redis_dial_finish(struct redis_dial *d, struct redis_link **ret, struct error *err)
{
	struct redis_link *l;

	if (d->started)
		pthread_join(d->thread, NULL);
	l = d->link;
	if (l)
		*ret = l;
	else
		*err = d->why;
	close(d->interrupt_fd);
	close(d->over_fd);
	free(d);
	return l != NULL;
}

void redis_dial_cancel(struct redis_dial *d)
{
	_cleanup_(redis_link_freep) struct redis_link *l = NULL;
	struct error err;

	if (!d)
		return;
	eventfd_write(d->interrupt_fd, 1);
	redis_dial_finish(d, &l, &err);
}
