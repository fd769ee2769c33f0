/* Opening a connection to Redis while the worker goes on: in a thread of its own, which ends when there is a connection
 * that is ready for batches, or a reason why not. */
#ifndef POSTRIDER_SINK_REDIS_DIAL_H
#define POSTRIDER_SINK_REDIS_DIAL_H

#include "sink/redis_server.h"

struct redis_dial;

/* The server must outlive the dial. */
struct redis_dial *redis_dial_start(const struct redis_server *server);
/* Readable when it is over. */
int redis_dial_fd(const struct redis_dial *d);
bool redis_dial_is_over(const struct redis_dial *d);
/* Ends the dial and frees it. Waits unless it is over. */
bool redis_dial_finish(struct redis_dial *d, struct redis_link **ret, struct error *err);
/* Gives up and frees it; accepts NULL. Interrupts the attempt, and waits at most for a name to be resolved. */
void redis_dial_cancel(struct redis_dial *d);

#endif
