/* Between a worker and its courier: what the worker hands in, what is on its way, and what became of it.
 *
 * Everything is guarded by one lock, which nobody holds for long. Outcomes go to the worker's mailbox from whatever thread
 * learns of them. */
#ifndef POSTRIDER_SINK_NATS_DESK_H
#define POSTRIDER_SINK_NATS_DESK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/backoff.h"
#include "relay/mailbox.h"
#include "sink/breaker.h"
#include "sink/nats_answer.h"
#include "sink/nats_flight.h"

struct desk {
	struct breaker *breaker;
	struct mailbox *outcomes;
	int64_t ack_timeout_ms;

	pthread_mutex_t lock;           /* guards what follows */
	struct flight flight;
	bool open;                      /* there is a connection */
	bool recalled;                  /* what was sent and has not left is not to leave */
	bool untold;                    /* `why_away` has not been reported */
	struct error why_away;
	struct backoff slow;
	int64_t pause_until_ms;
	int64_t answered_ms;            /* when the server last said anything */
};

void desk_init(struct desk *d, int64_t ack_timeout_ms, struct breaker *breaker, struct mailbox *outcomes);
void desk_release(struct desk *d);

/* The worker's side. Submit takes nothing while it is closed, but each time that this had a new reason, it fails one event with
 * it. True when the courier has to be woken. */
bool desk_submit(struct desk *d, struct event *const events[], uint32_t n, int64_t now_ms, uint32_t *ret_taken);
int64_t desk_deadline(struct desk *d, int64_t now_ms);
void desk_recall(struct desk *d);
/* True when answers are so late that the courier, who should have seen to it, must be stuck. */
bool desk_is_stuck(struct desk *d, int64_t now_ms);

/* The courier's side. */
void desk_open(struct desk *d);
/* No event is sent from now on. */
void desk_close(struct desk *d);
void desk_say_away(struct desk *d, const struct error *why);
/* Everything comes back. */
void desk_return_all(struct desk *d, const struct error *why);
/* The next event is passed to `pack`, under the lock, with its number; if that says no, the event fails and the next one
 * follows. False when there is none. */
typedef bool desk_packer(void *context, const struct event *ev, uint64_t number, struct error *err);
bool desk_send(struct desk *d, desk_packer *pack, void *context, uint64_t *ret_number);
void desk_fail(struct desk *d, uint64_t number, const struct error *why);
bool desk_is_idle(struct desk *d);
bool desk_take_recall(struct desk *d);
/* True, and why, when nothing is answered any more: the connection leads nowhere. Gives back what alone was not answered. */
bool desk_is_silent(struct desk *d, int64_t now_ms, struct error *why);

/* What the server says. Called by any thread. */
void desk_answer(struct desk *d, uint64_t number, const struct nats_answer *answer);
/* `text` is the server's: Permissions Violation for Publish to "x". */
void desk_deny(struct desk *d, const char *text);

#endif
