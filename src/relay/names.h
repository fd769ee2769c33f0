/* What names in the templates of an outbox stand for: a part of the row, the column that plays it, or any other column.
 * Used while a route is compiled, and once more when the table is known. */
#ifndef POSTRIDER_RELAY_NAMES_H
#define POSTRIDER_RELAY_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "pg/table.h"

#define NAMES_EXTRA_MAX 64              /* other columns in the templates of one outbox */

/* {postrider_relay} is not of the row: which node and worker publishes it, and under which claim. */
#define NAMES_RELAY "postrider_relay"
#define NAMES_RELAY_VALUE (FIELD_EXTRA + NAMES_EXTRA_MAX)
#define NAMES_VALUES (NAMES_RELAY_VALUE + 1)

struct names {
	const struct outbox_config *outbox;
	const char *setting;            /* whose template is being compiled: "outboxes.orders.route.topic" */
	char *extra[NAMES_EXTRA_MAX];   /* other columns, in the order of their first use; numbered from FIELD_EXTRA */
	size_t n_extra;
	bool wants_relay;
	char *needed_by[FIELD_EXTRA];   /* the first setting that cannot do without this field; NULL: none */
};

void names_init(struct names *n, const struct outbox_config *outbox);
void names_release(struct names *n);

/* A template_resolver; the context is a struct names. */
bool names_resolve(void *context, const char *name, uint32_t *ret, struct error *err);
/* The current setting cannot do without this field. The message id is always there and never missed. */
void names_need(struct names *n, enum field field);
/* ERROR_CONFIG when the table lacks a column that is needed. */
bool names_check_table(const struct names *n, const struct table *t, struct error *err);

#endif
