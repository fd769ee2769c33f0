/* What a worker has in flight: which rows may go to which sink now, and which may be settled.
 *
 * Each entity has a *lane*: its rows in order; where no order is kept, each row has one of its own. A row passes the sinks
 * ("stages") one after the other; inside a lane no row enters a stage before the row ahead of it has, and none is delivered
 * before the row ahead of it is. So whatever order outcomes come in, what the reader settles is always the front part of a
 * lane.
 *
 * Only what goes the same way, by topic and key, arrives in order, or not at all, where a sink has several ways (Kafka's
 * partitions). There a row that goes another way than the one ahead of it waits until that one is acknowledged.
 *
 * A row that fails stops its lane: what is ready is called back, what is submitted is waited for, and then either the
 * lane is sent again from the failed row on, or the failed row and all behind it leave the window unsettled. What a sink
 * acknowledged behind a failed row counts as not sent: repeating it is better than losing the order.
 *
 * Knows nothing of PostgreSQL, Kafka or time. One thread. */
#ifndef POSTRIDER_RELAY_WINDOW_H
#define POSTRIDER_RELAY_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "relay/event.h"

#define WINDOW_STAGES_MAX 8

struct event_list {
	struct event *first, *last;
	uint32_t count;
};

enum window_action {
	WINDOW_RESEND,          /* the failed row and those behind it go again */
	WINDOW_HOLD,            /* they leave the window unsettled; the entity is held back */
};

/* The rows of one entity in the window, oldest first. It ends when its last row is settled or has left. */
struct lane {
	struct event *first, *last;
	struct event *turn[WINDOW_STAGES_MAX + 1];      /* next to enter each stage; the one after the last is "delivered" */
	uint32_t at[WINDOW_STAGES_MAX];                 /* ready or submitted, per stage */
	uint32_t submitted;
	uint32_t next_place;
	bool alone;                                     /* a row that must be alone is ready or submitted */
	struct event *failed;                           /* where the lane stopped; NULL when it runs */
	enum window_action action;                      /* what follows when the last outcome is in */
	uint64_t hash;
	struct lane *hash_next;
};

struct window {
	uint32_t n_stages;
	bool keeps_order[WINDOW_STAGES_MAX];            /* the sink takes an entity's rows of one topic and key back to back, */
	bool one_stream[WINDOW_STAGES_MAX];             /* or any of its rows; false unless the owner sets it */
	struct event_list ready[WINDOW_STAGES_MAX];
	struct event_list delivered;
	struct event_list held;                         /* failed rows whose entity is to be held back */
	uint32_t rows;                                  /* in the window, orphans included */
	size_t bytes;
	uint32_t orphans;
	uint32_t n_stopped;                             /* lanes that wait for outcomes after a failure, and held rows */
	struct lane **buckets;
	uint32_t n_buckets, n_lanes;
};

void window_init(struct window *w, uint32_t n_stages, const bool keeps_order[]);
/* Every event must have left before. */
void window_release(struct window *w);

/* For readers that read on while earlier rows are in flight. False when the row stands behind one that is being held back
 * and must not pass it, or, where it may have been read before (`again`), when it is here already. */
bool window_takes(const struct window *w, const struct event *ev, bool again);

/* Takes a row in, behind those of its entity that are here. */
void window_admit(struct window *w, struct event *ev);

/* Takes the next rows for a stage, at most `max`, and counts them as submitted: from the moment a sink has one, its
 * outcome may be under way. Those that the sink did not take come back, in the same order. */
uint32_t window_submit(struct window *w, uint32_t stage, struct event *events[], uint32_t max);
void window_unsubmit(struct window *w, uint32_t stage, struct event *const events[], uint32_t n);

/* The outcome of a submitted row: its sink has it, or not. An orphan just leaves and is released to its batch. */
void window_passed(struct window *w, struct event *ev);
void window_failed(struct window *w, struct event *ev, enum window_action action);
/* A row that no sink has now (it cannot be routed, or the settling transaction refused it) is refused: it is held. */
void window_refused(struct window *w, struct event *ev);

/* A delivered row was settled, or a held one recorded: it leaves the window and its batch. */
void window_done(struct window *w, struct event *ev);

/* Takes rows from the front of `delivered` or `held`, at most `max`, to settle or record them; linked by `next`. */
struct event_list window_take(struct event_list *from, uint32_t max);

/* True when this is the last row of its lane, so that settling it ends the claim on the entity. */
bool window_ends_lane(const struct event *ev);

/* Puts rows that were taken back to the front. */
void window_return(struct event_list *to, struct event_list back);

/* The claim is gone (connection lost): all rows leave at once, taken ones too, except the submitted ones: these stay as
 * orphans until their outcome. */
void window_abandon(struct window *w);

/* Calls `visit` with every row that is here, orphans left out. */
void window_each_event(const struct window *w, void (*visit)(void *arg, const struct event *ev), void *arg);
/* Calls `visit` with the key of each lane, except those that end with what is being settled. */
void window_each_lane(const struct window *w, void (*visit)(void *arg, struct slice lane_key), void *arg);

#endif
