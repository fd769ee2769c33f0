/* Settings from the file: walks each place's part of the tree and compares it with the option table. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/errors.h"
#include "config/place.h"

static void complain(struct loader *l, size_t line, size_t column, const char *message)
{
	_cleanup_(mem_freep) char *where = tree_where(l->file, line, column);

	config_errors_add(l->errors, CONFIG_ERROR, where, "%s", message);
}

/* `what` must be another kind of thing. */
static void complain_kind(struct loader *l, const struct tree *node, const char *what, const char *expected)
{
	_cleanup_(mem_freep) char *message = mem_printf("%s must be %s, not %s", what, expected, tree_kind_name(node));

	complain(l, node->line, node->column, message);
}

/* The parts of a place that are places themselves, and are walked as such. */
static bool is_inner_place(const struct place *p, const char *path)
{
	return (p->scope == SCOPE_PROCESS && strcmp(path, "outboxes") == 0) ||
	       (place_is_outbox(p) && strcmp(path, "sinks") == 0) ||
	       (p->scope == SCOPE_OUTBOX && strcmp(path, "branches") == 0);
}

static bool has_options_below(const struct place *p, const char *path)
{
	size_t len = strlen(path);

	for (size_t i = 0; i < option_count; i++) {
		if (option_applies(&options[i], p->scope, p->sink_type) && strncmp(options[i].key, path, len) == 0 &&
		    options[i].key[len] == '.')
			return true;
	}
	return false;
}

/* The types of sink that have this key, as in "kafka, postgres"; empty when none has. */
static void add_owners(struct buf *b, const char *key)
{
	for (size_t i = 0; i < option_count; i++) {
		const char *type = option_sink_type(options[i].scope);

		if (!type || strcmp(options[i].key, key) != 0)
			continue;
		if (b->len > 0)
			buf_add_str(b, " and ");
		buf_add_str(b, type);
	}
}

/* Keys that may stand where `prefix` ends; each is cut off at its first dot. The caller frees them one by one. */
static size_t list_keys(const struct place *p, const char *prefix, char **keys)
{
	size_t n = 0, len = strlen(prefix);

	for (size_t i = 0; i < option_count; i++) {
		const char *rest = options[i].key + len;
		size_t size;

		if (!option_applies(&options[i], p->scope, p->sink_type) || strncmp(options[i].key, prefix, len) != 0)
			continue;
		size = strcspn(rest, ".");
		if (n > 0 && strlen(keys[n - 1]) == size && strncmp(keys[n - 1], rest, size) == 0)
			continue;
		keys[n++] = mem_strndup(rest, size);
	}
	if (len == 0 && p->scope == SCOPE_PROCESS)
		keys[n++] = mem_strdup("outboxes");
	if (len == 0 && place_is_outbox(p))
		keys[n++] = mem_strdup("sinks");
	if (len == 0 && p->scope == SCOPE_OUTBOX)
		keys[n++] = mem_strdup("branches");
	return n;
}

static void complain_unknown(struct loader *l, const struct place *p, const struct tree *node, const char *prefix)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 4000 };
	_cleanup_(buf_release) struct buf owners = { .ceiling = 1000 };
	_cleanup_(mem_freep) char **keys = mem_new_array(char *, option_count + 2);
	size_t n;

	if (p->scope == SCOPE_SINK)
		add_owners(&owners, node->key);
	if (owners.len > 0) {
		buf_printf(&b, "`%s` belongs to sinks of type %s, and this one is of type %s", node->key,
			   buf_str(&owners), p->sink_type);
		complain(l, node->key_line, node->key_column, buf_str(&b));
		return;
	}
	n = list_keys(p, prefix, keys);
	buf_add_str(&b, "unknown key ");
	config_add_quoted(&b, node->key);
	layer_add_hint(&b, node->key, (const char *const *)keys, n);
	complain(l, node->key_line, node->key_column, buf_str(&b));
	for (size_t i = 0; i < n; i++)
		free(keys[i]);
}

static void set_map(struct loader *l, struct place *p, const struct option *o, const struct tree *node)
{
	_cleanup_(mem_freep) char *name = mem_printf("`%s`", o->key);

	if (node->kind == TREE_TEXT && node->null)
		return;
	if (node->kind != TREE_MAPPING) {
		_cleanup_(buf_release) struct buf b = { .ceiling = 1000 };

		option_describe(&b, o);
		complain_kind(l, node, name, buf_str(&b));
		return;
	}
	for (size_t i = 0; i < node->n_children; i++) {
		const struct tree *child = node->children[i];
		_cleanup_(mem_freep) char *where = tree_where(l->file, child->line, child->column);

		if (child->kind == TREE_TEXT) {
			place_set_pair(l, p, o, child->key, child->text, where, o->key);
		} else {
			_cleanup_(mem_freep) char *what = mem_printf("a value of %s", name);

			complain_kind(l, child, what, "text");
		}
	}
}

static void set_option(struct loader *l, struct place *p, const struct option *o, const struct tree *node)
{
	_cleanup_(mem_freep) char *where = tree_where(l->file, node->line, node->column);
	_cleanup_(mem_freep) char *name = mem_printf("`%s`", o->key);
	_cleanup_(buf_release) struct buf b = { .ceiling = 1000 };

	if (o->type == OPTION_MAP) {
		set_map(l, p, o, node);
		return;
	}
	if (node->kind == TREE_TEXT) {
		place_set(l, p, o, node->text, where, o->key);
		return;
	}
	option_describe(&b, o);
	complain_kind(l, node, name, buf_str(&b));
}

static void walk(struct loader *l, struct place *p, const struct tree *node, const char *prefix);

static void walk_section(struct loader *l, struct place *p, const struct tree *node, const char *path)
{
	_cleanup_(mem_freep) char *prefix = mem_printf("%s.", path);
	_cleanup_(mem_freep) char *name = mem_printf("`%s`", path);

	if (node->kind == TREE_MAPPING)
		walk(l, p, node, prefix);
	else if (!node->null)
		complain_kind(l, node, name, "a mapping");
}

static void walk(struct loader *l, struct place *p, const struct tree *node, const char *prefix)
{
	/* Which keys a sink of an unknown type has cannot be said; its type is told by the rules. */
	bool judge = p->scope != SCOPE_SINK || option_knows_sink(p->sink_type);

	for (size_t i = 0; i < node->n_children; i++) {
		const struct tree *child = node->children[i];
		_cleanup_(mem_freep) char *path = mem_printf("%s%s", prefix, child->key);
		const struct option *o = option_find(p->scope, p->sink_type, path);

		if (is_inner_place(p, path))
			continue;
		if (o && !strchr(child->key, '.'))
			set_option(l, p, o, child);
		else if (has_options_below(p, path) && !strchr(child->key, '.'))
			walk_section(l, p, child, path);
		else if (judge)
			complain_unknown(l, p, child, prefix);
	}
}

/* The shape around the inner places: walk sees only what is inside them. */
static void check_shape(struct loader *l, const struct place *p)
{
	const struct tree *outboxes = p->scope == SCOPE_PROCESS ? tree_child(p->node, "outboxes") : NULL;
	const struct tree *sinks = place_is_outbox(p) ? tree_child(p->node, "sinks") : NULL;
	const struct tree *branches = p->scope == SCOPE_OUTBOX ? tree_child(p->node, "branches") : NULL;

	if (outboxes && outboxes->kind != TREE_MAPPING && !outboxes->null)
		complain_kind(l, outboxes, "`outboxes`", "a mapping of names to outboxes");
	if (sinks && sinks->kind != TREE_LIST && !sinks->null)
		complain_kind(l, sinks, "`sinks`", "a list, which begins with `- type: …`");
	if (branches && branches->kind != TREE_MAPPING && !branches->null)
		complain_kind(l, branches, "`branches`", "a mapping of names to branches");
}

void layer_file(struct loader *l)
{
	static const char *const names[] = {
		[SCOPE_PROCESS] = "a settings file",
		[SCOPE_OUTBOX] = "an outbox",
		[SCOPE_BRANCH] = "a branch",
		[SCOPE_SINK] = "a sink",
	};

	for (size_t i = 0; i < l->n_places; i++) {
		struct place *p = &l->places[i];

		if (!p->node)
			continue;
		check_shape(l, p);
		if (p->node->kind == TREE_MAPPING)
			walk(l, p, p->node, "");
		else if (!p->node->null)
			complain_kind(l, p->node, names[p->scope], "a mapping");
	}
}
