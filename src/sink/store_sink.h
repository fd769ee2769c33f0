/* What the sinks `postgres` and `queue` have in common: a store (store.h), reached in one of two ways.
 *
 * Such a sink *rides* when it is the last one and lies in the database that the reader settles in: events are acknowledged
 * at once, and their INSERT travels in the transaction that deletes them from the outbox, so each arrives exactly once.
 * Otherwise it appends over a connection of its own (append.h) and acknowledges when its commit is on disk; a repeated
 * event is recognised by its message id, so the store has it once here too.
 *
 * When a ride fails because of what a row says, it is the worker that finds the row by settling them one by one. */
#ifndef POSTRIDER_SINK_STORE_SINK_H
#define POSTRIDER_SINK_STORE_SINK_H

#include "sink/sink.h"
#include "sink/store.h"

/* `own` is the database of the settings, or has no url: then it is that of the outbox. All arguments must outlive it. */
struct sink_target *store_target_new(const struct store_kind *kind, const struct database_config *own,
				     const struct database_config *outbox, const char *table);

/* As in sink.h. */
void store_sink_target_close(struct sink_target *t);
struct breaker *store_sink_breaker(struct sink_target *t);
void store_sink_check(struct sink_target *t, const char *topic, struct finding_list *findings);
bool store_sink_open(struct sink_target *t, const struct sink_env *env, struct sink **ret, struct error *err);
void store_sink_close(struct sink *s);
uint32_t store_sink_submit(struct sink *s, struct event *const events[], uint32_t n);
int store_sink_pollfd(const struct sink *s, short *ret_events, int64_t *ret_deadline_ms);
void store_sink_pump(struct sink *s, int64_t now_ms);
void store_sink_recall(struct sink *s);
bool store_sink_rides(const struct sink *s);
bool store_sink_ride(struct sink *s, PGconn *conn, struct event *const events[], uint32_t n, bool moved,
		     uint32_t *ret_results, struct error *err);

/* For the table of a driver; what differs follows. */
#define STORE_SINK_FUNCTIONS                                                                                      \
	.target_close = store_sink_target_close, .breaker = store_sink_breaker, .check = store_sink_check,        \
	.open = store_sink_open, .close = store_sink_close, .submit = store_sink_submit,                          \
	.pollfd = store_sink_pollfd, .pump = store_sink_pump, .recall = store_sink_recall,                        \
	.rides = store_sink_rides, .ride = store_sink_ride

#endif
