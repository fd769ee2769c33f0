/* What a topic of Kafka may be called. */
#ifndef POSTRIDER_SINK_KAFKA_TOPIC_H
#define POSTRIDER_SINK_KAFKA_TOPIC_H

#include "relay/route.h"

/* A name that brokers would refuse: asking them takes seconds, and they answer as if it were a topic that may still come. */
topic_fault kafka_topic_fault;

#endif
