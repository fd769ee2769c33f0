/* Whether a target can be reached: closed, or open since when and why. The same for all sinks; `postrider status` shows it.
 *
 * It decides nothing by itself. A sink opens it when it finds that nothing can go out, and closes it when something did,
 * or could; meanwhile its submit takes rows only as far as they can wait in order, and none is blamed. One for each
 * target. Any thread may call. */
#ifndef POSTRIDER_SINK_BREAKER_H
#define POSTRIDER_SINK_BREAKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct breaker {
	_Atomic bool open;
	pthread_mutex_t lock;           /* guards what follows */
	int64_t since_ms;               /* time of day, in ms since 1970 */
	struct error why;               /* the last reason */
};

void breaker_init(struct breaker *b);
void breaker_release(struct breaker *b);

/* Both return true when that changed something, so that it can be logged once. Opening one that is open brings its reason up
 * to date. Closing one that is closed costs nothing. */
bool breaker_open(struct breaker *b, const struct error *why);
bool breaker_close(struct breaker *b);

bool breaker_is_open(const struct breaker *b);
/* False, and nothing is written, when it is closed. */
bool breaker_look(struct breaker *b, int64_t *ret_since_ms, struct error *ret_why);

#endif
