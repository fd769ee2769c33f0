#include "relay/mailbox.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

void mailbox_init(struct mailbox *m)
{
	atomic_init(&m->newest, NULL);
	m->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (m->fd < 0)
		abort();        /* out of descriptors at start: nothing can run */
}

void mailbox_release(struct mailbox *m)
{
	close(m->fd);
	m->fd = -1;
}

void mailbox_wake(struct mailbox *m)
{
	ssize_t ignored _unused_ = write(m->fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

void mailbox_post_chain(struct mailbox *m, struct event *newest, struct event *oldest)
{
	struct event *before = atomic_load_explicit(&m->newest, memory_order_relaxed);

	do
		oldest->next = before;
	while (!atomic_compare_exchange_weak_explicit(&m->newest, &before, newest, memory_order_release,
						      memory_order_relaxed));
	/* Whoever filled an empty box woke the worker already, and it has not looked since. */
	if (!before)
		mailbox_wake(m);
}

void mailbox_post(struct mailbox *m, struct event *ev)
{
	mailbox_post_chain(m, ev, ev);
}

struct event *mailbox_take(struct mailbox *m)
{
	uint64_t count;
	ssize_t ignored _unused_ = read(m->fd, &count, sizeof(count));
	struct event *ev, *oldest_first = NULL;

	ev = atomic_exchange_explicit(&m->newest, NULL, memory_order_acquire);
	while (ev) {
		struct event *older = ev->next;

		ev->next = oldest_first;
		oldest_first = ev;
		ev = older;
	}
	return oldest_first;
}
