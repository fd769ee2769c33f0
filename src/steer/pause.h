/* Pausing an outbox on all nodes: a row in postrider.pause, which survives restarts. Nodes claim nothing more, settle what is
 * on its way, and say in postrider.node that they know (keep/steering.h). */
#ifndef POSTRIDER_STEER_PAUSE_H
#define POSTRIDER_STEER_PAUSE_H

#include "steer/target.h"

/* Pauses or resumes. *ret_changed: it was not so before. Nodes are told. */
bool pause_set(PGconn *conn, const struct target *t, bool paused, const char *by, bool *ret_changed, struct error *err);

enum { PAUSE_NODE_NUMBER, PAUSE_NODE_NAME };
/* Waits until all living nodes that read it have said that they know, or the time is over. The result has those that have
 * not; the caller clears it. */
bool pause_await(PGconn *conn, const struct target *t, bool paused, int64_t timeout_ms, PGresult **ret, struct error *err);

/* Rows that workers had in flight at their nodes' last beat. */
bool pause_in_flight(PGconn *conn, const struct target *t, int64_t *ret, struct error *err);

#endif
