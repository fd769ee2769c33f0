/* The metrics of the group NODE: what this process knows of itself, without asking anybody. */
#ifndef POSTRIDER_OBSERVE_NODE_METRICS_H
#define POSTRIDER_OBSERVE_NODE_METRICS_H

#include "observe/metrics.h"
#include "observe/observed.h"

void node_metrics_write(const struct observed *seen, struct metrics_writer *w);

#endif
