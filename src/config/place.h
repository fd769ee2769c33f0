/* The objects that options are stored in: the process, each outbox, each sink. They are all known before any option
 * is set, so that every source of settings is one loop over places and options. */
#ifndef POSTRIDER_CONFIG_PLACE_H
#define POSTRIDER_CONFIG_PLACE_H

#include "config/load.h"
#include "config/options.h"
#include "config/tree.h"

struct place {
	enum option_scope scope;        /* SCOPE_PROCESS, SCOPE_OUTBOX, SCOPE_BRANCH or SCOPE_SINK */
	char *path;                     /* "", "outboxes.orders", "outboxes.orders.branches.search", "outboxes.orders.sinks.0" */
	void *object;                   /* the struct of its scope, inside of loader.config */
	struct outbox_config *outbox;   /* itself or the sink's; NULL for the process */
	const struct tree *node;        /* its part of the file, NULL when it has none */
	const char *sink_type;          /* sinks: as the winning source says; NULL when none does. Borrowed */
	char **origins;                 /* by number of option: where its value comes from; NULL for a default */
};

struct loader {
	const struct config_request *req;
	const char *file;               /* name of the file in messages; NULL: no file */
	struct tree *root;              /* NULL: no file */
	struct config *config;
	struct config_errors *errors;
	struct place *places;
	size_t n_places;
};

/* Allocates the outboxes and sinks of the config, empty, and a place for each. */
void places_build(struct loader *l);
void places_release(struct loader *l);
const struct place *place_of(const struct loader *l, const void *object);
static inline bool place_is_outbox(const struct place *p)
{
	return p->scope == SCOPE_OUTBOX || p->scope == SCOPE_BRANCH;
}
/* Every option of an object of this scope as if nobody had said anything. */
void place_set_defaults(enum option_scope scope, void *object);

/* "a.b-c" to "POSTRIDER_A_B_C"; the caller frees. */
char *place_variable(const char *path, const char *key);
/* "outboxes.orders.workers"; the caller frees. */
char *place_key_path(const struct place *p, const char *key);
const char *place_origin(const struct place *p, const char *key);       /* NULL: a default */

/* Store a value and remember where it came from, or tell what is wrong with it and return false. `name` is what the
 * message calls the setting; NULL where `where` says it already. */
bool place_set(struct loader *l, struct place *p, const struct option *o, const char *text, const char *where,
	       const char *name);
bool place_set_pair(struct loader *l, struct place *p, const struct option *o, const char *key, const char *text,
		    const char *where, const char *name);

/* The three sources above the defaults: each sets all that it says. */
void layer_file(struct loader *l);
void layer_environment(struct loader *l);
void layer_flags(struct loader *l);

/* Value of NAME in the environment of the request; NULL when unset or empty. */
const char *layer_variable(const struct loader *l, const char *name);
/* What the last --set of exactly this path says, or NULL. */
const char *layer_flag(const struct loader *l, const char *path);
/* What the winning source above the defaults says for a text, or NULL. */
const char *layer_peek(const struct loader *l, const char *place_path, const struct tree *node, const char *key);

/* "; did you mean `x`?" or, when nothing is near, "; known are a, b". */
void layer_add_hint(struct buf *b, const char *word, const char *const *known, size_t n);

/* Branches: what they do not say for themselves they have from their outbox. After all sources, before the rules. */
void branches_inherit(struct loader *l);
/* The rules of one outbox with branches, and of one branch. */
void branches_check(struct loader *l, const struct outbox_config *o);
void branch_check(struct loader *l, const struct outbox_config *o);
/* Makes of outboxes with branches what the relay runs: after the rules. */
void branches_expand(struct loader *l);

/* What no single value can be blamed for; fills in the defaults that depend on other settings. */
void rules_apply(struct loader *l);

/* Of outboxes, branches and sinks. */
enum { NAME_MAX_BYTES = 40 };
bool rules_is_name(const char *name);
void rules_complain_name(struct loader *l, const char *where, const char *what, const char *name);

#endif
