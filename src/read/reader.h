/* Where events come from, and what "settled" means there. A reader is a table of functions; read/README.md says what
 * each one guarantees and costs.
 *
 * A reader and its connection belong to one worker. It works in exchanges: one round trip that settles what was
 * delivered, gives back what is no longer needed and claims what comes next. At most one exchange is under way. */
#ifndef POSTRIDER_READ_READER_H
#define POSTRIDER_READ_READER_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "pg/table.h"
#include "read/hand.h"
#include "relay/batch.h"
#include "relay/event.h"
#include "relay/window.h"
#include "sink/sink.h"

struct reader;

/* What a worker gives to its reader; outlives it. */
struct reader_env {
	const struct database_config *database;
	const struct outbox_config *outbox;
	const struct table *table;
	const char *purpose;            /* of the connection, as seen in pg_stat_activity */
	int interrupt_fd;               /* readable: stop waiting for a connection */
	struct hand *hand;              /* shared by the workers of the outbox; see read/hand.h */
};

/* A sink that writes inside the settling transaction, or a driver of NULL. */
struct rider {
	const struct sink_driver *driver;
	struct sink *sink;
};

/* A row that its sink refused: its entity is not claimed again before the delay is over. */
struct hold {
	struct event *event;
	uint32_t attempts;
	int64_t delay_ms;
};

/* An entity that was held back and may be tried again, and which row it was held for. */
struct retry {
	struct slice entity;
	struct slice row_id;
	uint32_t attempts;
};

struct exchange {
	struct event *const *done;      /* delivered rows, to be settled */
	uint32_t n_done;
	const struct hold *holds;
	uint32_t n_holds;
	struct rider rider;
	const struct window *window;    /* what this worker holds already and must not claim again */
	uint32_t want_rows;             /* 0: claim nothing */
	bool has_hand;                  /* the worker has taken the hand; the reader passes it on when its walk is over */
	size_t want_bytes;              /* at least one row is claimed, however large */
};

struct answer {
	bool settled;                   /* done and holds are recorded; otherwise the rows are still ours and are to be
	                                 * settled again: when the trouble in settle_error may be over, or at once when its
	                                 * kind is ERROR_NONE */
	struct error settle_error;
	PGresult *rows;                 /* claimed, in order per entity, fields as in pg/table.h; what follows is the
	                                 * reader's own, the last of it the row's address. The caller's */
	const struct retry *retries;    /* of the entities among them that were held back; valid until the next exchange */
	uint32_t n_retries;
	bool exhausted;                 /* nothing else can be claimed now */
};

struct reader_driver {
	const char *name;
	const char *summary;            /* one line for --version and the documentation */
	bool needs_session;             /* a server connection of its own: no pooler that shares them may be in between */
	uint32_t entities_max;          /* that one worker holds at a time; 0: as many as it likes */

	/* Connects and prepares; waits. On failure the kind says whether waiting helps. */
	bool (*open)(const struct reader_env *, struct reader **ret, struct error *err);
	/* Gives back all claims that are left, when the connection still works. */
	void (*close)(struct reader *);
	/* Which database it settles in: see pg_identity. */
	const char *(*identity)(const struct reader *);

	/* Sends one exchange; does not wait. False: the connection is gone, and everything claimed with it. */
	bool (*begin)(struct reader *, const struct exchange *, struct error *err);
	int (*pollfd)(const struct reader *, short *ret_events);
	/* Takes in what has arrived. *ret_complete: the answer to the exchange is whole and *ret filled; its result belongs
	 * to the caller. Also to be called when the descriptor is readable between exchanges: that notices the loss of the
	 * connection at once. False: the connection is gone, and everything claimed with it. */
	bool (*receive)(struct reader *, bool *ret_complete, struct answer *ret, struct error *err);
};

extern const struct reader_driver *const reader_drivers[]; /* NULL-ended */

const struct reader_driver *reader_driver_find(const char *name);

/* For readers themselves, and for `check`: pg_require_session where the driver needs one. */
bool reader_check_session(const struct reader_driver *driver, PGconn *conn, const struct database_config *database,
			  struct error *err);

#endif
