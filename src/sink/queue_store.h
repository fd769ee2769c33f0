/* Queues: a table of messages, and functions by which consumers take them out (migrations/0009_queue.sql). The topic of an
 * event is its queue.
 *
 * A message id is in a queue once, and is remembered until its message is acknowledged. Those that are there are left out
 * first, so that a consumer who is just removing one in a long transaction is not waited for; a unique index guards against
 * whoever writes at the same time. */
#ifndef POSTRIDER_SINK_QUEUE_STORE_H
#define POSTRIDER_SINK_QUEUE_STORE_H

#include "sink/store.h"

#define QUEUE_TABLE "postrider.queue_message"

extern const struct store_kind queue_store_kind;

#endif
