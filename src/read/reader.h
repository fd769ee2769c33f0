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
#include "base/finding.h"
#include "config/config.h"
#include "keep/node.h"
#include "pg/table.h"
#include "read/hand.h"
#include "relay/batch.h"
#include "relay/event.h"
#include "relay/window.h"
#include "sink/sink.h"

struct bell;
struct reader;
struct pool;
struct replay;

/* What a worker gives to its reader; outlives it. */
struct reader_env {
	const struct database_config *database;
	const struct outbox_config *outbox;
	const struct table *table;
	const char *purpose;            /* of the connection, as seen in pg_stat_activity */
	int interrupt_fd;               /* readable: stop waiting for a connection */
	const struct node *node;        /* this process, as the database knows it */
	uint32_t worker;                /* number of the worker in it */
	struct bell *bell;              /* rings when there may be rows */
	struct pool *pool;              /* what workers of the outbox share, if the reader has such a thing */
	struct hand *hand;              /* shared by the workers of the outbox; see read/hand.h */
	struct replay *replay;          /* only while history is published again: read/replay.h */
};

/* A sink that writes inside the settling transaction, or a driver of NULL. */
struct rider {
	const struct sink_driver *driver;
	struct sink *sink;
};

/* A row that its sink refused, and what is to be recorded. What stands behind it has left the window, and is claimed again
 * when that is done: so nothing passes a row whose end is not certain yet. */
enum hold_kind {
	HOLD_RETRY,                     /* its entity is not claimed again before the delay is over */
	HOLD_STOP,                      /* the same; and this process ends */
	HOLD_BLOCK,                     /* nor then: the delay is longer than anybody lives */
	HOLD_BURY,                      /* it moves to postrider.dead_letter */
	HOLD_SKIP,                      /* it is dropped */
	HOLD_KIND_COUNT
};

struct hold {
	struct event *event;
	enum hold_kind kind;
	uint32_t attempts;              /* refusals, this one included if it counts */
	int64_t delay_ms;
};

/* The row is no longer in the way of its entity. */
static inline bool hold_is_end(const struct hold *h)
{
	return h->kind == HOLD_BURY || h->kind == HOLD_SKIP;
}

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
	bool letters;                   /* there are dead letters: note which of their entities this settles a later row of */
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
	struct shared_rows *shared;     /* when others have rows of the same result: then these are `picks`, a list that is
	                                 * the caller's too, and there is at least one */
	uint32_t *picks;
	uint32_t n_picks;
	const struct retry *retries;    /* of the entities among them that were held back; valid until the next exchange */
	uint32_t n_retries;
	bool exhausted;                 /* nothing else can be claimed now */
	uint64_t claim;                 /* number of the claim: another one when this worker gets an entity again that
	                                 * somebody else may have had meanwhile */
	bool again;                     /* some rows may be in the window already: those are passed over */
	uint32_t looked, lost;          /* entities, rows or shards that it tried to get, and those that others had */
	bool gained;                    /* an exchange that did not claim made rows ours that were not: claim soon */
	int64_t look_again_ms;          /* what others have may be free by then, and nobody will ring; 0: nothing to wait for */
	int64_t due_in_ms;              /* a row that is scheduled for later is due by then; 0: none is known */
};

struct reader_driver {
	const char *name;
	const char *summary;            /* one line for --version and the documentation */
	bool needs_session;             /* a server connection of its own: no pooler that shares them may be in between */
	bool takes_turns;               /* workers of a process claim one after the other under a backlog: read/hand.h */
	bool divides;                   /* each worker has rows of its own to look for: waking one is not enough */
	bool reads_ahead;               /* it may bring rows of entities that are in the window */
	bool reads_apart;               /* an entity with an entry in postrider.retry is read from its own first row, apart from
	                                 * the pages (read/pass.h): so who lets one go makes its entry due, and leaves it */
	bool settles_whole;             /* what was claimed together is settled together, because a transaction holds it */
	bool takes_nameless;            /* rows without an entity are published too, though it keeps order */
	bool rings_itself;              /* it hears of rows by itself, without NOTIFY: read/pool.h */
	bool carries_riders;            /* see `identity`: outboxes with branches can be read with it */
	bool ends_when_refused;         /* what is wrong with its objects (ERROR_CONFIG) ends the process at any time, not only at
	                                 * first: to go on later would hide that something was lost */
	uint32_t entities_max;          /* that one worker holds at a time; 0: as many as it likes */

	/* False when these settings ask for no order: then each row stands for itself. NULL: order is always kept. */
	bool (*keeps_order)(const struct outbox_config *);
	/* What `postrider init` is to run for it besides, and what `postrider check` is to look at; NULL: nothing. The SQL
	 * returns a line for each thing that it did; `table` is a literal with the table's name, `role` one with who will
	 * run the relay, or NULL. */
	char *(*install_sql)(const struct outbox_config *, const char *table, const char *role);
	/* What of that cannot be SQL: called when everything else is in place. `anew`: the user agrees to losing what nobody can
	 * give back. Calls `done` with a line for each thing that it did. NULL: nothing. */
	bool (*install)(PGconn *conn, const struct database_config *, const struct outbox_config *, bool anew,
			void (*done)(const char *line), struct error *err);
	void (*check)(PGconn *conn, const struct outbox_config *, const struct table *, struct finding_list *findings);
	/* What workers of one outbox in this process share: made before the first of them opens a reader, ended when all have
	 * closed theirs. NULL: nothing. */
	struct pool *(*share)(const struct reader_env *);
	void (*unshare)(struct pool *);
	/* Asked before each open: which other reader does the work, because this one cannot; NULL, or no function: none. */
	const struct reader_driver *(*instead)(const struct reader_env *);
	/* Connects and prepares; waits. On failure the kind says whether waiting helps. */
	bool (*open)(const struct reader_env *, struct reader **ret, struct error *err);
	/* Gives back all claims that are left, when the connection still works. */
	void (*close)(struct reader *);
	/* Which database it settles in (see pg_identity), for sinks that would ride in its settling transaction. NULL: none
	 * can. */
	const char *(*identity)(const struct reader *);
	/* The process of the server that serves its session, by which people find out whose lock on an entity it is; 0: a pooler
	 * is in between. No function: it holds none. The worker's thread calls. */
	int (*session)(const struct reader *);
	/* In what way it differs from a reader at work, for `postrider status`: "standby" while another node does the work,
	 * else NULL. No function: it never differs. The worker's thread calls. */
	const char *(*condition)(const struct reader *);

	/* Until when what is claimed is surely ours, by the monotonic clock; NULL: as long as the connection lives. A worker
	 * that finds this time past, because it was frozen, publishes nothing more of it. */
	int64_t (*holds_until)(const struct reader *);
	/* How often it wants an exchange when there is nothing to do, in order to keep what is claimed; NULL: no more often
	 * than its session needs. */
	int64_t (*beat_ms)(const struct reader_env *);

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

bool reader_keeps_order(const struct reader_driver *driver, const struct outbox_config *outbox);

/* ERROR_CONFIG when the settings ask for what the reader cannot do. Settings of other readers may stand there too: so one
 * setting is enough to change the reader. */
bool reader_check_settings(const struct reader_driver *driver, const struct outbox_config *outbox, struct error *err);

/* For readers themselves, and for `check`: pg_require_session where the driver needs one. */
bool reader_check_session(const struct reader_driver *driver, PGconn *conn, const struct database_config *database,
			  struct error *err);

#endif
