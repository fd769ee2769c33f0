/* A producer for Kafka: one librdkafka client (kafka_handle.h), and another in its place when it has failed for good or
 * was recalled.
 *
 * Any thread may produce. An idempotent client that met an error it cannot repair in order ("fatal") stops. What it had
 * outstanding comes back; only then is it replaced, and a worker may submit to the new one only when it has read what the
 * old one gave back: otherwise a row would overtake an earlier one of its entity whose failure lies in the mailbox.
 *
 * A row that may not go yet, because another one is the first of their partition (kafka_gate.h), is taken and waits here,
 * so that rows behind it can go elsewhere. */
#ifndef POSTRIDER_SINK_KAFKA_PRODUCER_H
#define POSTRIDER_SINK_KAFKA_PRODUCER_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"
#include "relay/event.h"
#include "sink/breaker.h"
#include "sink/kafka_gate.h"
#include "sink/kafka_limits.h"
#include "sink/outcome.h"

struct producer;

/* One worker at a producer; belongs to the worker's thread. */
struct producer_user {
	struct outcomes *outcomes;
	uint32_t failures;              /* of the producer, as far as the worker was told to read its mailbox */

	struct event *first, *last;     /* rows that wait, in order; linked by `next` */
	uint32_t failures_seen;         /* of the producer, when the first of them came */
	bool asking;                    /* the next row waits for what its topic takes at most */
	struct gate_waiter waiter;
};

/* Before and after all else. What waits comes back as lost. */
void producer_user_open(struct producer_user *user, struct producer *p, struct outcomes *outcomes);
void producer_user_close(struct producer_user *user, struct producer *p);
/* What waits comes back as lost, because of this. */
void producer_user_drop(struct producer_user *user, const char *why);

/* Neither connects nor waits. `one_by_one`: see kafka_conf.h; refusals are then final, otherwise the event is marked to
 * travel alone and comes back as lost. Such a producer costs nothing until it is given an event. */
bool producer_open(const struct sink_config *sink, struct topic_limits *limits, struct breaker *breaker, bool one_by_one,
		   struct producer **ret, struct error *err);
/* Purges what is outstanding; its events come back before this returns. */
void producer_close(struct producer *p);

/* Takes the first 0 to n events, after those that wait; their payload is borrowed until the outcome. It stops at one that it
 * refuses for good: then err->kind says so, otherwise that is ERROR_NONE. With n = 0 it just serves those that wait: to be
 * called when the worker was woken. */
uint32_t producer_submit(struct producer *p, struct producer_user *user, struct event *const events[], uint32_t n,
			 struct error *err);
/* Drops what has not left, whoever submitted it: it comes back as lost. What is on the wire is awaited. Returns at once,
 * and takes nothing until all outcomes are in. */
void producer_recall(struct producer *p);
/* Ends a client that has stopped and is drained; the next submit makes another. Never waits, so it is to be called often:
 * when producer_mends, every few milliseconds. Costs nothing when all is well. */
void producer_mend(struct producer *p, int64_t now_ms);
bool producer_mends(struct producer *p);

/* While the breaker is open: finds out whether brokers are back, also when there is nothing to deliver. To be called as often
 * as PRODUCER_ASKS_EVERY_MS; more often does no more. */
enum { PRODUCER_ASKS_EVERY_MS = 500 };
void producer_ask(struct producer *p);

/* For `check`: asks the brokers for `topic`, or just for themselves when it is NULL. */
bool producer_probe(struct producer *p, const char *topic, int timeout_ms, int *ret_partitions, struct error *err);

#endif
