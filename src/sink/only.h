/* Which rows a branch takes. */
#ifndef POSTRIDER_SINK_ONLY_H
#define POSTRIDER_SINK_ONLY_H

#include <stdbool.h>

#include "config/config.h"
#include "relay/event.h"

bool only_takes(const struct only_config *only, const struct event *ev);

#endif
