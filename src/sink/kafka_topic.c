#include "sink/kafka_topic.h"

#include <string.h>

enum { NAME_MAX_LEN = 249 };

const char *kafka_topic_fault(struct slice topic)
{
	if (topic.len > NAME_MAX_LEN)
		return "is longer than 249 characters, which Kafka does not allow";
	if (slice_is(topic, ".") || slice_is(topic, ".."))
		return "is not a name that Kafka allows";
	for (size_t i = 0; i < topic.len; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", topic.ptr[i]) || !topic.ptr[i])
			return "has other characters than letters, digits, '.', '_' and '-', and Kafka allows no others";
	return NULL;
}
