/* A command line, taken apart by the command's table of flags and the few that all commands share. Nothing is copied:
 * everything points into argv. */
#ifndef POSTRIDER_CLI_OPTIONS_H
#define POSTRIDER_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/commands.h"
#include "config/config.h"

#define CLI_MAX_FLAGS 16

/* One of the command's own flags, as often as it was given. */
struct cli_given {
	int flag;                       /* position in command->flags */
	const char *value;
};

struct cli {
	const struct command *command;  /* NULL: none was named */
	const char *config_flag;        /* of -c; NULL: not given */
	const char **sets;              /* of each --set */
	size_t n_sets;
	bool help;
	bool version;
	const char *values[CLI_MAX_FLAGS]; /* by position in command->flags; NULL: not given, "" for a flag alone */
	struct cli_given *given;        /* all of them, in order */
	size_t n_given;
	const char **operands;
	int n_operands;
	bool flags_over;                /* there was a -- */
	const struct cli_flag *awaits;  /* the line ends where this flag's value should stand */
};

extern const struct cli_flag cli_common_flags[];        /* ended by a row without a name */

/* False when the command line is wrong: then one or two lines on standard error have said how. */
bool cli_parse(int argc, char *const *argv, struct cli *ret);
/* The same for a line that is not finished: it may end where a value should follow. */
bool cli_parse_so_far(int argc, const char *const *argv, struct cli *ret);
void cli_release(struct cli *cli);              /* also for _cleanup_ */

/* The flag that is meant by an argument such as -c or --set=…, of a command (NULL: none) or of all; NULL: there is none. */
const struct cli_flag *cli_find_flag(const struct command *command, const char *argument);

/* The value of one of the command's own flags, or NULL. Asking for a flag that is not in the table aborts. */
const char *cli_value(const struct cli *cli, const char *name);

/* The next value of a flag that may be repeated; *at is 0 at first. NULL: there are no more. */
const char *cli_next_value(const struct cli *cli, const char *name, size_t *at);

/* Reads the settings as the command line asks; what is wrong with them goes to standard error. `sinks_optional` for
 * commands that publish nothing. The caller frees with config_free. */
bool cli_load_config(const struct cli *cli, bool sinks_optional, struct config **ret);

/* "postrider: message", and the hint on a line of its own, to standard error. */
void cli_print_error(const struct error *err);

#endif
