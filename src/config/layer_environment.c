/* Settings from the environment: POSTRIDER_ and the path of the setting in capitals. Variables are compared with the
 * names of all settings that exist, because a name alone does not say where its parts end. */
#include <string.h>

#include "base/mem.h"
#include "config/errors.h"
#include "config/place.h"
#include "config/suggest.h"

#define PREFIX "POSTRIDER_"

const char *layer_variable(const struct loader *l, const char *name)
{
	size_t len = strlen(name);

	for (char *const *e = l->req->environment; e && *e; e++) {
		if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
			return (*e)[len + 1] ? *e + len + 1 : NULL;
	}
	return NULL;
}

/* Not settings: where the file is, and the cache folder of ./dev, which runs the relay. */
static bool is_reserved(const char *name)
{
	static const char *const reserved[] = { CONFIG_FILE_VARIABLE, PREFIX "CACHE" };

	for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
		if (strcmp(name, reserved[i]) == 0)
			return true;
	}
	return strncmp(name, PREFIX "TEST_", strlen(PREFIX "TEST_")) == 0;
}

/* A whole map in one variable is a YAML mapping: {compression.type: lz4}. */
static void set_map(struct loader *l, struct place *p, const struct option *o, const char *name, const char *text)
{
	_cleanup_(tree_freep) struct tree *map = NULL;

	if (!tree_parse(name, text, strlen(text), &map, l->errors))
		return;
	if (map->kind != TREE_MAPPING) {
		config_errors_add(l->errors, CONFIG_ERROR, name, "must be a YAML mapping such as {name: value}, not %s",
				  tree_kind_name(map));
		return;
	}
	for (size_t i = 0; i < map->n_children; i++) {
		const struct tree *child = map->children[i];

		if (child->kind == TREE_TEXT)
			place_set_pair(l, p, o, child->key, child->text, name, NULL);
		else
			config_errors_add(l->errors, CONFIG_ERROR, name, "a value of the mapping must be text, not %s",
					  tree_kind_name(child));
	}
}

static void set_well_known(struct loader *l, const struct option *o)
{
	const char *value = layer_variable(l, o->variable);

	for (size_t i = 0; value && i < l->n_places; i++) {
		struct place *p = &l->places[i];

		if (place_is_outbox(p) && !place_set(l, p, o, value, o->variable, NULL))
			return; /* wrong for one is wrong for all: say it once */
	}
}

struct match {
	struct place *place;
	const struct option *option;
};

/* Settings with this name: more than one where the names of outboxes differ only in characters that a variable cannot
 * have. The first two are kept. */
static size_t find_matches(struct loader *l, const char *name, struct match matches[2])
{
	size_t n = 0;

	for (size_t i = 0; i < l->n_places; i++) {
		for (size_t k = 0; k < option_count; k++) {
			struct place *p = &l->places[i];
			_cleanup_(mem_freep) char *variable = NULL;

			if (!option_applies(&options[k], p->scope, p->sink_type))
				continue;
			variable = place_variable(p->path, options[k].key);
			if (strcmp(variable, name) == 0 && n < 2)
				matches[n++] = (struct match){ p, &options[k] };
		}
	}
	return n;
}

/* Container platforms inject names of their own (POSTRIDER_SERVICE_HOST), so this is not an error. */
static void warn_unknown(struct loader *l, const char *name)
{
	const char *nearest = NULL;
	size_t best = strlen(name) / 4;
	_cleanup_(mem_freep) char *kept = NULL;

	for (size_t i = 0; i < l->n_places; i++) {
		for (size_t k = 0; k < option_count; k++) {
			char *variable;
			size_t distance;

			if (!option_applies(&options[k], l->places[i].scope, l->places[i].sink_type))
				continue;
			variable = place_variable(l->places[i].path, options[k].key);
			distance = suggest_distance(name, variable);
			if (distance < best) {
				best = distance;
				mem_freep(&kept);
				nearest = kept = TAKE_PTR(variable);
			}
			mem_freep(&variable);
		}
	}
	config_errors_add(l->errors, CONFIG_WARNING, name, "not a setting of postrider%s%s%s",
			  nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

static void set_variable(struct loader *l, const char *name, const char *value)
{
	struct match found[2];
	size_t n = find_matches(l, name, found);

	if (n == 0) {
		warn_unknown(l, name);
	} else if (n > 1) {
		_cleanup_(mem_freep) char *one = place_key_path(found[0].place, found[0].option->key);
		_cleanup_(mem_freep) char *other = place_key_path(found[1].place, found[1].option->key);

		config_errors_add(l->errors, CONFIG_ERROR, name, "could mean `%s` or `%s`; use --set", one, other);
	} else if (found[0].option->type == OPTION_MAP) {
		set_map(l, found[0].place, found[0].option, name, value);
	} else {
		place_set(l, found[0].place, found[0].option, value, name, NULL);
	}
}

void layer_environment(struct loader *l)
{
	for (size_t k = 0; k < option_count; k++) {
		if (options[k].variable)
			set_well_known(l, &options[k]);
	}
	for (char *const *e = l->req->environment; e && *e; e++) {
		size_t len = strcspn(*e, "=");
		_cleanup_(mem_freep) char *name = mem_strndup(*e, len);

		if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 || is_reserved(name))
			continue;
		if ((*e)[len] == '=' && (*e)[len + 1] != '\0') /* an empty variable counts as unset */
			set_variable(l, name, *e + len + 1);
	}
}
