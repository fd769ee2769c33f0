/* Reads topics from a beginning to the end that they have now. In no consumer group: nothing is committed, and the user
 * needs only Read and Describe on the topics. Brokers, TLS, SASL and properties are those of the sink. One thread. */
#ifndef POSTRIDER_SINK_KAFKA_READ_H
#define POSTRIDER_SINK_KAFKA_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"
#include "config/config.h"

struct kafka_reader;

struct kafka_record {
	uint32_t topic;                 /* its number, in the order in which topics were added */
	int32_t partition;
	int64_t offset;
	struct slice header;            /* of the name that was asked for, the last one of several; NULL: none */
};

/* What there is of a topic. */
struct kafka_extent {
	int32_t partitions;
	int64_t missing;                /* offsets before the first that is left, of all partitions */
	int64_t length;                 /* offsets from where reading begins to the end */
};

typedef void kafka_record_fn(void *context, const struct kafka_record *record);

/* `sink` outlives the reader. */
bool kafka_reader_open(const struct sink_config *sink, struct kafka_reader **ret, struct error *err);
void kafka_reader_free(struct kafka_reader *r);
void kafka_reader_freep(struct kafka_reader **r);       /* for _cleanup_ */

/* Notes where each partition ends now. `since_ms`: begin with the first record of that time; -1: with the first of all.
 * Waits for the brokers. ERROR_CONFIG when there is no such topic: it has its number all the same, and no records. */
bool kafka_reader_add(struct kafka_reader *r, const char *topic, int64_t since_ms, struct kafka_extent *ret,
		      struct error *err);

/* Each partition's records come in order. Gives up when the brokers send nothing for a while. Once. */
bool kafka_reader_run(struct kafka_reader *r, const char *header, kafka_record_fn *take, void *context,
		      struct error *err);

#endif
