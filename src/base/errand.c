#include "base/errand.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

static void *errand_main(void *errand)
{
	struct errand *e = errand;

	e->run(e->arg);
	eventfd_write(e->over_fd, 1);
	return NULL;
}

bool errand_start(struct errand *e, void (*run)(void *arg), void *arg, struct error *err)
{
	int failure;

	*e = (struct errand){
		.run = run,
		.arg = arg,
		.interrupt_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
		.over_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
	};
	if (e->interrupt_fd < 0 || e->over_fd < 0)
		abort();        /* out of descriptors: nothing can run */
	failure = pthread_create(&e->thread, NULL, errand_main, e);
	e->started = failure == 0;
	if (e->started)
		return true;
	eventfd_write(e->over_fd, 1);
	return error_set(err, ERROR_TRANSPORT, "could not start a thread to connect with: %s", strerror(failure));
}

bool errand_is_over(const struct errand *e)
{
	return is_readable(e->over_fd);
}

void errand_interrupt(const struct errand *e)
{
	eventfd_write(e->interrupt_fd, 1);
}

bool errand_is_interrupted(const struct errand *e)
{
	return is_readable(e->interrupt_fd);
}

void errand_end(struct errand *e)
{
	if (e->started)
		pthread_join(e->thread, NULL);
	close(e->interrupt_fd);
	close(e->over_fd);
}
