#include "relay/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"

/* The parts of a row by the names that the settings use for them, each with the column that plays it. */
static const struct {
	const char *name;
	enum field field;
	size_t column;
	bool usable;                    /* in templates */
} parts[] = {
#define PART(name, field, usable) { #name, field, offsetof(struct columns_config, name), usable }
	PART(id, FIELD_ID, true),
	PART(entity_id, FIELD_ENTITY, true),
	PART(message_id, FIELD_MESSAGE_ID, true),
	PART(entity_type, FIELD_ENTITY_TYPE, true),
	PART(event_type, FIELD_EVENT_TYPE, true),
	PART(payload, FIELD_PAYLOAD, false),
	PART(headers, FIELD_HEADERS, false),
	PART(topic, FIELD_TOPIC, true),
	PART(created_at, FIELD_CREATED_AT, true),
	PART(traceparent, FIELD_TRACEPARENT, true),
#undef PART
};

#define NO_PART ARRAY_SIZE(parts)

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
	const struct column_config *c = (const void *)((const char *)&n->outbox->columns + parts[part].column);

	return c->name ? c->name : "";
}

static bool resolve_part(struct names *n, size_t part, const char *name, uint32_t *ret, struct error *err)
{
	enum field field = parts[part].field;

	if (!parts[part].usable)
		return error_set(err, ERROR_CONFIG, "{%s} is the %s column, which templates cannot use", name,
				 parts[part].name);
	/* Every row has a message id: its id, where the table has no such column. */
	if (field != FIELD_MESSAGE_ID && !*column_of(n, part)) {
		error_set(err, ERROR_CONFIG, "{%s} has no column", name);
		return error_hint(err, "set outboxes.%s.columns.%s to the column that holds it", n->outbox->name,
				  parts[part].name);
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

	while (i < ARRAY_SIZE(parts) && strcmp(parts[i].name, name) != 0)
		i++;
	return i;
}

static size_t part_played_by(const struct names *n, const char *column)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(parts) && strcmp(column_of(n, i), column) != 0)
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
		  parts[part].name, column_of(n, part), parts[player].name, name);
	return error_hint(err, "write {%s} or {%s}", column_of(n, part), parts[player].name);
}

bool names_check_table(const struct names *n, const struct table *t, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		const char *setting = n->needed_by[parts[i].field], *column = column_of(n, i);

		if (!setting || t->columns[parts[i].field].name)
			continue;
		if (*column)
			error_set(err, ERROR_CONFIG, "%s needs the %s of a row, and %s has no column \"%s\"", setting,
				  parts[i].name, t->name, column);
		else
			error_set(err, ERROR_CONFIG, "%s needs the %s of a row, and the settings name no column for it",
				  setting, parts[i].name);
		return error_hint(err, "set outboxes.%s.columns.%s to the column that holds it, or change %s",
				  n->outbox->name, parts[i].name, setting);
	}
	return true;
}
