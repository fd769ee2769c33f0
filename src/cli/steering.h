/* What the commands have in common that act on outboxes while nodes run: which outbox is meant, who acts, how results are
 * written as JSON. */
#ifndef POSTRIDER_CLI_STEERING_H
#define POSTRIDER_CLI_STEERING_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/options.h"
#include "steer/target.h"

/* Settings, a connection and the outboxes that are meant. */
struct steering {
	struct config *config;
	PGconn *conn;
	struct target *targets;
	size_t n_targets;
};

enum which_outboxes { STEER_ONE, STEER_SOME };

/* Reads the settings and connects. Of the names all outboxes; without any, the only one of the settings, or with STEER_SOME
 * all of them. CLI_OK, or an exit code whose reason is already told. The caller releases, also then. */
int steering_open(struct steering *s, const struct cli *cli, const char *const *names, size_t n_names,
		  enum which_outboxes which);
void steering_release(struct steering *s);      /* also for _cleanup_ */

/* "postrider: <text>", and where to find help. Returns CLI_USAGE. */
int steering_wrong(const struct cli *cli, const char *fmt, ...) _printf_(2, 3);

/* "user@host": who acts. The caller frees. */
char *steering_who(void);

/* A value, or NULL for SQL NULL. */
const char *steering_value(const PGresult *res, int row, int column);

/* ,"key":"text" or ,"key":null — without the comma at the beginning of an object. */
void steering_add_text(struct buf *out, const char *key, const char *text);
void steering_add_number(struct buf *out, const char *key, int64_t number);

#endif
