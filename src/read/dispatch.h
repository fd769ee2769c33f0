/* The one who fetches for a pool of workers: a thread with the only connection that reads and settles the outbox.
 *
 * It is active while its session holds an advisory lock on the outbox; in all other processes it stands by and asks for the
 * lock twice a second. When it is active, workers hand it their exchanges. It settles what each has delivered, in a
 * transaction for each; reads the next page in order (read/pass.h); and deals the rows out by entity, always to the same
 * worker, into a queue of bounded length. So the order of an entity is kept through the pool.
 *
 * Workers' threads call begin, poll the descriptor of their channel and call receive, as with any reader. Everything that
 * they share with the dispatcher is guarded by its lock, which nobody holds while waiting for the network. */
#ifndef POSTRIDER_READ_DISPATCH_H
#define POSTRIDER_READ_DISPATCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"
#include "pg/pipeline.h"
#include "read/channel.h"
#include "read/pass.h"
#include "read/reader.h"

#define DISPATCH_WORKERS_MAX 256

enum dispatch_state { DISPATCH_CONNECTING, DISPATCH_FAILED, DISPATCH_STANDBY, DISPATCH_ACTIVE };

struct shared {
	struct reader_env env;
	pthread_t thread;
	int wake_fd;                    /* an exchange was handed over, or it is time to stop */
	_Atomic bool stopping;

	pthread_mutex_t lock;           /* guards what follows, up to the next empty line */
	pthread_cond_t changed;         /* state */
	enum dispatch_state state;
	struct error why_failed;
	struct channel channels[DISPATCH_WORKERS_MAX];
	uint32_t n_channels;
	uint64_t term;                  /* goes up when we become active */
	bool begin_again;               /* a worker has come whose rows were passed over */
	int64_t sent_ms;                /* when the last round that was answered was sent */

	/* The thread's own. */
	struct pipeline pipeline;
	char *identity;
	struct backoff backoff;
	struct pass pass;
	uint32_t id_type;
	uint32_t round[DISPATCH_WORKERS_MAX]; /* channels with a settle in the round under way, in order */
	uint32_t n_round, at_round;
	int64_t sending_ms;
	int64_t active_since_ms;
	uint64_t round_number;
};

extern const struct reader_driver reader_dispatcher;

void *dispatch_main(void *shared);

#endif
