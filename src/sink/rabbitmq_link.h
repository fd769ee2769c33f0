/* One worker's connection to RabbitMQ, and the thread that serves it.
 *
 * The library waits: for a socket that is full, for a login, for a name to be resolved. So all of it happens in a thread of
 * its own. The worker puts events into a queue, from where the thread publishes them; outcomes come through the mailbox.
 *
 * The thread connects when there is something to publish, and after a failure pauses longer each time. Each failed try is
 * reported with one event, which is also all that the queue takes while there is no connection. */
#ifndef POSTRIDER_SINK_RABBITMQ_LINK_H
#define POSTRIDER_SINK_RABBITMQ_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "relay/mailbox.h"
#include "sink/breaker.h"
#include "sink/rabbitmq_dial.h"

struct rabbitmq_link;

/* All functions are for the worker's thread. What the first is given must outlive the link. */
bool rabbitmq_link_open(const struct rabbitmq_place *place, struct breaker *breaker, struct mailbox *box,
			struct rabbitmq_link **ret, struct error *err);
/* What is outstanding comes back as lost. Waits for the thread: a few seconds, or as long as a
 * socket may take to open. */
void rabbitmq_link_close(struct rabbitmq_link *l);

/* As submit and recall of a sink. */
uint32_t rabbitmq_link_submit(struct rabbitmq_link *l, struct event *const events[], uint32_t n);
void rabbitmq_link_recall(struct rabbitmq_link *l);
/* Opens the breaker when the server does not take in what is being sent to it. */
void rabbitmq_link_watch(struct rabbitmq_link *l, int64_t now_ms);

#endif
