#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/propose.h"
#include "config/load.h"
#include "config/suggest.h"
#include "pg/conn.h"
#include "pg/exec.h"
#include "pg/install.h"
#include "read/lean_install.h"
#include "read/reader.h"
#include "sink/branch_plan.h"

static size_t lines_printed;

static void print_line(const char *line)
{
	lines_printed++;
	puts(line);
	fflush(stdout);
}

/* The recommended table suits an outbox whose settings name no column of their own. It can be without scheduled
 * rows. */
static bool wants_recommended_table(const struct outbox_config *outbox)
{
	const struct column_config *columns = (const void *)&outbox->columns;

	if (outbox->preset != PRESET_POSTRIDER || outbox->order_by.where)
		return false;
	for (size_t i = 0; i < sizeof(outbox->columns) / sizeof(*columns); i++)
		if (columns[i].where && !(&columns[i] == &outbox->columns.scheduled_for && !columns[i].name[0]))
			return false;
	return true;
}

static char *reader_sql(const struct outbox_config *outbox, const char *role)
{
	const struct reader_driver *reader = reader_driver_find(outbox->reader);
	_cleanup_(mem_freep) char *quoted = NULL, *literal = NULL, *role_literal = role ? install_literal(role) : NULL;
	struct error reported_later;

	_cleanup_(mem_freep) char *own = NULL, *grant = NULL, *id = install_literal(outbox->columns.id.name);

	if (!pg_quote_qualified(NULL, outbox->table, &quoted, &reported_later))
		return NULL;
	literal = install_literal(quoted);
	own = reader->install_sql ? reader->install_sql(outbox, literal, role_literal) : NULL;
	/* Rows are locked while they move to branches. */
	if (outbox->n_branches > 0 && role)
		grant = mem_printf("SELECT postrider.grant_locking(%s::pg_catalog.regclass, %s, %s)", literal, role_literal, id);
	if (own && grant)
		return mem_printf("%s UNION ALL %s", own, grant);
	return own ? TAKE_PTR(own) : TAKE_PTR(grant);
}

/* The table of a branch. */
static char *branch_sql(const struct outbox_config *outbox)
{
	_cleanup_(mem_freep) char *quoted = NULL, *parent = NULL, *schema = NULL, *table = NULL, *name = NULL;
	_cleanup_(mem_freep) char *id = install_literal(outbox->columns.id.name);
	_cleanup_(mem_freep) char *key = install_literal(outbox->columns.entity_id.name);
	_cleanup_(mem_freep) char *own = NULL, *own_literal = NULL;
	struct error reported_later;

	if (!outbox->parent || !pg_quote_qualified(NULL, outbox->parent->table, &quoted, &reported_later) ||
	    !pg_split_qualified(outbox->table, &schema, &table, &reported_later))
		return NULL;
	own = branch_own_columns(outbox->parent);
	parent = install_literal(quoted);
	name = install_literal(table);
	own_literal = install_literal(own);
	return mem_printf("SELECT postrider.make_branch(%s::pg_catalog.regclass, %s, %s, %s, %s)", parent, name, id, key,
			  own_literal);
}

static char *lean_sql(const struct outbox_config *outbox, const char *role)
{
	_cleanup_(mem_freep) char *quoted = NULL, *literal = NULL, *role_literal = role ? install_literal(role) : NULL;
	struct error reported_later;

	if (!pg_quote_qualified(NULL, outbox->table, &quoted, &reported_later))
		return NULL;
	literal = install_literal(quoted);
	return lean_install_sql(outbox, wants_recommended_table(outbox), literal, role_literal);
}

/* The settings may speak of the table, and call the column something else. */
static const char *scheduled_of(const struct config *config, const char *table)
{
	for (size_t i = 0; i < config->n_outboxes; i++)
		if (strcmp(config->outboxes[i].table, table) == 0)
			return config->outboxes[i].columns.scheduled_for.name;
	return "scheduled_for";
}

static struct install_outbox *choose_outboxes(const struct config *config, const char *existing, const char *role,
					      size_t *ret_count)
{
	struct install_outbox *chosen = mem_new_array(struct install_outbox, config->n_outboxes + 1);

	if (existing) {
		chosen[0] = (struct install_outbox){ .table = existing, .scheduled = scheduled_of(config, existing) };
		*ret_count = 1;
		return chosen;
	}
	for (size_t i = 0; i < config->n_outboxes; i++) {
		const struct outbox_config *outbox = &config->outboxes[i];

		chosen[i] = (struct install_outbox){
			.table = outbox->table,
			.scheduled = outbox->columns.scheduled_for.name,
			.create = !outbox->parent && wants_recommended_table(outbox),
			.branch_sql = branch_sql(outbox),
			.reader_sql = reader_sql(outbox, role),
			.lean_sql = lean_sql(outbox, role),
		};
	}
	*ret_count = config->n_outboxes;
	return chosen;
}

/* What is no SQL, of every outbox whose reader has such a thing. Nothing beside a table that no settings speak of. */
static bool install_readers(PGconn *conn, const struct config *config, bool anew, struct error *err)
{
	for (size_t i = 0; i < config->n_outboxes; i++) {
		const struct outbox_config *outbox = &config->outboxes[i];
		const struct reader_driver *reader = reader_driver_find(outbox->reader);

		if (reader->install && !reader->install(conn, &config->database, outbox, anew, print_line, err))
			return false;
	}
	return true;
}

/* Before anything is changed, where a reader could not do its part. */
static bool check_sessions(PGconn *conn, const struct config *config, struct error *err)
{
	for (size_t i = 0; i < config->n_outboxes; i++) {
		const struct reader_driver *reader = reader_driver_find(config->outboxes[i].reader);

		if (reader->install && !reader_check_session(reader, conn, &config->database, err))
			return false;
	}
	return true;
}

static bool install(const struct config *config, const struct install_plan *plan, bool readers, bool anew,
		    struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;

	if (!pg_connect(&config->database, "init", -1, &conn, err) ||
	    (readers && !check_sessions(conn, config, err)) || !install_run(conn, plan, print_line, err) ||
	    (readers && !install_readers(conn, config, anew, err)))
		return false;
	if (lines_printed == 0)
		puts("nothing to do: everything is in place");
	return true;
}

static bool print_sql(const struct config *config, const struct install_plan *plan, bool readers, struct error *err)
{
	if (!install_print(plan, stdout, err))
		return false;
	for (size_t i = 0; readers && i < config->n_outboxes; i++)
		if (reader_driver_find(config->outboxes[i].reader)->install)
			printf("-- Outbox %s: its reader, %s, needs a replication slot besides. That is no SQL: run\n"
			       "-- `postrider init` itself, on a connection that may replicate.\n",
			       config->outboxes[i].name, config->outboxes[i].reader);
	return true;
}

/* --reader: as if the settings of every outbox named this one. */
static bool override_reader(struct config *config, const char *name, struct error *err)
{
	const char *known[64];
	const char *nearest;
	size_t n = 0;

	if (!name)
		return true;
	if (!reader_driver_find(name)) {
		for (; n < ARRAY_SIZE(known) && reader_drivers[n]; n++)
			known[n] = reader_drivers[n]->name;
		nearest = suggest_nearest(name, known, n);
		error_set(err, ERROR_CONFIG, "this build has no reader %s", name);
		return nearest ? error_hint(err, "did you mean %s?", nearest) :
				 error_hint(err, "see `postrider --version`");
	}
	for (size_t i = 0; i < config->n_outboxes; i++) {
		free(config->outboxes[i].reader);
		config->outboxes[i].reader = mem_strdup(name);
	}
	return true;
}

/* Consent to a loss must not be given for nothing, nor without knowing for what. */
static bool check_flags(const struct cli *cli, const struct config *config, struct error *err)
{
	bool anew = cli_value(cli, "recreate-slot");

	if (cli_value(cli, "existing") && (anew || cli_value(cli, "reader")))
		return error_set(err, ERROR_CONFIG,
				 "--%s is about outboxes of the settings, and --existing installs beside a table alone",
				 anew ? "recreate-slot" : "reader");
	if (anew && cli_value(cli, "print-sql"))
		return error_set(err, ERROR_CONFIG, "--recreate-slot cannot be printed as SQL");
	for (size_t i = 0; anew && i < config->n_outboxes; i++)
		if (reader_driver_find(config->outboxes[i].reader)->install)
			return true;
	if (!anew)
		return true;
	error_set(err, ERROR_CONFIG, "--recreate-slot, and no outbox of the settings is read from a slot");
	return error_hint(err, "set `reader: wal`, or add --reader wal");
}

static bool carry_out(const struct cli *cli, const struct config *config, struct error *err)
{
	const char *existing = cli_value(cli, "existing");
	struct install_plan plan = { .role = cli_value(cli, "role") };
	struct install_outbox *outboxes = choose_outboxes(config, existing, plan.role, &plan.n_outboxes);
	bool done;

	plan.outboxes = outboxes;
	done = cli_value(cli, "print-sql") ?
		       print_sql(config, &plan, !existing, err) :
		       install(config, &plan, !existing, cli_value(cli, "recreate-slot") != NULL, err);
	for (size_t i = 0; i < plan.n_outboxes; i++) {
		free(outboxes[i].branch_sql);
		free(outboxes[i].reader_sql);
		free(outboxes[i].lean_sql);
	}
	free(outboxes);
	return done;
}

static int run(const struct cli *cli)
{
	_cleanup_(config_freep) struct config *config = NULL;
	struct error err;

	if (!cli_load_config(cli, true, &config))
		return CLI_SETTINGS;
	if (!override_reader(config, cli_value(cli, "reader"), &err) || !check_flags(cli, config, &err)) {
		cli_print_error(&err);
		return CLI_USAGE;
	}
	if (carry_out(cli, config, &err))
		return CLI_OK;
	cli_print_error(&err);
	return CLI_FAILED;
}

static const struct cli_flag flags[] = {
	{ "existing", 0, "SCHEMA.TABLE", "install only what belongs beside this table" },
	{ "role", 0, "ROLE", "give this role what a relay needs" },
	{ "reader", 0, "NAME", "prepare for this reader, whatever the settings name", propose_readers },
	{ "recreate-slot", 0, NULL, "reader wal: make the slot anew; what it held is lost" },
	{ "print-sql", 0, NULL, "print the SQL instead of running it" },
	{ 0 },
};

const struct command command_init = {
	.name = "init",
	.summary = "create the schema postrider and the outbox tables",
	.usage = "[--existing SCHEMA.TABLE] [--role ROLE] [--reader NAME] [--recreate-slot] [--print-sql]",
	.details =
		"Creates the schema postrider, brings it to the version of this program, and creates the\n"
		"recommended table for each configured outbox that has none yet (public.outbox without a\n"
		"settings file). A table that is there already keeps its columns and rows: it gets a number\n"
		"in postrider.outbox, a sequence as its bell, and one trigger that wakes the relay. Says what\n"
		"it did, a line each; a second run does nothing.\n\n"
		"The tables of branches are made from that of their outbox; columns that it has got since are\n"
		"added to them.\n\n"
		"Run it as the owner of the tables. --role names the role that the relay connects as.\n\n"
		"For the reader wal it makes a publication and a replication slot, and lists the rows that\n"
		"are in the table by then, which are published first. That needs wal_level = logical and a\n"
		"role with the attribute REPLICATION. A slot that has vanished is made again only with\n"
		"--recreate-slot: of what was written meanwhile, only what is still in the table is found.",
	.flags = flags,
	.run = run,
};
