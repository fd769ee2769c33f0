/* One librdkafka client that produces. Delivery reports come on its background thread and go straight to the mailbox of
 * the event they are about.
 *
 * It ends in two steps, and neither waits. When it has failed for good, or is told to, it *stops*: it takes nothing and
 * sends nothing any more, and what was queued comes back as lost. What is on the wire is awaited for a while and then
 * counts as lost too. When nothing is outstanding it is *drained* and can be freed.
 *
 * Functions may be called from any thread, under the owner's lock as said. */
#ifndef POSTRIDER_SINK_KAFKA_HANDLE_H
#define POSTRIDER_SINK_KAFKA_HANDLE_H

#include <librdkafka/rdkafka.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"
#include "config/config.h"
#include "relay/event.h"
#include "sink/kafka_gate.h"
#include "sink/kafka_health.h"
#include "sink/kafka_limits.h"

/* What all handles of a producer have in common; outlives them. */
struct handle_env {
	const struct sink_config *sink;
	struct topic_limits *limits;
	bool one_by_one;                        /* see kafka_producer.h */
	struct kafka_health health;
	struct gate_keeper keeper;
	/* Counts reports with failures. It is raised after they were posted, so whoever sees the new count and then an
	 * empty mailbox has taken the failures that were meant for it. */
	_Atomic uint32_t failures;
	_Atomic uint32_t handles;               /* how many there were */
};

struct handle;

/* Neither connects nor waits. */
bool handle_open(struct handle_env *env, struct handle **ret, struct error *err);
/* Purges what is outstanding and waits for its outcomes; then ends librdkafka's threads, which may take a moment. */
void handle_free(struct handle *h);
rd_kafka_t *handle_client(const struct handle *h);
uint32_t handle_number(const struct handle *h);

/* Alone: the owner's lock is write-held. */
bool handle_knows_topic(const struct handle *h, struct slice name);
void handle_add_topic(struct handle *h, struct slice name);

/* Shared from here on: read-held is enough. */

enum handle_answer {
	HANDLE_TOOK,                            /* librdkafka has the event */
	HANDLE_HOLDS_BACK,                      /* one row of its partition is on its way alone: wait, others may go */
	HANDLE_IS_ASKING,                       /* what its topic takes at most: wait, nobody may go before it */
	HANDLE_NOT_NOW,                         /* nothing can go */
	HANDLE_REFUSED,                         /* for good: `err` */
};

enum handle_answer handle_take(struct handle *h, struct gate_pass *pass, struct event *ev, struct error *err);

/* Asks the brokers whether they are there, unless that is under way. An answer closes the breaker. */
void handle_ask(struct handle *h);

uint32_t handle_outstanding(const struct handle *h);
/* Returns at once. False: it had stopped before. */
bool handle_stop(struct handle *h);
bool handle_is_stopped(const struct handle *h);
/* Of one that has stopped: did it fail, and why? Otherwise it was told to. */
bool handle_has_failed(const struct handle *h, char *ret_reason, size_t size);
/* To be called again and again once it has stopped. True when nothing is outstanding. */
bool handle_drain(struct handle *h, int64_t now_ms);

#endif
