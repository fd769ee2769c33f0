/* From file, environment and flags to one struct config. Later sources win:
 *
 *     defaults < preset < file < environment < --set
 *
 * Called once by each command, from the main thread, before any other thread exists. Nothing here logs or ends the
 * process: everything that is wrong goes into a list, so that a user mends a file once and not once per mistake. */
#ifndef POSTRIDER_CONFIG_LOAD_H
#define POSTRIDER_CONFIG_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "config/config.h"

#define CONFIG_DEFAULT_FILE "postrider.yaml"
#define CONFIG_FILE_VARIABLE "POSTRIDER_CONFIG"
#define CONFIG_FILE_MAX_BYTES (1024 * 1024)

enum config_severity { CONFIG_ERROR, CONFIG_WARNING };

struct config_error {
	enum config_severity severity;
	char *where;                    /* "postrider.yaml:3:9", "--set a.b", a variable; NULL: nowhere in particular */
	char *message;
};

/* Start with a zeroed one. It may hold warnings after a load that succeeded. */
struct config_errors {
	struct config_error *items;
	size_t count;
	size_t failures;                /* those of severity CONFIG_ERROR, also the ones past the limit of the list */
};

/* The i-th name of a list, NULL past its end: how the drivers of a build are made known here. */
typedef const char *(*config_names)(size_t i);

struct config_request {
	const char *path;               /* NULL: no file; see config_path */
	char *const *environment;       /* NAME=value, NULL-ended, like environ; NULL: empty */
	const char *const *sets;        /* what stood behind each --set: key=value */
	size_t n_sets;
	config_names readers;           /* NULL: every name is taken */
	config_names sinks;
	bool sinks_optional;            /* for commands that publish nothing */
};

/* The file to read: `flag`, else POSTRIDER_CONFIG, else ./postrider.yaml when it exists, else NULL. Borrowed. */
const char *config_path(const char *flag, char *const *environment);

/* True when there are no errors; then the caller owns *ret and frees it with config_free. Without a file there is one
 * outbox named "outbox". */
bool config_load(const struct config_request *req, struct config **ret, struct config_errors *errors);
/* The same with the file's bytes at hand; req->path is only its name in messages. */
bool config_load_text(const char *bytes, size_t len, const struct config_request *req, struct config **ret,
		      struct config_errors *errors);
void config_free(struct config *c);
void config_freep(struct config **c);   /* for _cleanup_ */

/* One line each: "where: message", warnings as "where: warning: message". */
void config_errors_print(const struct config_errors *errors, FILE *out);
void config_errors_release(struct config_errors *errors);

#endif
