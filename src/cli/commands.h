/* The commands of the program. Each lives in a file of its own, which defines one `const struct command`; commands.c
 * lists them. From a command's row come its parsing, its help and what the program suggests for a mistyped word. */
#ifndef POSTRIDER_CLI_COMMANDS_H
#define POSTRIDER_CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

/* Exit codes that scripts may rely on. */
enum {
	CLI_OK = 0,
	CLI_FAILED = 1,                 /* something did not work, or `check` found a failure */
	CLI_USAGE = 2,                  /* the command line is wrong */
	CLI_SETTINGS = 78,              /* the settings are wrong: EX_CONFIG of sysexits.h */
};

extern const struct cli_exit_code {
	int code;
	const char *meaning;
} cli_exit_codes[];                     /* ended by a row without a meaning */

extern const char cli_purpose[];        /* what the program is for: a sentence in lines for a terminal */

struct proposals;                       /* cli/propose.h */

struct cli_flag {
	const char *name;               /* without the dashes */
	char letter;                    /* 0: none */
	const char *value;              /* what its value is called in the help; NULL: it takes none */
	const char *summary;
	void (*propose)(struct proposals *p);   /* its values, for shells; NULL: nobody can know them */
};

struct cli;

struct command {
	const char *name;
	const char *summary;            /* one line */
	const char *usage;              /* what follows the name: "[--json]" */
	const char *details;            /* paragraphs for `help COMMAND`, without the last line feed */
	const struct cli_flag *flags;   /* ended by a row without a name; NULL: none of its own */
	int max_operands;
	void (*propose)(struct proposals *p);   /* the next operand, for shells; NULL: nobody can know it */
	int (*run)(const struct cli *cli);      /* returns an exit code */
};

extern const struct command command_init;
extern const struct command command_run;
extern const struct command command_check;
extern const struct command command_status;
extern const struct command command_top;
extern const struct command command_explain;
extern const struct command command_dead;
extern const struct command command_entity;
extern const struct command command_pause;
extern const struct command command_resume;
extern const struct command command_replay;
extern const struct command command_verify;      /* where Kafka is compiled in */
extern const struct command command_completion;
extern const struct command command_help;
extern const struct command command_version;

extern const struct command *const commands[];  /* NULL-ended, in the order of the help */

const struct command *command_find(const char *name);
/* The command that was meant, or NULL. */
const char *command_nearest(const char *name);

#endif
