#include "relay/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"

/* Templates are of text, and these may be anything. */
static bool is_usable(enum field field)
{
	return field != FIELD_PAYLOAD && field != FIELD_HEADERS;
}

#define NO_PART ARRAY_SIZE(table_mappings)

void names_init(struct names *n, const struct outbox_config *outbox)
{
	*n = (struct names){ .outbox = outbox };
}

void names_release(struct names *n)
{
	for (size_t i = 0; i < n->n_extra; i++)
		free(n->extra[i]);
	for (size_t i = 0; i < ARRAY_SIZE(n->needed_by); i++)
		free(n->needed_by[i]);
	*n = (struct names){ 0 };
}

void names_need(struct names *n, enum field field)
{
	if (field != FIELD_MESSAGE_ID && !n->needed_by[field])
		n->needed_by[field] = mem_strdup(n->setting);
}

/* "" where the settings say that the table has none. */
static const char *column_of(const struct names *n, size_t part)
{
	const struct column_config *c = table_mapped_column(&table_mappings[part], &n->outbox->columns);

	return c->name ? c->name : "";
}

static bool resolve_part(struct names *n, size_t part, const char *name, uint32_t *ret, struct error *err)
{
	enum field field = table_mappings[part].field;

	if (!is_usable(field))
		return error_set(err, ERROR_CONFIG, "{%s} is the %s column, which templates cannot use", name,
				 table_mappings[part].key);
	/* Every row has a message id: its id, where the table has no such column. */
	if (field != FIELD_MESSAGE_ID && !*column_of(n, part)) {
		error_set(err, ERROR_CONFIG, "{%s} has no column", name);
		return error_hint(err, "set outboxes.%s.columns.%s to the column that holds it", outbox_path(n->outbox),
				  table_mappings[part].key);
	}
	names_need(n, field);
	*ret = field;
	return true;
}

static bool resolve_extra(struct names *n, const char *name, uint32_t *ret, struct error *err)
{
	size_t i = 0;

	while (i < n->n_extra && strcmp(n->extra[i], name) != 0)
		i++;
	if (i == NAMES_EXTRA_MAX)
		return error_set(err, ERROR_CONFIG,
				 "{%s} is one column too many: templates can name %d besides the mapped ones",
				 name, NAMES_EXTRA_MAX);
	if (i == n->n_extra)
		n->extra[n->n_extra++] = mem_strdup(name);
	*ret = (uint32_t)(FIELD_EXTRA + i);
	return true;
}

static size_t part_named(const char *name)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(table_mappings) && strcmp(table_mappings[i].key, name) != 0)
		i++;
	return i;
}

static size_t part_played_by(const struct names *n, const char *column)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(table_mappings) && strcmp(column_of(n, i), column) != 0)
		i++;
	return i;
}

/* Where a name would be one part's and another part's column, guessing would be wrong half the time. */
bool names_resolve(void *context, const char *name, uint32_t *ret, struct error *err)
{
	struct names *n = context;
	size_t part = part_named(name), player = part_played_by(n, name);

	if (strcmp(name, NAMES_RELAY) == 0) {
		n->wants_relay = true;
		*ret = NAMES_RELAY_VALUE;
		return true;
	}
	if (part == NO_PART && player == NO_PART)
		return resolve_extra(n, name, ret, err);
	if (player == NO_PART || (part != NO_PART && strcmp(column_of(n, part), name) == 0))
		return resolve_part(n, part, name, ret, err);
	if (part == NO_PART || !*column_of(n, part))
		return resolve_part(n, player, name, ret, err);
	error_set(err, ERROR_CONFIG, "{%s} can mean two things: columns.%s is %s, columns.%s is %s", name,
		  table_mappings[part].key, column_of(n, part), table_mappings[player].key, name);
	return error_hint(err, "write {%s} or {%s}", column_of(n, part), table_mappings[player].key);
}

bool names_check_table(const struct names *n, const struct table *t, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(table_mappings); i++) {
		const char *setting = n->needed_by[table_mappings[i].field], *column = column_of(n, i);

		if (!setting || t->columns[table_mappings[i].field].name)
			continue;
		if (*column)
			error_set(err, ERROR_CONFIG, "%s needs the %s of a row, and %s has no column \"%s\"", setting,
				  table_mappings[i].key, t->name, column);
		else
			error_set(err, ERROR_CONFIG, "%s needs the %s of a row, and the settings name no column for it",
				  setting, table_mappings[i].key);
		return error_hint(err, "set outboxes.%s.columns.%s to the column that holds it, or change %s",
				  outbox_path(n->outbox), table_mappings[i].key, setting);
	}
	return true;
}
