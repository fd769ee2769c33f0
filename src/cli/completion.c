/* `postrider completion`: scripts for shells, and the answers to what these ask at each press of the Tab key. */
#include "cli/completion.h"

#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/propose.h"
#include "cli/steering.h"

#define WORDS "words"

static int run(const struct cli *cli)
{
	if (cli->n_operands == 0)
		return steering_wrong(cli, "say for which shell");
	/* The word stands where the name of the program would. */
	if (strcmp(cli->operands[0], WORDS) == 0) {
		propose(stdout, cli->n_operands, cli->operands);
		return CLI_OK;
	}
	if (cli->n_operands > 1)
		return steering_wrong(cli, "completion does not take %s", cli->operands[1]);
	for (const struct completion_script *s = completion_scripts; s->shell; s++) {
		if (strcmp(s->shell, cli->operands[0]) == 0) {
			fputs(s->text, stdout);
			return CLI_OK;
		}
	}
	return steering_wrong(cli, "there is no completion for %s", cli->operands[0]);
}

static void propose_shells(struct proposals *p)
{
	for (const struct completion_script *s = completion_scripts; p->cli->n_operands == 0 && s->shell; s++)
		propose_word(p, s->shell, NULL);
}

const struct command command_completion = {
	.name = "completion",
	.summary = "complete command lines in bash, zsh or fish",
	.usage = "bash|zsh|fish",
	.details =
		"Prints a script for the shell. `meson install` and packages put it where the shell looks for it. Without\n"
		"them:\n\n"
		"bash   `source <(postrider completion bash)` in ~/.bashrc\n"
		"zsh    `source <(postrider completion zsh)` in ~/.zshrc, behind compinit\n"
		"fish   `postrider completion fish > ~/.config/fish/completions/postrider.fish`\n\n"
		"Commands, flags and known values are completed; with -c the names of files, with --outbox and pause those\n"
		"of the outboxes of the settings, with --set the settings and their values.\n\n"
		"The scripts ask `postrider completion words -- WORD...`, where the last word is the one that is being\n"
		"written. The answer is a line for each word that fits, with an explanation behind a tab; or the line :files.",
	.max_operands = 1000,
	.propose = propose_shells,
	.run = run,
};
