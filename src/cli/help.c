#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/propose.h"
#include "cli/write_man.h"
#include "config/docs.h"
#include "observe/metrics.h"

#define SETTINGS_TOPIC "settings"

static void print_flags(const struct cli_flag *flags)
{
	for (; flags && flags->name; flags++) {
		char text[64];
		int used = 0;

		used += snprintf(text, sizeof(text), flags->letter ? "-%c, " : "    ", flags->letter);
		snprintf(text + used, sizeof(text) - (size_t)used, "--%s%s%s", flags->name, flags->value ? " " : "",
			 flags->value ? flags->value : "");
		printf("  %-28s %s\n", text, flags->summary);
	}
}

static void print_overview(void)
{
	printf("%s\n\nusage: postrider [-c FILE] [--set KEY=VALUE]... COMMAND\n\ncommands:\n", cli_purpose);
	for (size_t i = 0; commands[i]; i++)
		printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
	puts("\noptions of all commands:");
	print_flags(cli_common_flags);
	fputs("\n`postrider help COMMAND` tells more about one; `postrider help settings` lists all settings.\n"
	      "Exit codes:",
	      stdout);
	for (const struct cli_exit_code *e = cli_exit_codes; e->meaning; e++)
		printf("%s %d %s", e == cli_exit_codes ? "" : ",", e->code, e->meaning);
	puts(".");
}

static void print_command(const struct command *c)
{
	printf("usage: postrider %s%s%s\n\n%s\n\n", c->name, c->usage[0] ? " " : "", c->usage, c->details);
	if (c->flags) {
		puts("options:");
		print_flags(c->flags);
		putchar('\n');
	}
	puts("options of all commands:");
	print_flags(cli_common_flags);
}

static int print_topic(const char *topic)
{
	const struct command *c = command_find(topic);
	const char *nearest;

	if (strcmp(topic, SETTINGS_TOPIC) == 0) {
		config_write_help(stdout);
		return CLI_OK;
	}
	if (c) {
		print_command(c);
		return CLI_OK;
	}
	nearest = command_nearest(topic);
	fprintf(stderr, "postrider: no help on %s", topic);
	if (nearest)
		fprintf(stderr, "; did you mean %s?", nearest);
	fputc('\n', stderr);
	return CLI_USAGE;
}

/* Documents that are written for files. */
static const struct {
	const char *flag;
	void (*write)(FILE *out);
} documents[] = {
	{ "markdown", config_write_markdown },
	{ "sample", config_write_sample },
	{ "metrics", metrics_write_markdown },
	{ "man", cli_write_man },
	{ "man-settings", config_write_man },
};

static int run(const struct cli *cli)
{
	/* `postrider run --help` comes here too, with another command's flags. */
	if (cli->command != &command_help) {
		if (cli->command)
			print_command(cli->command);
		else
			print_overview();
		return CLI_OK;
	}
	for (size_t i = 0; i < ARRAY_SIZE(documents); i++) {
		if (cli_value(cli, documents[i].flag)) {
			documents[i].write(stdout);
			return CLI_OK;
		}
	}
	if (cli->n_operands > 0)
		return print_topic(cli->operands[0]);
	print_overview();
	return CLI_OK;
}

static void propose_topics(struct proposals *p)
{
	propose_commands(p);
	propose_word(p, SETTINGS_TOPIC, "all settings");
}

static const struct cli_flag flags[] = {
	{ "markdown", 0, NULL, "all settings as Markdown: docs/configuration.md" },
	{ "sample", 0, NULL, "a settings file with every setting at its default" },
	{ "metrics", 0, NULL, "all metrics as Markdown: docs/metrics.md" },
	{ "man", 0, NULL, "the manual page postrider(1)" },
	{ "man-settings", 0, NULL, "the manual page postrider.yaml(5)" },
	{ 0 },
};

const struct command command_help = {
	.name = "help",
	.summary = "explain a command, or the settings",
	.usage = "[COMMAND | settings | --markdown | --sample | --metrics | --man | --man-settings]",
	.details = "Without a word it lists the commands. The manual pages can be read without installing them:\n"
		   "`postrider help --man | man -l -`.",
	.flags = flags,
	.max_operands = 1,
	.propose = propose_topics,
	.run = run,
};
