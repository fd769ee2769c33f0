/* Whether the process lives, and whether it can do its work: JSON with the reasons when it cannot.
 *
 *     {"reasons":[{"what":"sink","outbox":"orders","name":"kafka","reason":"…"}],"status":"failing"}
 *
 * Alive: every loop turns. A restart would mend it if not; a database or a sink that is away is no reason for one. Ready: the
 * database and the sinks can be used, and rows do not wait for longer than http.ready_max_lag. */
#ifndef POSTRIDER_OBSERVE_HEALTH_H
#define POSTRIDER_OBSERVE_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "observe/observed.h"

bool health_alive(const struct observed *seen, int64_t now_ms, struct buf *json);
bool health_ready(const struct observed *seen, int64_t now_ms, struct buf *json);

#endif
