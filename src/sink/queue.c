/* The sink `queue`: queues in PostgreSQL (queue_store.h), for consumers that have no broker. */
#include "sink/queue_store.h"
#include "sink/store_sink.h"

enum { NAME_BYTES = 255 };

static const char *queue_topic_fault(struct slice topic)
{
	if (topic.len == 0)
		return "is empty";
	return topic.len > NAME_BYTES ? "is longer than 255 bytes" : NULL;
}

static bool queue_target_open(const struct sink_config *config, struct sink_target **ret, struct error *err _unused_)
{
	*ret = store_target_new(&queue_store_kind, &config->queue.database, config->outbox_database, QUEUE_TABLE);
	return true;
}

extern const struct sink_driver sink_queue;
const struct sink_driver sink_queue = {
	.name = "queue",
	.summary = "queues in PostgreSQL, without a broker: receive, ack and nack are SQL functions",
	.caps = SINK_KEEPS_ORDER | SINK_ONE_STREAM | SINK_RIDES,
	.topic_fault = queue_topic_fault,
	.target_open = queue_target_open,
	STORE_SINK_FUNCTIONS,
};
