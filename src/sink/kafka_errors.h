/* What Kafka's error codes mean to us: one table. */
#ifndef POSTRIDER_SINK_KAFKA_ERRORS_H
#define POSTRIDER_SINK_KAFKA_ERRORS_H

#include <librdkafka/rdkafka.h>

#include "base/error.h"

enum error_kind kafka_error_kind(rd_kafka_resp_err_t code);
/* Fills in kind, message and hint. `detail` may be NULL. Always false. */
bool kafka_error_set(struct error *err, rd_kafka_resp_err_t code, const char *detail);

#endif
