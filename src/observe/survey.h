/* What only the database knows of the outboxes: how much waits, for how long, how large tables are. A thread with a
 * connection of its own reads it now and then and keeps it as text; requests show that and never ask the database.
 *
 * Of all nodes one does it for a table: among those that serve metrics and have the table, and are alive, the one with the
 * lowest number in postrider.node; they say so in their state there ("surveys"). The others show no such figure, so that
 * sums and maxima over nodes are right. When that node dies the next one goes on after three missed heartbeats; when one
 * comes back two may show the same figure for one interval.
 *
 * What cannot be read is not shown: no figure is better than an old one. */
#ifndef POSTRIDER_OBSERVE_SURVEY_H
#define POSTRIDER_OBSERVE_SURVEY_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "config/config.h"
#include "keep/node.h"
#include "relay/worker.h"

struct survey;

/* Starts the thread. All must outlive it; `outboxes` are as many as the settings have, with their tables. */
struct survey *survey_start(const struct config *config, const struct node *node, const struct outbox *outboxes);
/* A statement under way is given up. Accepts NULL. */
void survey_stop(struct survey *s);

/* For requests, from any thread. NULL: nothing is known. */
void survey_write(struct survey *s, struct buf *out);   /* the metrics of the group TABLES */
uint64_t survey_failures(struct survey *s);
/* Age of the oldest pending row; -1: not known here, or none is pending. */
int64_t survey_oldest_ms(struct survey *s, size_t outbox);

#endif
