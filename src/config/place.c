#include "config/place.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/errors.h"
#include "config/value.h"

enum {
	OUTBOXES_MAX = 64,
	SINKS_MAX = 16,
	BRANCHES_MAX = 16,
};

static const char *const default_outbox = "outbox";

char *place_key_path(const struct place *p, const char *key)
{
	return mem_printf("%s%s%s", p->path, p->path[0] ? "." : "", key);
}

char *place_variable(const char *path, const char *key)
{
	char *name = mem_printf("POSTRIDER_%s%s%s", path, path[0] ? "." : "", key);

	for (char *c = name; *c; c++)
		*c = *c == '.' || *c == '-' ? '_' : (char)toupper((unsigned char)*c);
	return name;
}

static struct place *add_place(struct loader *l, enum option_scope scope, char *path, void *object)
{
	struct place *p;

	l->places = mem_resize(l->places, (l->n_places + 1) * sizeof(*l->places));
	p = &l->places[l->n_places++];
	*p = (struct place){ .scope = scope, .path = path, .object = object };
	p->origins = mem_new_array(char *, option_count);
	return p;
}

static char *node_where(const struct loader *l, const struct tree *node)
{
	if (!node)
		return l->file ? mem_strdup(l->file) : NULL;
	if (node->key)
		return tree_where(l->file, node->key_line, node->key_column);
	return tree_where(l->file, node->line, node->column);
}

/* Environment and flags may add sinks behind those of the file, one after the other, by saying their type. */
static size_t count_sinks(struct loader *l, const char *outbox_path, const struct tree *sinks)
{
	size_t n = sinks && sinks->kind == TREE_LIST ? sinks->n_children : 0;
	bool more = true;

	if (n > SINKS_MAX) {
		_cleanup_(mem_freep) char *where = node_where(l, sinks);

		config_errors_add(l->errors, CONFIG_ERROR, where, "an outbox may have %d sinks at most", SINKS_MAX);
		return SINKS_MAX;
	}
	while (more && n < SINKS_MAX) {
		_cleanup_(mem_freep) char *path = mem_printf("%s.sinks.%zu", outbox_path, n);

		more = layer_peek(l, path, NULL, "type") != NULL;
		n += more;
	}
	return n;
}

static void add_sinks(struct loader *l, struct outbox_config *outbox, const char *outbox_path, const struct tree *sinks)
{
	outbox->n_sinks = count_sinks(l, outbox_path, sinks);
	outbox->sinks = mem_new_array(struct sink_config, outbox->n_sinks);
	for (size_t i = 0; i < outbox->n_sinks; i++) {
		struct sink_config *sink = &outbox->sinks[i];
		char *path = mem_printf("%s.sinks.%zu", outbox_path, i);
		struct place *p = add_place(l, SCOPE_SINK, path, sink);

		p->outbox = outbox;
		if (sinks && sinks->kind == TREE_LIST && i < sinks->n_children) {
			p->node = sinks->children[i];
			sink->where = node_where(l, p->node);
		} else {
			sink->where = mem_strdup(path);
		}
		sink->outbox_database = &l->config->database;
		p->sink_type = layer_peek(l, path, p->node, "type");
	}
}

/* Takes `name` and `path`. */
static void add_outbox(struct loader *l, enum option_scope scope, struct outbox_config *outbox, char *name, char *path,
		       const struct tree *node)
{
	struct place *p = add_place(l, scope, path, outbox);

	outbox->name = name;
	outbox->where = node_where(l, node);
	p->outbox = outbox;
	p->node = node;
	add_sinks(l, outbox, path, tree_child(node, "sinks"));
}

/* The outboxes of the file, or the branches of one, that deserve to be looked at. */
static size_t pick(const struct tree *mapping, const struct tree **picked, size_t max)
{
	size_t n = 0;

	if (!mapping || mapping->kind != TREE_MAPPING)
		return 0;
	for (size_t i = 0; i < mapping->n_children && n < max; i++) {
		if (!tree_is_repeated(mapping, mapping->children[i]))
			picked[n++] = mapping->children[i];
	}
	return n;
}

static void complain_too_many(struct loader *l, const struct tree *mapping, size_t max, const char *whose, const char *what)
{
	_cleanup_(mem_freep) char *where = NULL;

	if (!mapping || mapping->n_children <= max)
		return;
	where = node_where(l, mapping);
	config_errors_add(l->errors, CONFIG_ERROR, where, "%s may have %zu %s at most", whose, max, what);
}

static size_t count_branches(const struct tree *outbox)
{
	const struct tree *ignored[BRANCHES_MAX];

	return pick(tree_child(outbox, "branches"), ignored, BRANCHES_MAX);
}

/* They stand right behind their outbox. */
static void add_branches(struct loader *l, struct outbox_config *outbox, const struct tree *node)
{
	const struct tree *branches = tree_child(node, "branches"), *picked[BRANCHES_MAX];

	outbox->n_branches = pick(branches, picked, BRANCHES_MAX);
	outbox->branches = outbox->n_branches > 0 ? outbox + 1 : NULL;
	for (size_t i = 0; i < outbox->n_branches; i++) {
		struct outbox_config *branch = outbox + 1 + i;

		branch->parent = outbox;
		branch->path = mem_printf("%s.branches.%s", outbox->name, picked[i]->key);
		add_outbox(l, SCOPE_BRANCH, branch, mem_printf("%s.%s", outbox->name, picked[i]->key),
			   mem_printf("outboxes.%s", branch->path), picked[i]);
	}
	complain_too_many(l, branches, BRANCHES_MAX, "an outbox", "branches");
}

void places_build(struct loader *l)
{
	const struct tree *outboxes = tree_child(l->root, "outboxes");
	const struct tree *picked[OUTBOXES_MAX] = { NULL };
	size_t n = l->root ? pick(outboxes, picked, OUTBOXES_MAX) : 1;
	struct config *c = l->config;
	struct outbox_config *next;

	add_place(l, SCOPE_PROCESS, mem_strdup(""), c)->node = l->root;
	for (size_t i = 0; i < n; i++)
		c->n_outboxes += 1 + count_branches(picked[i]);
	next = c->outboxes = mem_new_array(struct outbox_config, c->n_outboxes);
	for (size_t i = 0; i < n; i++) {
		const char *name = l->root ? picked[i]->key : default_outbox;

		add_outbox(l, SCOPE_OUTBOX, next, mem_strdup(name), mem_printf("outboxes.%s", name), picked[i]);
		add_branches(l, next, picked[i]);
		next += 1 + next->n_branches;
	}
	complain_too_many(l, outboxes, OUTBOXES_MAX, "a process", "outboxes");
}

void places_release(struct loader *l)
{
	for (size_t i = 0; i < l->n_places; i++) {
		for (size_t k = 0; k < option_count; k++)
			free(l->places[i].origins[k]);
		free(l->places[i].origins);
		free(l->places[i].path);
	}
	free(l->places);
	l->places = NULL;
	l->n_places = 0;
}

const struct place *place_of(const struct loader *l, const void *object)
{
	for (size_t i = 0; i < l->n_places; i++) {
		if (l->places[i].object == object)
			return &l->places[i];
	}
	return NULL;
}

const char *place_origin(const struct place *p, const char *key)
{
	return p->origins[option_find(p->scope, p->sink_type, key) - options];
}

static void remember(struct place *p, const struct option *o, const char *where)
{
	char **origin = &p->origins[o - options];

	free(*origin);
	*origin = mem_strdup(where);
}

static bool tell(struct loader *l, const char *where, const char *name, const struct error *err)
{
	if (name)
		config_errors_add(l->errors, CONFIG_ERROR, where, "`%s` %s", name, err->message);
	else
		config_errors_add(l->errors, CONFIG_ERROR, where, "%s", err->message);
	return false;
}

bool place_set(struct loader *l, struct place *p, const struct option *o, const char *text, const char *where,
	       const char *name)
{
	struct error err;

	remember(p, o, where); /* also of a wrong value: it is not missing as well */
	return value_set(o, p->object, text, where, &err) || tell(l, where, name, &err);
}

bool place_set_pair(struct loader *l, struct place *p, const struct option *o, const char *key, const char *text,
		    const char *where, const char *name)
{
	struct error err;

	remember(p, o, where);
	return value_set_pair(o, p->object, key, text, where, &err) || tell(l, where, name, &err);
}
