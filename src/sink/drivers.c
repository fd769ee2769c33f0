#include "sink/sink.h"

#include <string.h>

#ifdef HAVE_KAFKA
extern const struct sink_driver sink_kafka;
#endif
#ifdef HAVE_NATS
extern const struct sink_driver sink_nats;
#endif
extern const struct sink_driver sink_postgres;
extern const struct sink_driver sink_queue;
#ifdef HAVE_RABBITMQ
extern const struct sink_driver sink_rabbitmq;
#endif
#ifdef HAVE_REDIS
extern const struct sink_driver sink_redis;
#endif
#ifdef HAVE_SQS
extern const struct sink_driver sink_sqs;
#endif
extern const struct sink_driver sink_stdout;
#ifdef HAVE_WEBHOOK
extern const struct sink_driver sink_webhook;
#endif
extern const struct sink_driver sink_branches;

const struct sink_driver *const sink_drivers[] = {
#ifdef HAVE_KAFKA
	&sink_kafka,
#endif
#ifdef HAVE_NATS
	&sink_nats,
#endif
	&sink_postgres,
	&sink_queue,
#ifdef HAVE_RABBITMQ
	&sink_rabbitmq,
#endif
#ifdef HAVE_REDIS
	&sink_redis,
#endif
#ifdef HAVE_SQS
	&sink_sqs,
#endif
	&sink_stdout,
#ifdef HAVE_WEBHOOK
	&sink_webhook,
#endif
	NULL,
};

/* Not in the list: settings do not name it, they have `branches` instead. */
const struct sink_driver *sink_driver_find(const char *name)
{
	if (strcmp(sink_branches.name, name) == 0)
		return &sink_branches;
	for (size_t i = 0; sink_drivers[i]; i++)
		if (strcmp(sink_drivers[i]->name, name) == 0)
			return sink_drivers[i];
	return NULL;
}

bool sink_check_route(const struct sink_driver *driver, struct route *route, struct error *err)
{
	return !driver->topic_fault || route_mind_topics(route, driver->topic_fault, err);
}
