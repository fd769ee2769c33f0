#include "cli/write_man.h"

#include "base/buf.h"
#include "base/macros.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "config/load.h"
#include "config/options.h"
#include "config/roff.h"

static void write_flags(FILE *out, const struct cli_flag *flags)
{
	for (; flags && flags->name; flags++) {
		_cleanup_(buf_release) struct buf b = { .ceiling = 1000 };

		if (flags->letter)
			buf_printf(&b, "-%c, ", flags->letter);
		buf_printf(&b, "--%s", flags->name);
		roff_tag(out, buf_str(&b), flags->value ? flags->value : "");
		roff_text(out, flags->summary);
	}
}

static void write_command(FILE *out, const struct command *c)
{
	_cleanup_(buf_release) struct buf title = { .ceiling = 1000 };

	buf_printf(&title, "`postrider %s`%s%s", c->name, c->usage[0] ? " " : "", c->usage);
	roff_subheading(out, buf_str(&title));
	roff_text(out, c->details);
	write_flags(out, c->flags);
}

static void write_synopsis(FILE *out)
{
	roff_heading(out, "Synopsis");
	roff_text(out, "`postrider` [`-c` FILE] [`--set` KEY=VALUE]... COMMAND [ARGUMENT...]");
}

static void write_overview(FILE *out)
{
	roff_heading(out, "Description");
	roff_text(out, cli_purpose);
	for (size_t i = 0; commands[i]; i++) {
		roff_tag(out, commands[i]->name, "");
		roff_text(out, commands[i]->summary);
	}
}

static void write_exit_codes(FILE *out)
{
	roff_heading(out, "Exit status");
	for (const struct cli_exit_code *e = cli_exit_codes; e->meaning; e++) {
		_cleanup_(buf_release) struct buf code = { .ceiling = 16 };

		buf_printf(&code, "%d", e->code);
		roff_tag(out, buf_str(&code), "");
		roff_text(out, e->meaning);
	}
}

static void write_environment(FILE *out)
{
	roff_heading(out, "Environment");
	roff_tag(out, CONFIG_FILE_VARIABLE, "");
	roff_text(out, "the settings file, where `-c` names none");
	for (size_t i = 0; i < option_count; i++) {
		_cleanup_(buf_release) struct buf meaning = { .ceiling = 1000 };

		if (!options[i].variable)
			continue;
		buf_printf(&meaning, "sets `%s` for every outbox", options[i].key);
		roff_tag(out, options[i].variable, "");
		roff_text(out, buf_str(&meaning));
	}
	roff_paragraph(out);
	roff_text(out, "Every setting has a variable of its own besides: see `postrider.yaml`(5).");
}

static void write_files(FILE *out)
{
	roff_heading(out, "Files");
	roff_tag(out, CONFIG_DEFAULT_FILE, "");
	roff_text(out, "the settings file in the working directory, where nothing names another");
}

void cli_write_man(FILE *out)
{
	roff_begin(out, "postrider", 1, "relay of a transactional outbox in PostgreSQL");
	write_synopsis(out);
	write_overview(out);
	roff_heading(out, "Options of all commands");
	write_flags(out, cli_common_flags);
	roff_heading(out, "Commands");
	for (size_t i = 0; commands[i]; i++)
		write_command(out, commands[i]);
	write_exit_codes(out);
	write_environment(out);
	write_files(out);
	roff_heading(out, "See also");
	roff_text(out, "`postrider.yaml`(5), `systemd.service`(5)");
}
