/* Settings for --set: their paths, one step at a time as with folders, then the values where these are known words. */
#include <string.h>

#include "base/buf.h"
#include "base/macros.h"
#include "cli/propose.h"
#include "config/load.h"
#include "config/options.h"
#include "sink/sink.h"

static const char *const booleans[] = { "true", "false", NULL };

/* An object of the settings, and where it stands. */
struct place {
	enum option_scope scope;
	const char *sink_type;
	const char *path;               /* "outboxes.orders." */
};

static void propose_sink_types(struct proposals *p)
{
	for (size_t i = 0; sink_drivers[i]; i++)
		propose_word(p, sink_drivers[i]->name, sink_drivers[i]->summary);
}

/* Texts that are names of drivers, which the table of options does not know. */
static const struct {
	enum option_scope scope;
	const char *key;
	void (*propose)(struct proposals *p);
} drivers[] = {
	{ SCOPE_OUTBOX, "reader", propose_readers },
	{ SCOPE_SINK, "type", propose_sink_types },
};

static void propose_values(struct proposals *p, const struct option *o)
{
	const char *const *words = o->type == OPTION_BOOLEAN ? booleans : o->words;

	for (size_t i = 0; i < ARRAY_SIZE(drivers); i++)
		if (drivers[i].scope == o->scope && strcmp(drivers[i].key, o->key) == 0)
			drivers[i].propose(p);
	for (; words && *words; words++)
		propose_word(p, *words, strcmp(*words, o->fallback) == 0 ? "the default" : NULL);
}

/* The path as far as its next dot behind what is typed; all of it with a = where there is none. */
static void propose_step(struct proposals *p, const char *path, const struct option *o)
{
	const char *typed = p->typed + p->lead;
	_cleanup_(buf_release) struct buf step = { .ceiling = 1000 }, facts = { .ceiling = 4000 };
	const char *dot;

	if (strncmp(path, typed, strlen(typed)) != 0)
		return;
	dot = strchr(path + strlen(typed), '.');
	if (dot) {
		buf_add(&step, path, (size_t)(dot - path) + 1);
		propose_word(p, buf_str(&step), NULL);
		return;
	}
	/* One name of a mapping is set at a time. */
	buf_printf(&step, "%s%c", path, o->type == OPTION_MAP ? '.' : '=');
	option_add_facts(&facts, o);
	propose_word(p, buf_str(&step), buf_str(&facts));
}

static void propose_option(struct proposals *p, const struct place *place, const struct option *o)
{
	_cleanup_(buf_release) struct buf path = { .ceiling = 1000 };
	const char *typed = p->typed + p->lead;

	buf_printf(&path, "%s%s", place->path, o->key);
	if (strncmp(typed, buf_str(&path), path.len) == 0 && typed[path.len] == '=') {
		p->lead += path.len + 1;
		propose_values(p, o);
		p->lead -= path.len + 1;
		return;
	}
	propose_step(p, buf_str(&path), o);
}

static void propose_place(struct proposals *p, const struct place *place)
{
	for (size_t i = 0; i < option_count; i++)
		if (option_applies(&options[i], place->scope, place->sink_type))
			propose_option(p, place, &options[i]);
}

static void propose_outbox(struct proposals *p, const struct outbox_config *o)
{
	_cleanup_(buf_release) struct buf path = { .ceiling = 1000 };

	buf_printf(&path, "outboxes.%s.", o->name);
	propose_place(p, &(struct place){ .scope = SCOPE_OUTBOX, .path = buf_str(&path) });
	for (size_t i = 0; i < o->n_sinks; i++) {
		buf_clear(&path);
		buf_printf(&path, "outboxes.%s.sinks.%zu.", o->name, i);
		propose_place(p, &(struct place){ SCOPE_SINK, o->sinks[i].type, buf_str(&path) });
	}
}

void propose_settings(struct proposals *p)
{
	_cleanup_(config_freep) struct config *config = NULL;

	propose_place(p, &(struct place){ .scope = SCOPE_PROCESS, .path = "" });
	if (!cli_load_config(p->cli, true, &config))
		return;
	for (size_t i = 0; i < config->n_outboxes; i++)
		propose_outbox(p, &config->outboxes[i]);
}
