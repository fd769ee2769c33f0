/* A replay: rows of the history of an outbox, page by page in their order, published again by one worker. Its reader is
 * no choice of the settings; `postrider replay` puts it in the place of the outbox's own. It claims nothing and settles
 * nothing: it remembers how far it has come. A row that is refused is counted, and later rows of its entity are left
 * out, because whoever follows an entity should not meet a gap without knowing. */
#ifndef POSTRIDER_READ_REPLAY_H
#define POSTRIDER_READ_REPLAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "read/history.h"
#include "read/reader.h"
#include "read/trail.h"

enum { REPLAY_REFUSED_MAX = 1000 };     /* then it is not about rows any more, and the replay ends */

struct refusal {
	char *id;
	char *entity;                   /* "": it has none */
	char *why;
};

struct replay {
	/* Set before the worker starts. */
	const struct history *history;
	int64_t rate;                   /* rows in a second; 0: as fast as it goes */
	int64_t limit;                  /* rows in all; 0: no limit */

	/* The worker's thread alone, and others when it has ended. */
	struct trail trail;
	struct refusal *refusals;
	uint32_t n_refusals, refusals_room;
	struct buf refused_lanes;       /* the literal of an array */
	struct error why_stopped;       /* written before `stopped` is set */
	bool at_end;                    /* there is nothing more to read */
	int64_t free_at_us;             /* of the rate: until when what was read has used it up */

	/* For anybody. */
	_Atomic uint64_t read, published, refused;
	_Atomic bool finished;          /* everything was read, and nothing is on its way */
	_Atomic bool stopped;           /* it cannot go on */
};

extern const struct reader_driver reader_replay;

void replay_init(struct replay *r, const struct history *history);
void replay_release(struct replay *r);

/* How many rows the rate leaves room for now, `want` at most, and otherwise in *ret_wait_ms when to ask again. */
uint32_t replay_grant(struct replay *r, uint32_t want, int64_t now_us, int64_t *ret_wait_ms);
/* So many were read. */
void replay_spend(struct replay *r, uint32_t rows);

#endif
