/* Outboxes with branches: what a branch has from its outbox, what it may not say, and what the relay runs instead. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/errors.h"
#include "config/place.h"
#include "config/value.h"

/* Of outbox and branch together: with what else stands in the names of the table and its indexes, PostgreSQL must not have to
 * cut them. */
enum { NAMES_MAX_BYTES = 32 };

#define BRANCHES_SINK "branches"

/* Settings of an outbox that its branches do not have from it. */
static const struct {
	const char *prefix;             /* of the key */
	const char *why_not;            /* they may not say it themselves either; NULL: they may */
} own[] = {
	{ "table", "`postrider init` makes the table of a branch" },
	{ "preset", "a branch has the columns of its outbox" },
	{ "columns.", "a branch has the columns of its outbox" },
	{ "order_by", "the rows of a branch have the order in which they left the outbox" },
	{ "published", NULL },
	{ "retention", NULL },
	{ "wal.slot", NULL },
	{ "wal.publication", NULL },
};

static bool is_refused(const char *key, const char **ret_why)
{
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		if (own[i].why_not && strncmp(key, own[i].prefix, strlen(own[i].prefix)) == 0) {
			*ret_why = own[i].why_not;
			return true;
		}
	}
	return false;
}

/* What may not be said is the outbox's all the same. */
static bool is_inherited(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (!own[i].why_not && strcmp(key, own[i].prefix) == 0)
			return false;
	return true;
}

static void replace(char **text, char *by)
{
	free(*text);
	*text = by;
}

/* The table is made by `init`, which gives it a column of order, and no column of schedules: rows wait in the outbox. */
static void name_table(struct outbox_config *branch)
{
	replace(&branch->table, mem_printf("postrider.\"branch_%s\"", branch->name));
	replace(&branch->order_by.name, mem_strdup(BRANCH_ORDER_COLUMN));
	replace(&branch->order_by.where, NULL);
	replace(&branch->columns.scheduled_for.name, mem_strdup(""));
	replace(&branch->columns.scheduled_for.where, NULL);
}

static void inherit(struct loader *l, struct place *p, const struct place *parent)
{
	for (size_t i = 0; i < option_count; i++) {
		const struct option *o = &options[i];
		const char *why_not;

		if (o->scope != SCOPE_OUTBOX)
			continue;
		if (p->origins[i] && is_refused(o->key, &why_not))
			config_errors_add(l->errors, CONFIG_ERROR, p->origins[i], "a branch has no `%s` of its own: %s", o->key,
					  why_not);
		if (!is_inherited(o->key) || (p->origins[i] && o->type != OPTION_MAP))
			continue;
		value_copy(o, parent->object, p->object);
		if (!p->origins[i])
			p->origins[i] = mem_strdup(parent->origins[i]);
	}
}

void branches_inherit(struct loader *l)
{
	for (size_t i = 0; i < l->n_places; i++) {
		struct place *p = &l->places[i];

		if (p->scope != SCOPE_BRANCH)
			continue;
		inherit(l, p, place_of(l, p->outbox->parent));
		name_table(p->object);
	}
}

void branch_check(struct loader *l, const struct outbox_config *o)
{
	const char *name = o->name + strlen(o->parent->name) + 1;

	if (!rules_is_name(name))
		rules_complain_name(l, o->where, "a branch", name);
	else if (strlen(o->name) - 1 > NAMES_MAX_BYTES)
		config_errors_add(l->errors, CONFIG_ERROR, o->where,
				  "the names of an outbox and of its branch may be %d characters long together, and `%s` is %zu",
				  NAMES_MAX_BYTES, o->name, strlen(o->name) - 1);
}

void branches_check(struct loader *l, const struct outbox_config *o)
{
	if (o->n_sinks > 0)
		config_errors_add(l->errors, CONFIG_ERROR, o->sinks[0].where,
				  "outbox `%s` has `sinks` and `branches`: make a branch of the sinks, or leave the branches out",
				  o->name);
}

/* What decides on branches is read from the row as it is. Nothing else is to be made of it here, and nothing refused that a
 * branch could take. */
static void simplify_route(struct outbox_config *o)
{
	const struct option *headers = option_find(SCOPE_OUTBOX, NULL, "route.headers");
	bool by_topic = false, by_header = false;

	for (size_t i = 0; i < o->n_branches; i++) {
		by_topic |= o->branches[i].only.topic[0] != '\0';
		by_header |= o->branches[i].only.headers.count > 0;
	}
	if (!by_topic)
		replace(&o->route.topic, mem_strdup(BRANCHES_SINK));
	if (!by_header) {
		value_release(headers, o);
		o->route.headers = (struct config_map){ 0 };
	}
	replace(&o->route.key, mem_strdup("{entity_id}"));
	replace(&o->failure.dead_letter_topic, mem_strdup(""));
	o->route.envelope = ENVELOPE_PLAIN;
	o->route.tombstone = false;
}

static void add_sink(struct loader *l, struct outbox_config *o)
{
	struct sink_config *sink = mem_new_array(struct sink_config, 1);

	place_set_defaults(SCOPE_SINK, sink);
	replace(&sink->type, mem_strdup(BRANCHES_SINK));
	replace(&sink->name, mem_strdup(BRANCHES_SINK));
	sink->where = mem_strdup(o->where);
	sink->outbox_database = &l->config->database;
	sink->branches.outbox = o;
	free(o->sinks);
	o->sinks = sink;
	o->n_sinks = 1;
}

void branches_expand(struct loader *l)
{
	for (size_t i = 0; i < l->config->n_outboxes; i++) {
		struct outbox_config *o = &l->config->outboxes[i];

		if (o->n_branches == 0 || o->n_sinks > 0)
			continue;
		simplify_route(o);
		add_sink(l, o);
	}
}
