/* Settings from --set path=value, where the path is that of the file with dots: outboxes.orders.workers=8. */
#include <string.h>

#include "base/mem.h"
#include "config/errors.h"
#include "config/place.h"
#include "config/secret.h"

const char *layer_flag(const struct loader *l, const char *path)
{
	size_t len = strlen(path);

	for (size_t i = l->req->n_sets; i > 0; i--) {
		const char *set = l->req->sets[i - 1];

		if (strncmp(set, path, len) == 0 && set[len] == '=')
			return set + len + 1;
	}
	return NULL;
}

const char *layer_peek(const struct loader *l, const char *place_path, const struct tree *node, const char *key)
{
	_cleanup_(mem_freep) char *path = mem_printf("%s.%s", place_path, key);
	_cleanup_(mem_freep) char *variable = place_variable(place_path, key);
	const struct tree *child = tree_child(node, key);
	const char *value = layer_flag(l, path);

	if (!value)
		value = layer_variable(l, variable);
	if (!value && child && child->kind == TREE_TEXT)
		value = child->text;
	return value;
}

/* The innermost place that the path leads through; *ret_key is what is left of the path there. */
static struct place *find_place(struct loader *l, const char *path, const char **ret_key)
{
	struct place *found = &l->places[0];

	*ret_key = path;
	for (size_t i = 1; i < l->n_places; i++) {
		size_t len = strlen(l->places[i].path);

		if (strncmp(path, l->places[i].path, len) == 0 && path[len] == '.') {
			found = &l->places[i];
			*ret_key = path + len + 1;
		}
	}
	return found;
}

static const struct option *find_map(const struct place *p, const char *key, const char **ret_name)
{
	for (size_t i = 0; i < option_count; i++) {
		size_t len = strlen(options[i].key);

		if (options[i].type == OPTION_MAP && option_applies(&options[i], p->scope, p->sink_type) &&
		    strncmp(key, options[i].key, len) == 0 && key[len] == '.') {
			*ret_name = key + len + 1;
			return &options[i];
		}
	}
	return NULL;
}

static void complain_no_outbox(struct loader *l, const char *name, const char *where)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 4000 };
	_cleanup_(mem_freep) const char **known = mem_new_array(const char *, l->config->n_outboxes);

	for (size_t i = 0; i < l->config->n_outboxes; i++)
		known[i] = l->config->outboxes[i].name;
	config_add_quoted(&b, name);
	layer_add_hint(&b, name, known, l->config->n_outboxes);
	config_errors_add(l->errors, CONFIG_ERROR, where, "there is no outbox %s", buf_str(&b));
}

static void complain_no_sink(struct loader *l, const struct outbox_config *o, const char *where)
{
	config_errors_add(l->errors, CONFIG_ERROR, where,
			  "there is no such sink: outbox `%s` has %zu, counted from 0; setting sinks.%zu.type adds one",
			  o->name, o->n_sinks, o->n_sinks);
}

/* What stands behind `prefix` up to the next dot, or NULL when the key begins otherwise. */
static char *segment_after(const char *key, const char *prefix)
{
	size_t len = strlen(prefix);

	return strncmp(key, prefix, len) == 0 ? mem_strndup(key + len, strcspn(key + len, ".")) : NULL;
}

static void complain_unknown(struct loader *l, const struct place *p, const char *key, const char *where)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 4000 };
	_cleanup_(mem_freep) const char **known = mem_new_array(const char *, option_count);
	_cleanup_(mem_freep) char *outbox = segment_after(key, "outboxes.");
	_cleanup_(mem_freep) char *sink = segment_after(key, "sinks.");
	size_t n = 0;

	if (p->scope == SCOPE_PROCESS && outbox) {
		complain_no_outbox(l, outbox, where);
		return;
	}
	if (place_is_outbox(p) && sink) {
		complain_no_sink(l, p->outbox, where);
		return;
	}
	for (size_t i = 0; i < option_count; i++) {
		if (option_applies(&options[i], p->scope, p->sink_type))
			known[n++] = options[i].key;
	}
	buf_add_str(&b, "unknown setting ");
	config_add_quoted(&b, key);
	layer_add_hint(&b, key, known, n);
	config_errors_add(l->errors, CONFIG_ERROR, where, "%s", buf_str(&b));
}

/* The arguments of a process can be read by every user of the machine. */
static bool is_visible_secret(struct loader *l, const struct option *o, const char *name, const char *value,
			      const char *where)
{
	bool secret = (o->flags & OPTION_URL && config_url_has_secret(value)) ||
		      (o->flags & OPTION_SECRET_NAMES && name && config_is_secret_name(name));

	if (secret)
		config_errors_add(l->errors, CONFIG_ERROR, where,
				  "holds a secret, and other users can see the arguments of a process; "
				  "use a password file, the environment or the settings file");
	return secret;
}

static void set_flag(struct loader *l, const char *path, const char *value)
{
	_cleanup_(mem_freep) char *where = mem_printf("--set %s", path);
	const char *key, *name = NULL;
	struct place *p = find_place(l, path, &key);
	const struct option *o = option_find(p->scope, p->sink_type, key);

	if (!o)
		o = find_map(p, key, &name);
	if (!o) {
		complain_unknown(l, p, key, where);
		return;
	}
	if (is_visible_secret(l, o, name, value, where))
		return;
	if (name)
		place_set_pair(l, p, o, name, value, where, NULL);
	else if (o->type == OPTION_MAP)
		config_errors_add(l->errors, CONFIG_ERROR, where, "needs a name: %s.<name>=<value>", path);
	else
		place_set(l, p, o, value, where, NULL);
}

void layer_flags(struct loader *l)
{
	for (size_t i = 0; i < l->req->n_sets; i++) {
		const char *set = l->req->sets[i];
		const char *equals = strchr(set, '=');
		_cleanup_(mem_freep) char *path = NULL;

		if (!equals || equals == set) {
			config_errors_add(l->errors, CONFIG_ERROR, "--set",
					  "expects key=value, such as outboxes.orders.workers=8");
			continue;
		}
		path = mem_strndup(set, (size_t)(equals - set));
		set_flag(l, path, equals + 1);
	}
}
