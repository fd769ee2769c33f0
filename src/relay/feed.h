/* The reader's side of a worker: it keeps the connection, decides when to exchange and how much to claim, routes what
 * comes into the window and settles what leaves it. One thread: the worker's. */
#ifndef POSTRIDER_RELAY_FEED_H
#define POSTRIDER_RELAY_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"
#include "base/error.h"
#include "base/histogram.h"
#include "read/reader.h"
#include "relay/admit.h"
#include "relay/bell.h"
#include "relay/limiter.h"
#include "relay/route.h"
#include "relay/window.h"

/* Since the start. Contention shows in the claims: how many looked in vain, and how much of what they looked at was taken. */
struct feed_counts {
	uint64_t claimed, settled;              /* rows */
	uint64_t claims, empty_claims;
	uint64_t looked;                        /* entities, rows or shards that claims tried to get … */
	uint64_t lost;                          /* … and did not get, because others had them */
	struct histogram claim_time;            /* of exchanges that claimed */
	uint64_t holds[HOLD_KIND_COUNT];        /* refusals that are recorded, by what followed */
};

struct feed_env {
	const struct reader_driver *driver;
	struct reader_env reader;
	const struct route *route;
	struct bell *bell;
	uint32_t worker;                        /* the worker's number at the bell */
	struct mailbox *outcomes;
	const char *node;                       /* our name */
	uint64_t seed;                          /* of what is random: waits */
};

struct feed {
	struct feed_env env;
	struct window *window;
	const struct reader_driver *driver;     /* of the reader that is open, or the last one */
	struct admission admission;
	struct rider rider;
	struct reader *reader;                  /* NULL: not connected */
	struct backoff backoff;
	int64_t retry_at_ms;                    /* connect, or settle again, not before this */
	bool recall;                            /* claims were lost while rows were with sinks: they are to drop what they can */
	bool lost;                              /* the loss of the connection was logged */
	struct error why_lost;                  /* the last time */
	bool answered;                          /* an exchange has worked once */
	struct error refused;                   /* kind ERROR_CONFIG or ERROR_AUTH: the first connection was refused for a
	                                         * reason that waiting does not mend */
	struct error stop;                      /* a row was refused after which the process is to end; kind ERROR_NONE: none */
	bool settle_failing;                    /* a failing settle was logged */

	bool busy;                              /* an exchange is under way */
	bool draining;                          /* claim nothing more */
	bool paused;                            /* claim nothing until the bell says otherwise */
	bool gives_back;                        /* it was paused, and the next exchange is due at once */
	bool hungry;                            /* there may be rows to claim */
	uint64_t seen_rings;                    /* of the bell, before the last claim */
	int64_t waiting_since_ms;               /* for the turn to claim; 0: not waiting */
	uint32_t misses;                        /* claims in a row that found everything taken */
	uint32_t claim_rows;                    /* what the next claim asks for */
	uint32_t asked_rows;                    /* what the one under way asked for */
	int64_t last_exchange_ms;
	int64_t beat_ms;
	uint64_t progress;                      /* rows settled when progress was last seen … */
	int64_t progress_ms;                    /* … and when that was */

	struct event **done;                    /* what the exchange under way settles */
	uint32_t n_done, done_room;
	struct hold *holds;
	uint32_t n_holds, holds_room;
	uint32_t one_by_one;                    /* this many rows are settled singly, to find the one that is refused */

	struct limiter refusals;
	int64_t claim_began_us;
	struct feed_counts counts;
};

void feed_init(struct feed *f, const struct feed_env *env, struct window *window);
void feed_release(struct feed *f);

/* To be called first in a turn, before anything is published: notices that a frozen process has lost its claims. */
void feed_wake(struct feed *f, int64_t now_ms);
/* Connects, does what is possible now, and says when it wants to be called again at the latest. */
void feed_turn(struct feed *f, int64_t now_ms, int64_t *ret_deadline_ms);
/* Descriptor to wait on, or -1. */
int feed_pollfd(const struct feed *f, short *ret_events);
/* True when nothing is claimed and nothing under way. */
bool feed_idle(const struct feed *f);
bool feed_connected(const struct feed *f);
void feed_drain(struct feed *f);

#endif
