#include "cli/propose.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "config/load.h"
#include "read/reader.h"

void propose_word(struct proposals *p, const char *word, const char *explanation)
{
	const char *typed = p->typed + p->lead;

	if (strncmp(word, typed, strlen(typed)) != 0 || strcmp(word, buf_str(&p->last)) == 0)
		return;
	buf_clear(&p->last);
	buf_add_str(&p->last, word);
	fprintf(p->out, "%.*s%s", (int)p->lead, p->typed, word);
	if (explanation)
		fprintf(p->out, "\t%s", explanation);
	fputc('\n', p->out);
}

/* --- what the tables name --------------------------------------------------------------------------------------------- */

void propose_files(struct proposals *p)
{
	fputs(":files\n", p->out);
}

void propose_outboxes(struct proposals *p)
{
	_cleanup_(config_freep) struct config *config = NULL;

	if (!cli_load_config(p->cli, true, &config))
		return;
	for (size_t i = 0; i < config->n_outboxes; i++)
		propose_word(p, config->outboxes[i].name, config->outboxes[i].table);
}

void propose_sink_names(struct proposals *p)
{
	_cleanup_(config_freep) struct config *config = NULL;

	if (!cli_load_config(p->cli, true, &config))
		return;
	for (size_t i = 0; i < config->n_outboxes; i++) {
		const struct outbox_config *o = &config->outboxes[i];

		for (size_t k = 0; k < o->n_sinks; k++)
			propose_word(p, o->sinks[k].name, o->name);
	}
}

void propose_readers(struct proposals *p)
{
	for (size_t i = 0; reader_drivers[i]; i++)
		propose_word(p, reader_drivers[i]->name, reader_drivers[i]->summary);
}

void propose_error_kinds(struct proposals *p)
{
	for (int kind = ERROR_NONE + 1; kind < ERROR_KIND_COUNT; kind++)
		propose_word(p, error_kind_name((enum error_kind)kind), NULL);
}

void propose_commands(struct proposals *p)
{
	for (size_t i = 0; commands[i]; i++)
		propose_word(p, commands[i]->name, commands[i]->summary);
}

/* --- which place it is ------------------------------------------------------------------------------------------------ */

static void propose_flags(struct proposals *p, const struct cli_flag *flags)
{
	for (; flags && flags->name; flags++) {
		_cleanup_(buf_release) struct buf word = { .ceiling = 200 };

		buf_printf(&word, "--%s", flags->name);
		propose_word(p, buf_str(&word), flags->summary);
		if (flags->letter)
			propose_word(p, (const char[]){ '-', flags->letter, 0 }, flags->summary);
	}
}

static void propose_value(struct proposals *p, const struct cli_flag *flag)
{
	if (flag && flag->propose)
		flag->propose(p);
}

static void propose_flag_or_its_value(struct proposals *p)
{
	const char *equals = strchr(p->typed, '=');

	if (equals) {
		p->lead = (size_t)(equals - p->typed) + 1;
		propose_value(p, cli_find_flag(p->cli->command, p->typed));
		return;
	}
	propose_flags(p, cli_common_flags);
	propose_flags(p, p->cli->command ? p->cli->command->flags : NULL);
}

static void proposals_release(struct proposals *p)
{
	buf_release(&p->last);
}

static void propose_operand(struct proposals *p)
{
	const struct command *c = p->cli->command;

	if (!c)
		propose_commands(p);
	else if (c->propose && p->cli->n_operands < c->max_operands)
		c->propose(p);
}

/* Shells give the words as they were written. The caller frees. */
static char *without_tilde(const char *path)
{
	const char *home = getenv("HOME");

	return path && home && strncmp(path, "~/", 2) == 0 ? mem_printf("%s%s", home, path + 1) : NULL;
}

void propose(FILE *out, int n_words, const char *const *words)
{
	_cleanup_(cli_release) struct cli cli = { 0 };
	_cleanup_(mem_freep) char *config_flag = NULL;
	_cleanup_(proposals_release) struct proposals p = { .out = out, .cli = &cli, .last = { .ceiling = 4000 } };

	if (n_words < 2 || !cli_parse_so_far(n_words - 1, words, &cli))
		return;
	config_flag = without_tilde(cli.config_flag);
	if (config_flag)
		cli.config_flag = config_flag;
	p.typed = words[n_words - 1];
	if (cli.awaits)
		propose_value(&p, cli.awaits);
	else if (p.typed[0] == '-' && !cli.flags_over)
		propose_flag_or_its_value(&p);
	else
		propose_operand(&p);
}
