/* Workers of a process that are fed by one thread, the leader. Only it reads and settles the outbox, and in only one process
 * at a time: while its session holds an advisory lock on the outbox. In all other processes it stands by and asks for the
 * lock twice a second.
 *
 * Workers hand the leader their exchanges, each through a channel of its own, and take answers from there, as with any
 * reader. The leader deals rows out by entity, always to the same worker, into a queue of bounded length: so the order of an
 * entity is kept through the pool. What it reads and how it settles is its own: a struct pool_leader.
 *
 * Everything that threads share is guarded by the pool's lock, which nobody holds while waiting for the network. */
#ifndef POSTRIDER_READ_POOL_H
#define POSTRIDER_READ_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"
#include "pg/pipeline.h"
#include "read/channel.h"
#include "read/reader.h"

#define POOL_WORKERS_MAX 256

enum pool_state {
	POOL_CONNECTING,
	POOL_FAILED,
	POOL_STANDBY,
	POOL_ACTIVE,
	POOL_REPLACED,                          /* for good: another reader does the work */
};

struct pool_leader {
	const struct reader_driver *driver;
	const struct statement *statements;     /* on the leader's connection */
	int n_statements;
	int lead;                               /* the one that asks for the lock: POOL_LEAD */
	const char *standby_event, *active_event; /* in the log */
	/* With the lock on the outbox: reads and settles until asked to stop (true) or the session is lost (false). */
	bool (*work)(struct pool *, struct error *err);
	/* The session is over; what work() made goes. */
	void (*ended)(struct pool *);
};

#define POOL_LEAD(kind)                                                                                         \
	{ "postrider_lead", "become the active reader",                                                         \
	  "SELECT pg_try_advisory_lock(hashtextextended('postrider." kind "', {oid}))" }

struct pool {
	const struct pool_leader *leader;
	struct database_config database;        /* as the leader's session wants it */
	struct reader_env env;
	pthread_t thread;
	int wake_fd;                            /* an exchange was handed over, or it is time to stop */
	_Atomic bool stopping;

	pthread_mutex_t lock;                   /* guards what follows, up to the next empty line */
	pthread_cond_t changed;                 /* state */
	enum pool_state state;
	struct error why_failed;
	struct channel channels[POOL_WORKERS_MAX];
	uint32_t n_channels;
	uint64_t term;                          /* goes up when we become active */
	uint64_t round;                         /* number of the trip to the database under way, or the last one */
	bool newcomer;                          /* a worker has come whose rows were passed over */
	uint32_t id_type;                       /* of ids in the rows that are dealt */
	int64_t sent_ms;                        /* when the last round that was answered was sent */

	/* The leader's own. */
	struct pipeline pipeline;
	char *identity;
	struct backoff backoff;
	const struct reader_driver *replacement; /* set by work(), which then returns false: see POOL_REPLACED */
};

/* --- for the leader ----------------------------------------------------------------------------------------------- */

/* Starts its thread. `p` is zero, and inside a larger struct that the leader frees in its own unshare. */
void pool_start(struct pool *p, const struct pool_leader *leader, const struct reader_env *env);
/* Ends the thread, and everything that pool_start made. */
void pool_stop(struct pool *p);

/* All those with the lock held. */
bool pool_anything_asked(const struct pool *p);
/* Deals the rows out, taken over, among workers that are there since before this round; the others' begin anew (newcomer).
 * `skips` (NULL: none) says of each row that it is not to be dealt. The caller has a share of the rows, and releases it. */
struct shared_rows *pool_deal(struct pool *p, PGresult *rows, const bool *skips, bool again, const struct retry *retries,
			      uint32_t n_retries);
/* Answers one channel, and every one in this state; `more`: there is something left to read. */
void pool_answer_one(struct pool *p, struct channel *c, bool more);
void pool_answer(struct pool *p, enum channel_state which, bool more);
/* Rings for workers that have rows waiting and did not ask. */
void pool_ring(struct pool *p);

/* Waits until a worker wants something, a descriptor is ready (fds[0] is the pool's to fill in) or the time is over. */
struct pollfd;
void pool_wait(struct pool *p, struct pollfd *fds, uint32_t n_fds, int64_t ms);
/* The leader works from now on. */
void pool_set_active(struct pool *p);

/* --- for the table of functions of the reader ------------------------------------------------------------------------ */

const struct reader_driver *pool_instead(const struct reader_env *env);
bool pool_open(const struct reader_env *env, struct reader **ret, struct error *err);
void pool_close(struct reader *r);
const char *pool_identity(const struct reader *r);
const char *pool_condition(const struct reader *r);
int64_t pool_holds_until(const struct reader *r);
bool pool_begin(struct reader *r, const struct exchange *x, struct error *err);
int pool_pollfd(const struct reader *r, short *ret_events);
bool pool_receive(struct reader *r, bool *ret_complete, struct answer *ret, struct error *err);

#endif
