#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "config/load.h"
#include "pg/conn.h"
#include "pg/exec.h"
#include "pg/install.h"
#include "read/reader.h"

static size_t lines_printed;

static void print_line(const char *line)
{
	lines_printed++;
	puts(line);
	fflush(stdout);
}

/* The recommended table suits an outbox whose settings name no column of their own. */
static bool wants_recommended_table(const struct outbox_config *outbox)
{
	const struct column_config *columns = (const void *)&outbox->columns;

	if (outbox->preset != PRESET_POSTRIDER || outbox->order_by.where)
		return false;
	for (size_t i = 0; i < sizeof(outbox->columns) / sizeof(*columns); i++)
		if (columns[i].where)
			return false;
	return true;
}

static char *reader_sql(const struct outbox_config *outbox, const char *role)
{
	const struct reader_driver *reader = reader_driver_find(outbox->reader);
	_cleanup_(mem_freep) char *quoted = NULL, *literal = NULL, *role_literal = role ? install_literal(role) : NULL;
	struct error reported_later;

	if (!reader->install_sql || !pg_quote_qualified(NULL, outbox->table, &quoted, &reported_later))
		return NULL;
	literal = install_literal(quoted);
	return reader->install_sql(outbox, literal, role_literal);
}

static struct install_outbox *choose_outboxes(const struct config *config, const char *existing, const char *role,
					      size_t *ret_count)
{
	struct install_outbox *chosen = mem_new_array(struct install_outbox, config->n_outboxes + 1);

	if (existing) {
		chosen[0] = (struct install_outbox){ .table = existing };
		*ret_count = 1;
		return chosen;
	}
	for (size_t i = 0; i < config->n_outboxes; i++) {
		const struct outbox_config *outbox = &config->outboxes[i];

		chosen[i] = (struct install_outbox){
			.table = outbox->table,
			.create = wants_recommended_table(outbox),
			.reader_sql = reader_sql(outbox, role),
		};
	}
	*ret_count = config->n_outboxes;
	return chosen;
}

static bool install(const struct config *config, const struct install_plan *plan, struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;

	if (!pg_connect(&config->database, "init", -1, &conn, err) || !install_run(conn, plan, print_line, err))
		return false;
	if (lines_printed == 0)
		puts("nothing to do: everything is in place");
	return true;
}

static int run(const struct cli *cli)
{
	_cleanup_(config_freep) struct config *config = NULL;
	_cleanup_(mem_freep) struct install_outbox *outboxes = NULL;
	struct install_plan plan = { .role = cli_value(cli, "role") };
	struct error err;
	bool done;

	if (!cli_load_config(cli, true, &config))
		return CLI_SETTINGS;
	outboxes = choose_outboxes(config, cli_value(cli, "existing"), plan.role, &plan.n_outboxes);
	plan.outboxes = outboxes;
	done = cli_value(cli, "print-sql") ? install_print(&plan, stdout, &err) : install(config, &plan, &err);
	for (size_t i = 0; i < plan.n_outboxes; i++)
		free(outboxes[i].reader_sql);
	if (done)
		return CLI_OK;
	cli_print_error(&err);
	return CLI_FAILED;
}

static const struct cli_flag flags[] = {
	{ "existing", 0, "SCHEMA.TABLE", "install only what belongs beside this table" },
	{ "role", 0, "ROLE", "give this role what a relay needs" },
	{ "print-sql", 0, NULL, "print the SQL instead of running it" },
	{ 0 },
};

const struct command command_init = {
	.name = "init",
	.summary = "create the schema postrider and the outbox tables",
	.usage = "[--existing SCHEMA.TABLE] [--role ROLE] [--print-sql]",
	.details =
		"Creates the schema postrider, brings it to the version of this program, and creates the\n"
		"recommended table for each configured outbox that has none yet (public.outbox without a\n"
		"settings file). A table that is there already keeps its columns and rows: it gets a number\n"
		"in postrider.outbox, a sequence as its bell, and one trigger that wakes the relay. Says what\n"
		"it did, a line each; a second run does nothing.\n\n"
		"Run it as the owner of the tables. --role names the role that the relay connects as.",
	.flags = flags,
	.run = run,
};
