/* From a row to a message: topic, key, headers and value, by templates over columns, and the envelope around them.
 * Compiled once per outbox; immutable after that and shared by workers. */
#ifndef POSTRIDER_RELAY_ROUTE_H
#define POSTRIDER_RELAY_ROUTE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "config/config.h"
#include "relay/batch.h"

struct route;
struct table;

/* Wrong templates are ERROR_CONFIG that names the setting (with file:line:column where that is known) and the position
 * inside the template. `outbox` must outlive the route; the caller frees *ret. */
bool route_compile(const struct outbox_config *outbox, struct route **ret, struct error *err);
void route_free(struct route *r);
void route_freep(struct route **r);             /* for _cleanup_ */

/* Columns that templates name and that are none of the mapped ones: what table_open must add to the select list. */
const char *const *route_extra_columns(const struct route *r, size_t *ret_count);
/* True when a template names {postrider_relay}: then batch->relay is to be filled. */
bool route_wants_relay(const struct route *r);
/* The topic of all rows that do not name their own in the topic column; NULL when it differs by row. */
const char *route_constant_topic(const struct route *r);
/* To be called once the table is known: ERROR_CONFIG when the route needs a mapped column that the table does not have,
 * so that this shows at the start and not as one rejected row after the other. */
bool route_check_table(const struct route *r, const struct table *t, struct error *err);

/* What a sink has against a topic, whatever there may be at the other side ("is longer than 249 characters"); NULL: nothing. */
typedef const char *topic_fault(struct slice topic);
/* Rows whose topic one of the sinks could never take are rejected. ERROR_CONFIG when every row would be. Before any worker
 * has the route. */
bool route_mind_topics(struct route *r, topic_fault *fault, struct error *err);

/* From now on every message is a repetition, and says so in a header whose value is `time`. `for_all`: the route's topic
 * counts for rows, too, that name one of their own. Before any worker has the route, which `time` must outlive. */
void route_mark_replay(struct route *r, const char *time, bool for_all);

/* Fills event number `row` of the batch from its row of batch->rows (fields as in pg/table.h). What it has to
 * build goes into the batch's arena; a template that is just a column points into the result. False when this row
 * cannot be routed (headers are not a JSON object, say): ERROR_REJECTED, with id and entity filled in all the same. */
bool route_row(const struct route *r, struct batch *batch, uint32_t row, struct error *err);

/* Makes a letter of an event that is given up: addressed to the dead-letter topic, with headers that say why, and alone, so
 * that nothing of its entity follows before it is buried. Its failure becomes its reason. False: it has no such topic. */
bool route_letter(const struct route *r, struct event *ev);

#endif
