/* How idle workers of one outbox learn that there may be rows: somebody rings, or the time to look has come.
 *
 * A worker notes the number of rings before it claims. If the claim found nothing and the number is still the same it may
 * sleep; the next ring wakes one sleeper, and a sleeper that finds plenty rings for the next. Watching the clock is the
 * task of one sleeper at a time, the first in the row, so that an idle node asks the database once per interval however
 * many workers it has; the others look in a second later in case that one is stuck.
 *
 * Shared by the listener and the workers; every field is atomic or set before threads start. */
#ifndef POSTRIDER_RELAY_BELL_H
#define POSTRIDER_RELAY_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "relay/mailbox.h"

#define BELL_WORKERS_MAX 256

struct bell {
	int64_t watchdog_ms;                    /* look at least this often, whatever happens */
	bool for_all;                           /* workers read different rows, so a ring is for every one of them */
	uint32_t n_workers;
	struct mailbox *mailboxes[BELL_WORKERS_MAX];
	_Atomic bool asleep[BELL_WORKERS_MAX];
	_Atomic uint64_t rings;
	_Atomic uint32_t next;                  /* where to look for a sleeper first */
	_Atomic int64_t next_look_ms;
	_Atomic int64_t due_ms;                 /* a held entity may be tried again, or a scheduled row is due */
	_Atomic bool deaf;                      /* nobody will ring when rows come: look often */
	_Atomic int64_t pace_ms;                /* the last wait between two looks while deaf */
	_Atomic uint64_t rows;                  /* claimed so far by all workers of the node */
	_Atomic bool paused;                    /* nobody claims: postrider.pause has the outbox */
	_Atomic bool letters;                   /* there are dead letters that no later row of their entity has passed */
	_Atomic uint64_t steers;                /* how often a person has changed what is held back */
};

void bell_init(struct bell *b, int64_t watchdog_ms);
/* Before threads start. Returns the worker's number. */
uint32_t bell_add_worker(struct bell *b, struct mailbox *m);

void bell_ring(struct bell *b);
/* Wakes every sleeper: rows that nobody could claim may have become free, and there may be many. */
void bell_ring_all(struct bell *b);
/* There are rows for this worker, and for no other. */
void bell_ring_worker(struct bell *b, uint32_t w);
/* A held entity may be tried again at this time, or a scheduled row is due. Only the earliest is kept; the watchdog, or
 * the answer to the next claim, finds the others. */
void bell_due(struct bell *b, int64_t when_ms);
/* Rows come in without ringing from now on, or ring again. */
void bell_set_deaf(struct bell *b, bool deaf);

/* Nobody claims from now on, or everybody may again. Wakes all workers, asleep or not: they notice at once. */
void bell_set_paused(struct bell *b, bool paused);
bool bell_is_paused(const struct bell *b);
/* There are dead letters, or no longer: whoever settles notes which of their entities have gone on. */
void bell_set_letters(struct bell *b, bool letters);
bool bell_has_letters(const struct bell *b);
/* A person has let something go, put something back or put it aside. A number that goes up each time. */
void bell_steer(struct bell *b);
uint64_t bell_steers(const struct bell *b);

uint64_t bell_rings(const struct bell *b);
/* A claim of this node returned: `rows` claimed, at time `now_ms`. Sets when to look next. */
void bell_claimed(struct bell *b, uint32_t rows, int64_t now_ms);

/* True when worker `w`, which noted `seen` before its last claim, may sleep until *ret_until_ms; false when it rang since
 * or it is time to look. After sleeping, for whatever reason it woke: bell_awake. */
bool bell_sleep(struct bell *b, uint32_t w, uint64_t seen, int64_t now_ms, int64_t *ret_until_ms);
void bell_awake(struct bell *b, uint32_t w);

#endif
