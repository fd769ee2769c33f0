/* Every setting is one row of options.def. From these rows come parsing, defaults, messages, help, the sample file and
 * docs/configuration.md. */
#ifndef POSTRIDER_CONFIG_OPTIONS_H
#define POSTRIDER_CONFIG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "config/config.h"

/* Whose setting it is, which is also the struct it is stored in. */
enum option_scope {
	SCOPE_PROCESS,                  /* struct config */
	SCOPE_OUTBOX,                   /* struct outbox_config, of a branch too */
	SCOPE_BRANCH,                   /* struct outbox_config, of a branch alone */
	SCOPE_SINK,                     /* struct sink_config, whatever its type */
	SCOPE_KAFKA,                    /* struct sink_config, for one type of sink only */
	SCOPE_NATS,
	SCOPE_POSTGRES,
	SCOPE_QUEUE,
	SCOPE_RABBITMQ,
	SCOPE_REDIS,
	SCOPE_SQS,
	SCOPE_STDOUT,
	SCOPE_WEBHOOK,
};

enum option_type {
	OPTION_TEXT,                    /* char *; with `words`, one of them or nothing */
	OPTION_INTEGER,                 /* int64_t */
	OPTION_BOOLEAN,                 /* bool */
	OPTION_DURATION,                /* int64_t, milliseconds */
	OPTION_SIZE,                    /* int64_t, bytes */
	OPTION_WORD,                    /* an enum, whose values are numbered as `words` */
	OPTION_COLUMN,                  /* struct column_config */
	OPTION_MAP,                     /* struct config_map */
};

enum {
	OPTION_REQUIRED = 1 << 0,       /* has no default: somebody must set it */
	OPTION_NOT_EMPTY = 1 << 1,
	OPTION_TEMPLATE = 1 << 2,       /* may name columns in braces */
	OPTION_URL = 1 << 3,            /* may hold a password: never shown, and refused in --set when it does */
	OPTION_SECRET_NAMES = 1 << 4,   /* a map in which some names have secrets for values */
};

struct option {
	enum option_scope scope;
	const char *key;                /* inside its scope: "route.topic" */
	enum option_type type;
	size_t offset, size;            /* of the field */
	const char *fallback;           /* the default, as a user would write it */
	const char *fallback_note;      /* what the default does, where that is not plain from it */
	int64_t min, max;               /* integers, durations (ms), sizes (bytes) */
	const char *const *words;       /* NULL-ended */
	unsigned flags;
	const char *variable;           /* a well-known environment variable that sets it for every outbox */
	const char *sample;             /* written into the sample file as an active line */
	const char *doc;
};

/* A heading in the documentation: the options of a scope whose keys begin with `prefix`. */
struct option_section {
	enum option_scope scope;
	const char *prefix;             /* "" or "route." */
	const char *title;
	const char *doc;
};

extern const struct option options[];
extern const size_t option_count;
extern const struct option_section option_sections[];
extern const size_t option_section_count;

/* The type of sink that a scope belongs to, or NULL where it belongs to all or to none. */
const char *option_sink_type(enum option_scope scope);
bool option_knows_sink(const char *sink_type);  /* NULL: no */
/* Is this a setting of an object of `scope` (process, outbox, branch, sink), which for sinks is of type `sink_type`? */
bool option_applies(const struct option *o, enum option_scope scope, const char *sink_type);
const struct option *option_find(enum option_scope scope, const char *sink_type, const char *key);
/* The part of the key behind the section's prefix, or NULL when the option belongs to another section. */
const char *option_in_section(const struct option *o, const struct option_section *section);
/* "outboxes.<name>.sinks.<n>.brokers" */
void option_add_path(struct buf *b, const struct option *o);
/* A policy by its name, as failure.then and failure.topics have it. False: there is none of that name. */
bool option_when_refused(const char *word, enum when_refused *ret);
/* What a value must be: "a whole number from 1 to 256". */
void option_describe(struct buf *b, const struct option *o);
/* The same, with its default and its variable: "a whole number from 1 to 256; default 4; also OUTBOX_WORKER_COUNT". */
void option_add_facts(struct buf *b, const struct option *o);

#endif
