/* Something that can only block, such as connecting, done in a thread of its own while a loop goes on: it ends by making a
 * descriptor readable, and may be asked to end early. */
#ifndef POSTRIDER_BASE_ERRAND_H
#define POSTRIDER_BASE_ERRAND_H

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"

struct errand {
	void (*run)(void *arg);
	void *arg;
	pthread_t thread;
	bool started;
	int interrupt_fd;               /* readable when it is to end: for what `run` waits in */
	int over_fd;                    /* readable when it has ended */
};

/* What `run` writes may be read when errand_end has returned. False: there is no thread, and it is over already. */
bool errand_start(struct errand *e, void (*run)(void *arg), void *arg, struct error *err);
bool errand_is_over(const struct errand *e);
/* From any thread; it is still to be ended. */
void errand_interrupt(const struct errand *e);
bool errand_is_interrupted(const struct errand *e);
/* Waits until it is over. */
void errand_end(struct errand *e);

#endif
