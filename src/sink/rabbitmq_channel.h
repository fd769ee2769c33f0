/* A channel with confirms on a connection that stands: publishes events, reads what the server says to them, and reports.
 *
 * An answer names its message, with two exceptions. A message that no queue takes is returned: rabbitmq_confirms.h finds it.
 * And a message that the server will not have at all (too large, no permission for its routing key) costs the channel, and
 * nobody says which one it was. Then all that are outstanding go back, the channel is opened again, and these events go
 * alone: who is alone when the channel is closed is to blame. A row that was refused before goes alone from the start, so
 * that it costs nobody else anything again.
 *
 * Belongs to one thread, that of its link; it may wait there, as the library does when a socket is full. */
#ifndef POSTRIDER_SINK_RABBITMQ_CHANNEL_H
#define POSTRIDER_SINK_RABBITMQ_CHANNEL_H

#include <amqp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"
#include "config/config.h"
#include "sink/breaker.h"
#include "sink/outcome.h"
#include "sink/rabbitmq_confirms.h"
#include "sink/rabbitmq_message.h"

enum { RABBITMQ_POST_MAX = 256 };

struct rabbitmq_channel {
	const struct rabbitmq_config *config;
	struct outcomes outcomes;       /* to the worker, from this thread */
	struct breaker *breaker;
	struct backoff backoff;         /* reset by a confirm */

	amqp_connection_state_t conn;   /* NULL: none */
	bool blocked;                   /* the server has asked us to publish nothing */
	int64_t pause_until_ms;         /* the server could not take something: not at once again */
	bool alone;                     /* what was published last wants nothing beside it */
	struct confirms confirms;
	struct rabbitmq_message message;
	bool returning;                 /* the header of a returned message is due */
	struct event *delivered[RABBITMQ_POST_MAX];     /* confirmed, and not posted yet */
	uint32_t n_delivered;
};

/* The arguments must outlive it. */
void rabbitmq_channel_init(struct rabbitmq_channel *ch, const struct rabbitmq_config *config, struct mailbox *box,
			   struct breaker *breaker);
void rabbitmq_channel_release(struct rabbitmq_channel *ch);

/* Takes over the connection, on success or not: then it is closed. */
bool rabbitmq_channel_open(struct rabbitmq_channel *ch, amqp_connection_state_t conn, struct error *err);
/* Closes the connection. What is outstanding comes back as failed for this reason. */
void rabbitmq_channel_close(struct rabbitmq_channel *ch, const struct error *why, bool polite);

bool rabbitmq_channel_has_room(const struct rabbitmq_channel *ch, const struct event *ev, int64_t now_ms);
/* False when the connection is lost: the channel is to be closed. Before that the event counts as outstanding. */
bool rabbitmq_channel_publish(struct rabbitmq_channel *ch, struct event *ev, struct error *err);
/* Reads what is there, posts outcomes, answers and sends heartbeats. False as above. */
bool rabbitmq_channel_read(struct rabbitmq_channel *ch, int64_t now_ms, struct error *err);

#endif
