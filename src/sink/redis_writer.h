/* Batches to Redis over a connection of our own, inside the worker's loop.
 *
 * It connects when there is something to send, and after a failure pauses longer each time. One batch is unanswered at a
 * time: redis_batch.h says why. With `wait_replicas` a WAIT follows each batch. When too few replicas have it, WAIT is asked
 * again and again, and the batch stays where it is: to send it once more would store it twice. */
#ifndef POSTRIDER_SINK_REDIS_WRITER_H
#define POSTRIDER_SINK_REDIS_WRITER_H

#include "base/backoff.h"
#include "sink/breaker.h"
#include "sink/outcome.h"
#include "sink/redis_batch.h"
#include "sink/redis_dial.h"

struct redis_writer {
	const struct redis_server *server;
	struct outcomes *outcomes;
	struct breaker *breaker;

	struct redis_dial *dial;        /* NULL: nobody is connecting */
	struct redis_link *link;        /* NULL: no connection */
	bool wanted;                    /* connect as soon as the pause is over */
	struct backoff backoff;
	int64_t retry_at_ms;
	bool away;                      /* `why_away` has not been reported */
	struct error why_away;

	struct redis_batch batch;
	bool waits;                     /* a WAIT is unanswered */
	int64_t answer_by_ms;
	struct buf text;
};

/* The arguments must outlive it. */
void redis_writer_init(struct redis_writer *w, const struct redis_server *server, struct outcomes *outcomes,
		       struct breaker *breaker);
/* Events that are under way come back as ERROR_LOST. */
void redis_writer_release(struct redis_writer *w);

/* As the functions of a sink. While the server is away, each failed attempt is reported by failing one event with its
 * reason. */
uint32_t redis_writer_submit(struct redis_writer *w, struct event *const events[], uint32_t n, int64_t now_ms);
int redis_writer_pollfd(const struct redis_writer *w, short *ret_events, int64_t *ret_deadline_ms);
void redis_writer_pump(struct redis_writer *w, int64_t now_ms);
/* A batch that was sent is answered. One that was not sent as a whole has no EXEC yet, and goes with its connection. */
void redis_writer_recall(struct redis_writer *w);

#endif
