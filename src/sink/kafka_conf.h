/* From the settings of a Kafka sink to librdkafka's configuration: what must be so for our guarantees, what is a better
 * default, TLS and SASL, and the user's properties on top. */
#ifndef POSTRIDER_SINK_KAFKA_CONF_H
#define POSTRIDER_SINK_KAFKA_CONF_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"

/* `one_by_one`: each message is a batch of its own, so that a refusal names its message. The caller frees *ret, or gives
 * it to rd_kafka_new. */
bool kafka_conf_build(const struct sink_config *sink, bool one_by_one, rd_kafka_conf_t **ret, struct error *err);

bool kafka_conf_compresses(const rd_kafka_conf_t *conf);

/* How messages find their partition: by librdkafka's function of that name. */
struct kafka_partitioner {
	const char *name;
	int32_t (*choose)(const rd_kafka_topic_t *topic, const void *key, size_t key_len, int32_t count, void *topic_opaque,
			  void *message_opaque);
	bool places_keyless;                    /* also messages without a key, all of them in one partition */
};

const struct kafka_partitioner *kafka_conf_partitioner(const rd_kafka_conf_t *conf);

#endif
