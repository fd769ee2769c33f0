/* Between the leader of a pool and one worker: an exchange on its way, its answer, and a queue of rows that were read for
 * the worker and that it has not asked for yet. No thread of its own and no lock: whoever calls holds the pool's. */
#ifndef POSTRIDER_READ_CHANNEL_H
#define POSTRIDER_READ_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "read/reader.h"
#include "read/recent.h"
#include "read/settle.h"

/* Rows of one page that are one worker's. */
struct helping {
	struct shared_rows *rows;
	uint32_t *picks;
	uint32_t n_picks;
	struct retry *retries;          /* of the whole page; into `rows` */
	uint32_t n_retries;
	bool again;
	uint64_t round;                 /* that read it: rows settled and entities held back since then are to be left out */
	struct helping *next;
};

enum channel_state {
	CHANNEL_CLOSED,                 /* the worker has no reader open */
	CHANNEL_IDLE,
	CHANNEL_ASKED,                  /* an exchange waits to be sent … */
	CHANNEL_SENT,                   /* … is on its way … */
	CHANNEL_ANSWERED,               /* … is answered, or will not be: see `lost` */
};

struct channel {
	enum channel_state state;
	int fd;                         /* eventfd: readable when an answer waits */
	struct exchange exchange;       /* its lists are the worker's, and are touched only until they are sent */
	uint64_t from_round;            /* the first one whose rows are for this worker, since it opened its reader */
	uint32_t in_flight;             /* rows that the worker has or is given, without what this exchange settles */
	bool has_settle;
	struct settle settle;
	struct answer answer;
	struct retry *retries;          /* of the last answer */
	bool lost;                      /* with the leader's session: nothing that it dealt out is ours any more */
	struct recent recent;           /* what became of rows and entities since the oldest page in the queue was read */
	struct helping *first, *last;   /* queue */
	uint32_t queued;                /* rows in it */
	uint32_t n_again;               /* pages in it that may repeat rows */
};

void channel_init(struct channel *c);
void channel_release(struct channel *c);
/* The worker is gone, or all that it was given is: nothing of it is kept. */
void channel_empty(struct channel *c);

/* Makes the descriptor readable. */
void channel_wake(const struct channel *c);
void channel_enqueue(struct channel *c, struct helping *h);
/* Round number `round` settled what the exchange carried: news to what waits in the queue, which was read before. */
void channel_note_settled(struct channel *c, uint64_t round);
/* Puts the first page of the queue that still has rows for it into the answer. */
void channel_serve(struct channel *c);

#endif
