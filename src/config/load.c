#include "config/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "config/errors.h"
#include "config/place.h"
#include "config/suggest.h"
#include "config/value.h"

static const struct {
	enum outbox_preset preset;
	const char *key, *value;
} preset_rows[] = {
#define PRESET(preset, key, value) { preset, key, value },
#include "config/presets.def"
#undef PRESET
};

void layer_add_hint(struct buf *b, const char *word, const char *const *known, size_t n)
{
	const char *nearest = suggest_nearest(word, known, n);

	if (nearest) {
		buf_printf(b, "; did you mean `%s`?", nearest);
		return;
	}
	for (size_t i = 0; i < n; i++)
		buf_printf(b, "%s%s", i ? ", " : "; known are ", known[i]);
}

/* Rows are tested to be valid, so a default that is not is a bug of ours. */
static void set_default(const struct option *o, void *object, const char *text)
{
	struct error err;

	if (o->type == OPTION_MAP)
		return;
	if (o->flags & OPTION_REQUIRED)
		*(char **)((char *)object + o->offset) = mem_strdup("");
	else if (!value_set(o, object, text, NULL, &err))
		abort();
}

void place_set_defaults(enum option_scope scope, void *object)
{
	for (size_t i = 0; i < option_count; i++) {
		/* A sink gets those of all types, so that no text in it is NULL. */
		bool sink = scope == SCOPE_SINK && option_sink_type(options[i].scope);

		if (sink || option_applies(&options[i], scope, NULL))
			set_default(&options[i], object, options[i].fallback);
	}
}

/* Which preset it is must be known before the file is applied over it. A wrong one is told when its turn comes. */
static void set_preset(const struct loader *l, const struct place *p)
{
	const struct option *preset = option_find(SCOPE_OUTBOX, NULL, "preset");
	const char *text = layer_peek(l, p->path, p->node, "preset");
	struct outbox_config *outbox = p->object;
	struct error err;

	if (!text || !value_set(preset, outbox, text, NULL, &err))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(preset_rows); i++) {
		if (preset_rows[i].preset == outbox->preset)
			set_default(option_find(SCOPE_OUTBOX, NULL, preset_rows[i].key), outbox, preset_rows[i].value);
	}
}

static bool load(struct loader *l, struct config **ret)
{
	l->config = mem_new(struct config);
	l->config->file = mem_strdup(l->file);
	places_build(l);
	for (size_t i = 0; i < l->n_places; i++) {
		place_set_defaults(l->places[i].scope, l->places[i].object);
		if (l->places[i].scope == SCOPE_OUTBOX)
			set_preset(l, &l->places[i]);
	}
	layer_file(l);
	layer_environment(l);
	layer_flags(l);
	branches_inherit(l);
	rules_apply(l);
	branches_expand(l);
	places_release(l);
	if (l->errors->failures > 0) {
		config_free(l->config);
		return false;
	}
	*ret = l->config;
	return true;
}

bool config_load_text(const char *bytes, size_t len, const struct config_request *req, struct config **ret,
		      struct config_errors *errors)
{
	_cleanup_(tree_freep) struct tree *root = NULL;
	struct loader l = { .req = req, .file = req->path ? req->path : CONFIG_DEFAULT_FILE, .errors = errors };

	if (len > CONFIG_FILE_MAX_BYTES) {
		config_errors_add(errors, CONFIG_ERROR, l.file, "larger than 1 MiB, which no settings file is");
		return false;
	}
	if (!tree_parse(l.file, bytes, len, &root, errors))
		return false;
	l.root = root;
	return load(&l, ret);
}

static bool read_file(const char *path, char *bytes, size_t room, size_t *ret_len, struct config_errors *errors)
{
	FILE *f = fopen(path, "re");
	bool failed;

	if (!f) {
		config_errors_add(errors, CONFIG_ERROR, path, "could not open the settings file: %s", strerror(errno));
		return false;
	}
	errno = 0;
	*ret_len = fread(bytes, 1, room, f);
	failed = ferror(f);
	if (failed)
		config_errors_add(errors, CONFIG_ERROR, path, "could not read the settings file: %s", strerror(errno));
	fclose(f);
	return !failed;
}

bool config_load(const struct config_request *req, struct config **ret, struct config_errors *errors)
{
	_cleanup_(mem_freep) char *bytes = NULL;
	struct loader l = { .req = req, .errors = errors };
	size_t len;

	if (!req->path)
		return load(&l, ret);
	bytes = mem_alloc(CONFIG_FILE_MAX_BYTES + 1);
	if (!read_file(req->path, bytes, CONFIG_FILE_MAX_BYTES + 1, &len, errors))
		return false;
	return config_load_text(bytes, len, req, ret, errors);
}

const char *config_path(const char *flag, char *const *environment)
{
	struct config_request req = { .environment = environment };
	struct loader l = { .req = &req };
	const char *variable = layer_variable(&l, CONFIG_FILE_VARIABLE);

	if (flag)
		return flag;
	if (variable)
		return variable;
	return access(CONFIG_DEFAULT_FILE, F_OK) == 0 ? CONFIG_DEFAULT_FILE : NULL;
}

static void release_scope(void *object, enum option_scope scope)
{
	for (size_t i = 0; i < option_count; i++) {
		bool sink = scope == SCOPE_SINK && option_sink_type(options[i].scope);

		if (sink || options[i].scope == scope)
			value_release(&options[i], object);
	}
}

static void outbox_release(struct outbox_config *o)
{
	for (size_t i = 0; i < o->n_sinks; i++) {
		release_scope(&o->sinks[i], SCOPE_SINK);
		free(o->sinks[i].where);
	}
	release_scope(o, SCOPE_OUTBOX);
	release_scope(o, SCOPE_BRANCH);
	free(o->sinks);
	free(o->name);
	free(o->path);
	free(o->where);
}

void config_free(struct config *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_outboxes; i++)
		outbox_release(&c->outboxes[i]);
	release_scope(c, SCOPE_PROCESS);
	free(c->outboxes);
	free(c->file);
	free(c);
}

void config_freep(struct config **c)
{
	config_free(*c);
}
