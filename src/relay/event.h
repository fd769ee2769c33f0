/* One outbox row on its way. It lives in its batch; its slices point into the batch's PGresult or arena.
 *
 * The owner is one worker thread. A sink may read an event from another thread between submit and its outcome, and
 * writes only `failure` and `alone` then; the mailbox hands it back. */
#ifndef POSTRIDER_RELAY_EVENT_H
#define POSTRIDER_RELAY_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

struct batch;
struct lane;
struct mailbox;

struct header {
	struct slice name;
	struct slice value;             /* a NULL ptr is a header without a value */
};

enum event_state {
	EVENT_WAITING,                  /* for its turn at sink number `stage` */
	EVENT_READY,                    /* its turn has come */
	EVENT_SUBMITTED,                /* with sink number `stage`, outcome not known */
	EVENT_DELIVERED,                /* all sinks have it and all rows before it; not settled yet */
	EVENT_HELD,                     /* refused; its entity waits */
	EVENT_ORPHANED,                 /* still with a sink, but the claim is gone: nobody waits for its outcome */
};

struct event {
	struct batch *batch;

	/* What the row says, as text in UTF-8, except `payload`: its bytes. NULL where the table has no such column. */
	struct slice id;
	struct slice raw_entity;        /* both as they are in the result */
	struct slice raw_id;            /* the same as it is in the result, and where the row was: what settle deletes by */
	struct slice address;
	struct slice entity;            /* what order is kept for */
	struct slice lane_key;          /* what waits when the row fails: the entity, or the id where no order is kept */
	struct slice message_id;        /* what consumers deduplicate by; the id where the table has none */
	struct slice entity_type;
	struct slice event_type;
	struct slice created_at;        /* RFC 3339 in UTC */

	/* What routing made of it. */
	struct slice topic;
	struct slice meant_for;         /* the topic of a row that was made a letter */
	struct slice key;               /* NULL: no key */
	struct slice payload;           /* NULL: a null value, Kafka's tombstone */
	struct header *headers;
	uint32_t n_headers;

	uint32_t attempt;               /* times that this row was refused before */
	uint8_t stage;                  /* index of the sink it is at */
	uint8_t state;                  /* enum event_state */
	bool letter;                    /* given up, and on its way to the dead-letter topic instead of `meant_for` */
	bool settling;                  /* taken from the window's lists, to be settled or recorded as held */
	bool retried;                   /* its entity has an entry in postrider.retry, to be cleared when it is settled */
	bool alone;                     /* no other row of its entity may be at the same sink: it was refused before, or
	                                 * travelled with one that was */
	bool elsewhere;                 /* it has another topic or key than the row of its entity ahead of it */

	int32_t part;                   /* the reader's own number for what the row belongs to */
	uint32_t place;                 /* in its lane: later rows have higher ones */
	struct lane *lane;              /* the window's queue of its entity */
	struct event *behind;           /* next row of the same entity */
	struct event *next;             /* in the one list it is on: ready, mailbox or done */

	struct mailbox *outcomes;       /* where its outcome goes */
	struct error *failure;          /* NULL when delivered; heap, freed by the worker */
	struct error *reason;           /* of a letter: why it was given up; the same */
};

/* The topic that the row itself asked for. */
static inline struct slice event_own_topic(const struct event *ev)
{
	return ev->letter ? ev->meant_for : ev->topic;
}

/* What a row weighs against the limits of bytes in flight. */
static inline size_t event_bytes(const struct event *ev)
{
	return ev->payload.len + ev->key.len + ev->topic.len + 256;
}

#endif
