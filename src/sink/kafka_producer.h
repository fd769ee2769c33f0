/* One librdkafka producer, and another in its place when it has failed for good.
 *
 * Any thread may produce. Delivery reports come on librdkafka's background thread and go straight to the mailbox of the
 * event they are about. An idempotent producer that met an error it cannot repair in order ("fatal") is purged and
 * replaced: what it had outstanding comes back as lost and is sent again, in order. */
#ifndef POSTRIDER_SINK_KAFKA_PRODUCER_H
#define POSTRIDER_SINK_KAFKA_PRODUCER_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"
#include "relay/event.h"
#include "sink/kafka_limits.h"

struct producer;

/* Neither connects nor waits. `one_by_one`: see kafka_conf.h; refusals are then final, otherwise the event is marked to
 * travel alone and comes back as lost. Such a producer costs nothing until it is given an event. */
bool producer_open(const struct sink_config *sink, struct topic_limits *limits, bool one_by_one, struct producer **ret,
		   struct error *err);
/* Purges what is outstanding; its events come back before this returns. */
void producer_close(struct producer *p);

/* Takes the first 0 to n events; their payload is borrowed until the outcome. It stops at one that it refuses for good:
 * then err->kind says so, otherwise that is ERROR_NONE. */
uint32_t producer_submit(struct producer *p, struct event *const events[], uint32_t n, struct error *err);
/* Ends a producer that failed; the next submit makes another. To be called often; costs nothing when all is well. */
void producer_mend(struct producer *p);

/* For `check`: asks the brokers for `topic`, or just for themselves when it is NULL. */
bool producer_probe(struct producer *p, const char *topic, int timeout_ms, int *ret_partitions, struct error *err);

#endif
