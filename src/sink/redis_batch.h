/* The events that are on their way to Redis together: MULTI, an XADD for each, EXEC.
 *
 * The transaction is what keeps order. Plain XADDs in a pipeline are answered one by one, and a server that is loading,
 * full or not yet promoted may refuse an early one and take a later one of the same entity a moment after. In a
 * transaction a command that is refused when it is queued (no memory, no permission, read-only, loading) discards all of
 * it; what can only fail when it runs (a key that is not a stream) fails alike for every entry of that stream, since nobody
 * comes in between. With one batch unanswered at a time, no event is stored after an earlier one of its topic and key
 * failed.
 *
 * This part knows nothing of connections: replies come in, outcomes go out. */
#ifndef POSTRIDER_SINK_REDIS_BATCH_H
#define POSTRIDER_SINK_REDIS_BATCH_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "sink/outcome.h"

enum {
	REDIS_BATCH_EVENTS = 1000,
	REDIS_BATCH_BYTES = 1 << 20,            /* no further event is added past this */
};

struct redis_batch {
	struct event *events[REDIS_BATCH_EVENTS];
	struct error *why[REDIS_BATCH_EVENTS];  /* what the server said of one; NULL: nothing bad */
	uint32_t count;                         /* 0: there is no batch */
	uint32_t refused;                       /* how many have a `why` */
	uint32_t replies;                       /* taken in so far */
	bool executed;
	struct error whole;                     /* why none of it was stored, where no single event is to blame; or NONE */
};

/* Begins a batch with the first of these events, and says how many. 0: the first one is too large for any. */
uint32_t redis_batch_begin(struct redis_batch *b, struct event *const events[], uint32_t n);
void redis_batch_write(const struct redis_batch *b, int64_t max_len, struct buf *text);

/* The next reply to it. */
void redis_batch_take(struct redis_batch *b, const redisReply *reply);
/* All replies are there. */
bool redis_batch_is_answered(const struct redis_batch *b);
/* Did the server store any of it? */
bool redis_batch_is_stored(const struct redis_batch *b);
/* It is over without its answer, or the answer counts for nothing. */
void redis_batch_void(struct redis_batch *b, const struct error *why);
/* Is it the server, not a row, that something is wrong with? Then *ret says what. */
bool redis_batch_has_trouble(const struct redis_batch *b, struct error *ret);
/* Gives all events back, and ends the batch. */
void redis_batch_conclude(struct redis_batch *b, struct outcomes *outcomes);

#endif
