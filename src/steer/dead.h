/* Dead letters: rows that were given up, and how they are put back or dropped.
 *
 * A row of a table goes back into it with its old id and so to its old place, in one transaction with the end of its letter.
 * An event of the log goes to the front of its entity in postrider.parked. Either way an entry in postrider.retry makes
 * readers begin anew with the entity's first row, so that order holds among what is there; what has gone out since the row
 * died has gone. */
#ifndef POSTRIDER_STEER_DEAD_H
#define POSTRIDER_STEER_DEAD_H

#include "steer/target.h"

/* Which letters are meant. NULL: whatever. */
struct dead_filter {
	const struct target *targets;   /* of these outboxes */
	size_t n_targets;
	const char *ids;                /* of letters: "{17,18}" */
	const char *entity;
	const char *type;               /* of the event */
	const char *error;              /* a part of it, large and small letters alike */
	const char *kind;
	const char *since, *until;      /* died then: a time that PostgreSQL reads */
};

struct dead_count {
	int64_t letters;
	int64_t passed;                 /* of these: later rows of their entities have gone out */
	int64_t last;                   /* the highest id: what dies later is not meant */
};

/* Columns of a page, all as text. */
enum {
	DEAD_ID,
	DEAD_OUTBOX,            /* the name in the settings … */
	DEAD_OUTBOX_NUMBER,     /* … and the number in postrider.outbox */
	DEAD_ENTITY,            /* "": it had none */
	DEAD_ROW,
	DEAD_TYPE,
	DEAD_TOPIC,
	DEAD_ATTEMPTS,
	DEAD_KIND,
	DEAD_ERROR,
	DEAD_DIED_AT,           /* RFC 3339 */
	DEAD_AGE_MS,
	DEAD_PASSED_AT,         /* RFC 3339; NULL: no later row has gone out, as far as we know */
	DEAD_JSON,              /* everything of the above and more, without the row, as an object */
	DEAD_CONTENT,           /* the row of the table as JSON; NULL: see dead_fields */
};

/* All of these wait for the database. Results are the caller's. */
bool dead_count(PGconn *conn, const struct dead_filter *f, struct dead_count *ret, struct error *err);
/* Letters behind one, up to another, the oldest first. */
bool dead_page(PGconn *conn, const struct dead_filter *f, int64_t after, int64_t up_to, int limit, PGresult **ret,
	       struct error *err);
/* Of a letter that came from the log: rows of a name and a value, which is NULL or bytea as text. */
bool dead_fields(PGconn *conn, int64_t id, PGresult **ret, struct error *err);

struct dead_return {
	bool gone;                      /* somebody else has put it back or dropped it */
	bool passed;                    /* later rows of its entity have gone out before it */
	bool waits;                     /* its entity is held back by a row before it, or by a person */
};

/* Puts one back. False: it is still a dead letter, and the error says why. Nodes are to be told: target_notify. */
bool dead_retry(PGconn *conn, const struct target *t, int64_t id, struct dead_return *ret, struct error *err);
/* Drops letters behind one, up to another; *ret_last is the last that it looked at. */
bool dead_drop(PGconn *conn, const struct dead_filter *f, int64_t after, int64_t up_to, int limit, int64_t *ret_dropped,
	       int64_t *ret_last, struct error *err);

#endif
