#include "cli/options.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/propose.h"
#include "config/load.h"
#include "config/suggest.h"
#include "read/reader.h"
#include "sink/sink.h"

enum { COMMON_CONFIG, COMMON_SET, COMMON_HELP, COMMON_VERSION };

const struct cli_flag cli_common_flags[] = {
	[COMMON_CONFIG] = { "config", 'c', "FILE", "settings file (POSTRIDER_CONFIG, or ./postrider.yaml if there)",
			    propose_files },
	[COMMON_SET] = { "set", 0, "KEY=VALUE", "one setting, over file and environment; may be repeated",
			 propose_settings },
	[COMMON_HELP] = { "help", 'h', NULL, "help on the command" },
	[COMMON_VERSION] = { "version", 'V', NULL, "version, libraries, readers and sinks" },
	{ 0 },
};

/* The command line while it is taken apart. */
struct parser {
	int argc;
	const char *const *argv;
	int at;
	struct cli *cli;
};

static bool usage_error(const struct cli *cli)
{
	if (cli->command)
		fprintf(stderr, "Try `postrider help %s`.\n", cli->command->name);
	else
		fputs("Try `postrider help`.\n", stderr);
	return false;
}

static int find_flag(const struct cli_flag *flags, const char *name, size_t len)
{
	for (int i = 0; flags && flags[i].name; i++)
		if (strlen(flags[i].name) == len && strncmp(flags[i].name, name, len) == 0)
			return i;
	return -1;
}

static int find_letter(const struct cli_flag *flags, char letter)
{
	for (int i = 0; flags && flags[i].name; i++)
		if (flags[i].letter == letter)
			return i;
	return -1;
}

static size_t add_names(const char **names, size_t n, const struct cli_flag *flags)
{
	for (; flags && flags->name; flags++)
		names[n++] = flags->name;
	return n;
}

static bool unknown_flag(const struct cli *cli, const char *argument)
{
	const char *known[2 * CLI_MAX_FLAGS];
	_cleanup_(mem_freep) char *name = NULL;
	const char *nearest = NULL;
	size_t n;

	fprintf(stderr, "postrider: unknown option %s", argument);
	if (strncmp(argument, "--", 2) == 0) {
		name = mem_strndup(argument + 2, strcspn(argument + 2, "="));
		n = add_names(known, 0, cli_common_flags);
		n = add_names(known, n, cli->command ? cli->command->flags : NULL);
		nearest = suggest_nearest(name, known, n);
	}
	if (nearest)
		fprintf(stderr, "; did you mean --%s?\n", nearest);
	else
		fputc('\n', stderr);
	return usage_error(cli);
}

static void take_common(struct cli *cli, int flag, const char *value)
{
	switch (flag) {
	case COMMON_CONFIG:
		cli->config_flag = value;
		break;
	case COMMON_SET:
		cli->sets = mem_resize(cli->sets, (cli->n_sets + 1) * sizeof(*cli->sets));
		cli->sets[cli->n_sets++] = value;
		break;
	case COMMON_HELP:
		cli->help = true;
		break;
	case COMMON_VERSION:
		cli->version = true;
		break;
	}
}

/* `value` is what was attached to the flag, or NULL. */
static bool take_flag(struct parser *p, const struct cli_flag *flag, const char *value, const char **ret)
{
	if (!flag->value && value) {
		fprintf(stderr, "postrider: --%s takes no value\n", flag->name);
		return usage_error(p->cli);
	}
	if (flag->value && !value) {
		if (p->at + 1 >= p->argc)
			p->cli->awaits = flag;
		else
			value = p->argv[++p->at];
	}
	*ret = value ? value : "";
	return true;
}

static void note_given(struct cli *cli, int flag)
{
	cli->given = mem_resize(cli->given, (cli->n_given + 1) * sizeof(*cli->given));
	cli->given[cli->n_given++] = (struct cli_given){ flag, cli->values[flag] };
}

/* --name, --name=value, -n, -nvalue: the position among `flags`, or -1. */
static int find_argument(const struct cli_flag *flags, const char *argument)
{
	if (argument[1] == '-')
		return find_flag(flags, argument + 2, strcspn(argument + 2, "="));
	return find_letter(flags, argument[1]);
}

static const char *attached_value(const char *argument)
{
	const char *equals;

	if (argument[1] != '-')
		return argument[2] ? argument + 2 : NULL;
	equals = strchr(argument, '=');
	return equals ? equals + 1 : NULL;
}

const struct cli_flag *cli_find_flag(const struct command *command, const char *argument)
{
	const struct cli_flag *own = command ? command->flags : NULL;
	int i = find_argument(own, argument);

	if (i >= 0)
		return &own[i];
	i = find_argument(cli_common_flags, argument);
	return i >= 0 ? &cli_common_flags[i] : NULL;
}

static bool parse_flag(struct parser *p)
{
	const char *argument = p->argv[p->at], *value;
	const struct cli_flag *own = p->cli->command ? p->cli->command->flags : NULL;
	int own_index = find_argument(own, argument), common_index = find_argument(cli_common_flags, argument);

	if (own_index >= 0) {
		if (!take_flag(p, &own[own_index], attached_value(argument), &p->cli->values[own_index]))
			return false;
		note_given(p->cli, own_index);
		return true;
	}
	if (common_index < 0)
		return unknown_flag(p->cli, argument);
	if (!take_flag(p, &cli_common_flags[common_index], attached_value(argument), &value))
		return false;
	if (!p->cli->awaits)
		take_common(p->cli, common_index, value);
	return true;
}

static bool unknown_command(const char *name)
{
	const char *nearest = command_nearest(name);

	fprintf(stderr, "postrider: unknown command %s", name);
	if (nearest)
		fprintf(stderr, "; did you mean %s?", nearest);
	fputs("\nTry `postrider help`.\n", stderr);
	return false;
}

static bool parse_operand(struct parser *p)
{
	struct cli *cli = p->cli;

	if (!cli->command) {
		cli->command = command_find(p->argv[p->at]);
		return cli->command || unknown_command(p->argv[p->at]);
	}
	if (cli->n_operands >= cli->command->max_operands) {
		fprintf(stderr, "postrider: %s does not take %s\n", cli->command->name, p->argv[p->at]);
		return usage_error(cli);
	}
	cli->operands = mem_resize(cli->operands, ((size_t)cli->n_operands + 1) * sizeof(*cli->operands));
	cli->operands[cli->n_operands++] = p->argv[p->at];
	return true;
}

bool cli_parse_so_far(int argc, const char *const *argv, struct cli *ret)
{
	_cleanup_(cli_release) struct cli cli = { 0 };
	struct parser p = { argc, argv, 1, &cli };

	for (; p.at < argc; p.at++) {
		const char *argument = argv[p.at];

		if (!cli.flags_over && strcmp(argument, "--") == 0)
			cli.flags_over = true;
		else if (!cli.flags_over && argument[0] == '-' && argument[1] ? !parse_flag(&p) : !parse_operand(&p))
			return false;
	}
	*ret = cli;
	cli = (struct cli){ 0 };
	return true;
}

bool cli_parse(int argc, char *const *argv, struct cli *ret)
{
	_cleanup_(cli_release) struct cli cli = { 0 };

	if (!cli_parse_so_far(argc, (const char *const *)argv, &cli))
		return false;
	if (cli.awaits) {
		fprintf(stderr, "postrider: --%s needs a value: %s\n", cli.awaits->name, cli.awaits->value);
		return usage_error(&cli);
	}
	*ret = cli;
	cli = (struct cli){ 0 };
	return true;
}

void cli_release(struct cli *cli)
{
	free(cli->sets);
	free(cli->given);
	free(cli->operands);
	*cli = (struct cli){ 0 };
}

const char *cli_value(const struct cli *cli, const char *name)
{
	int i = find_flag(cli->command->flags, name, strlen(name));

	if (i < 0)
		abort();
	return cli->values[i];
}

const char *cli_next_value(const struct cli *cli, const char *name, size_t *at)
{
	int flag = find_flag(cli->command->flags, name, strlen(name));

	for (; *at < cli->n_given; ++*at)
		if (cli->given[*at].flag == flag)
			return cli->given[(*at)++].value;
	return NULL;
}

static const char *reader_name(size_t i)
{
	return reader_drivers[i] ? reader_drivers[i]->name : NULL;
}

static const char *sink_name(size_t i)
{
	return sink_drivers[i] ? sink_drivers[i]->name : NULL;
}

bool cli_load_config(const struct cli *cli, bool sinks_optional, struct config **ret)
{
	struct config_request request = {
		.path = config_path(cli->config_flag, environ),
		.environment = environ,
		.sets = cli->sets,
		.n_sets = cli->n_sets,
		.readers = reader_name,
		.sinks = sink_name,
		.sinks_optional = sinks_optional,
	};
	struct config_errors errors = { 0 };
	bool loaded = config_load(&request, ret, &errors);

	config_errors_print(&errors, stderr);
	config_errors_release(&errors);
	return loaded;
}

void cli_print_error(const struct error *err)
{
	fprintf(stderr, "postrider: %s\n", err->message);
	if (err->hint[0])
		fprintf(stderr, "  hint: %s\n", err->hint);
}
