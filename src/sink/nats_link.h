/* One connection to a server of NATS, driven by one thread through libnats' interface for event loops.
 *
 * libnats then writes and reads only when told to: what it was given waits in its buffer, and a write that does not fit into
 * the socket goes on where it stopped. Answers come in a thread of libnats. */
#ifndef POSTRIDER_SINK_NATS_LINK_H
#define POSTRIDER_SINK_NATS_LINK_H

#include <nats/nats.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "sink/nats_answer.h"

struct nats_link;

/* Called by threads of libnats. */
struct nats_listener {
	/* What came for the message that was published with this number. */
	void (*answered)(void *context, uint64_t number, const struct nats_answer *answer);
	/* The server does not let us do something; the text is its own. */
	void (*denied)(void *context, const char *text);
};

/* Connects; blocks. The options stay the caller's. `listener` may be NULL for a link that only asks. */
bool nats_link_open(natsOptions *options, const struct nats_listener *listener, void *context, struct nats_link **ret,
		    struct error *err);
/* What libnats has not written yet is dropped. Returns when the listener will not be called any more. Accepts NULL. */
void nats_link_close(struct nats_link *l);

/* Where the answer to the message with this number is to go. */
void nats_link_reply(const struct nats_link *l, uint64_t number, char *ret, size_t size);
/* Into libnats' buffer. `err` says why not; then nothing of it is sent. */
bool nats_link_publish(struct nats_link *l, natsMsg *msg, struct error *err);
/* Bytes in libnats' buffer. */
size_t nats_link_buffered(const struct nats_link *l);

/* Writes what it can, waits for something to read, or for `wake_fd` (-1: none), and takes in what came. False when the
 * connection is gone. */
bool nats_link_turn(struct nats_link *l, int wake_fd, int timeout_ms);
void nats_link_why_gone(struct nats_link *l, struct error *err);
/* Ends the connection from any thread; whoever drives it finds out. */
void nats_link_interrupt(struct nats_link *l);

/* A question to JetStream; blocks. False: no answer. Otherwise *ret may still be a refusal. */
bool nats_link_ask(struct nats_link *l, const char *subject, const char *body, struct nats_answer *ret, struct error *err);
/* ERROR_CONFIG when there is no such stream. An account that may not ask gets no answer: that is not an error, because each
 * message says which stream it expects. */
bool nats_link_expect_stream(struct nats_link *l, const char *stream, struct error *err);

#endif
