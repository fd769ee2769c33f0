/* Where events go. A sink is a table of functions; sink/README.md says how to add one.
 *
 * Two objects: a *target* is what the process has once per configured sink (Kafka's producer), opened by the supervisor
 * and shared by workers, so its functions are thread-safe; a *sink* is one worker's access to it and belongs to that
 * worker's thread. Sinks that share nothing have a trivial target.
 *
 * The contract: every event that submit takes comes back exactly once through the mailbox, with `failure` NULL when the
 * other side has acknowledged it, and set otherwise. Nothing here sleeps. */
#ifndef POSTRIDER_SINK_SINK_H
#define POSTRIDER_SINK_SINK_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "relay/event.h"
#include "relay/mailbox.h"
#include "relay/route.h"

enum {
	SINK_KEEPS_ORDER = 1 << 0,      /* events of one topic and key, submitted back to back, arrive in that order, or not
					 * at all, */
	SINK_RIDES = 1 << 1,            /* may write inside the reader's settling transaction: see `ride` */
	SINK_ONE_STREAM = 1 << 2,       /* (of the first:) and so do events of different topics and keys */
};

struct breaker;
struct finding_list;
struct sink_target;
struct sink;

/* What a worker gives to its sinks. */
struct sink_env {
	struct mailbox *outcomes;
	const char *reader_identity;    /* which database the reader settles in; NULL when it cannot carry riders */
	bool last;                      /* no sink comes after this one */
};

struct sink_driver {
	const char *name;
	const char *summary;            /* one line for --version and the documentation */
	uint32_t caps;

	/* What can never be a topic of the other side: see route.h. NULL: anything can. */
	topic_fault *topic_fault;
	/* Reads the settings; connects lazily. A broker that is away is not an error here, a wrong setting is. */
	bool (*target_open)(const struct sink_config *, struct sink_target **ret, struct error *err);
	void (*target_close)(struct sink_target *);
	/* Whether the other side can be reached: breaker.h. It lives as long as the target. */
	struct breaker *(*breaker)(struct sink_target *);
	/* For `check`: connects now and reports what is wrong, each with the way to mend it. `topic` is a topic that
	 * every row goes to, or NULL where it differs by row. */
	void (*check)(struct sink_target *, const char *topic, struct finding_list *findings);

	/* How many rows were meant for nobody, so that they are settled though nobody has them. From any thread. NULL: a sink
	 * for which there is no such thing. */
	uint64_t (*unmatched)(const struct sink_target *);

	bool (*open)(struct sink_target *, const struct sink_env *, struct sink **ret, struct error *err);
	void (*close)(struct sink *);

	/* Takes the first 0 to n events; the rest stays with the caller, who tries again after the next outcome or
	 * pump. Taking none means "not now": the other side is away, or a queue is full. */
	uint32_t (*submit)(struct sink *, struct event *const events[], uint32_t n);
	/* Descriptor to wait on and for what, or -1; and when pump wants to run at the latest. NULL: never. */
	int (*pollfd)(const struct sink *, short *ret_events, int64_t *ret_deadline_ms);
	void (*pump)(struct sink *, int64_t now_ms);
	/* The claims under which this sink's events were submitted are gone. What has not left is dropped; its outcome
	 * (ERROR_LOST) comes through the mailbox as always. Does not wait. NULL: nothing is ever kept back. */
	void (*recall)(struct sink *);

	/* SINK_RIDES: true when this one does. Its events are acknowledged at once, and before the reader settles them
	 * it queues its writes on the reader's connection (in pipeline mode, inside the settling transaction) and says
	 * how many results will come for them. `moved`: some of the rows are no longer at their address, and others of them may
	 * be settled already; the reader goes by entity and id. */
	bool (*rides)(const struct sink *);
	bool (*ride)(struct sink *, PGconn *conn, struct event *const events[], uint32_t n, bool moved,
		     uint32_t *ret_results, struct error *err);
};

extern const struct sink_driver *const sink_drivers[]; /* NULL-ended */

const struct sink_driver *sink_driver_find(const char *name);
/* Whether rows can be routed to such a sink; from then on those that cannot are rejected. */
bool sink_check_route(const struct sink_driver *driver, struct route *route, struct error *err);

#endif
