#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/finding.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "config/load.h"
#include "pg/conn.h"
#include "pg/migrate.h"
#include "pg/table.h"
#include "read/reader.h"
#include "relay/route.h"
#include "sink/branch_check.h"
#include "sink/sink.h"

#define JSON_CEILING (16 << 20)

struct check {
	const struct config *config;
	PGconn *conn;                   /* NULL: the database is away, and only the rest can be checked */
	bool settings_wrong;
	struct finding_list findings;
};

static void check_release(struct check *c)
{
	PQfinish(c->conn);
	finding_release(&c->findings);
}

static void failed(struct check *c, const struct error *err)
{
	finding_add_error(&c->findings, err);
}

static void check_settings(struct check *c)
{
	finding_add(&c->findings, FINDING_OK, NULL, "settings: %s",
		    c->config->file ? c->config->file : "no file, defaults and environment");
}

static void check_schema(struct check *c)
{
	struct error err;
	int version;

	if (!migrate_version_served(c->conn, &version, &err))
		failed(c, &err);
	else if (version > (int)n_migrations)
		finding_add(&c->findings, FINDING_OK, NULL,
			    "schema postrider: version %d, which still serves this program; it knows up to %zu", version,
			    n_migrations);
	else
		finding_add(&c->findings, FINDING_OK, NULL, "schema postrider: version %d", version);
}

static void check_database(struct check *c)
{
	_cleanup_(mem_freep) char *identity = NULL;
	struct error err;

	if (!pg_connect(&c->config->database, "check", -1, &c->conn, &err)) {
		failed(c, &err);
		return;
	}
	identity = pg_identity(c->conn);
	finding_add(&c->findings, FINDING_OK, NULL, "database %s: PostgreSQL %s, as %s", identity,
		    PQparameterStatus(c->conn, "server_version"), PQuser(c->conn));
	check_schema(c);
}

static void check_session(struct check *c, const struct outbox_config *outbox)
{
	struct error err;

	if (!c->conn || reader_check_session(reader_driver_find(outbox->reader), c->conn, &c->config->database, &err))
		return;
	error_prefix(&err, "outbox %s", outbox->name);
	failed(c, &err);
}

static void check_for_reader(struct check *c, const struct outbox_config *outbox, const struct table *table)
{
	const struct reader_driver *reader = reader_driver_find(outbox->reader);

	table_check(c->conn, outbox, table, &c->findings);
	if (reader->check)
		reader->check(c->conn, outbox, table, &c->findings);
}

static void check_table(struct check *c, const struct outbox_config *outbox, const struct route *route)
{
	_cleanup_(table_freep) struct table *table = NULL;
	struct error err;
	size_t n_extra;
	const char *const *extra = route_extra_columns(route, &n_extra);

	if (!c->conn)
		return;
	if (table_open(c->conn, outbox, extra, n_extra, &table, &err) && route_check_table(route, table, &err))
		check_for_reader(c, outbox, table);
	else
		failed(c, &err);
}

static void check_sink(struct check *c, const struct sink_config *config, struct route *route)
{
	const struct sink_driver *driver = sink_driver_find(config->type);
	struct sink_target *target;
	struct error err;
	size_t before = c->findings.count;

	if (!sink_check_route(driver, route, &err) || !driver->target_open(config, &target, &err)) {
		c->settings_wrong |= err.kind == ERROR_CONFIG;
		failed(c, &err);
		return;
	}
	if (driver->check)
		driver->check(target, route_constant_topic(route), &c->findings);
	driver->target_close(target);
	if (c->findings.count == before)
		finding_add(&c->findings, FINDING_OK, NULL, "sink %s: ready", config->name);
}

static void left_over(void *arg, const char *table, long rows)
{
	struct check *c = arg;

	finding_add(&c->findings, FINDING_WARN, BRANCH_LEFT_OVER_HINT,
		    "table %s has %s%ld rows of a branch that the settings no longer have, and nobody publishes them", table,
		    rows == BRANCH_COUNTED_MAX ? "at least " : "", rows);
}

static void check_branches(struct check *c, const struct outbox_config *outbox)
{
	struct error err;

	if (!c->conn || outbox->parent)
		return;
	if (outbox->n_branches > 0)
		branch_check_tables(c->conn, outbox, &c->findings);
	if (!branch_find_left_over(c->conn, outbox, left_over, c, &err))
		failed(c, &err);
}

static void check_outbox(struct check *c, const struct outbox_config *outbox)
{
	struct route *route;
	struct error err;

	if (!reader_check_settings(reader_driver_find(outbox->reader), outbox, &err) ||
	    !route_compile(outbox, &route, &err)) {
		c->settings_wrong = true;
		failed(c, &err);
		return;
	}
	check_session(c, outbox);
	check_table(c, outbox, route);
	for (size_t i = 0; i < outbox->n_sinks; i++)
		check_sink(c, &outbox->sinks[i], route);
	check_branches(c, outbox);
	route_free(route);
}

static const char *const level_names[] = { [FINDING_OK] = "ok", [FINDING_WARN] = "warn", [FINDING_FAIL] = "fail" };

static void count_levels(const struct finding_list *l, size_t counts[3])
{
	for (size_t i = 0; i < l->count; i++)
		counts[l->items[i].level]++;
}

static void print_text(const struct finding_list *l)
{
	size_t counts[3] = { 0 };

	for (size_t i = 0; i < l->count; i++) {
		printf("%-5s %s\n", level_names[l->items[i].level], l->items[i].what);
		if (l->items[i].fix)
			printf("      fix: %s\n", l->items[i].fix);
	}
	count_levels(l, counts);
	printf("%zu ok, %zu to look at, %zu failed\n", counts[FINDING_OK], counts[FINDING_WARN], counts[FINDING_FAIL]);
}

static void print_json(const struct finding_list *l)
{
	_cleanup_(buf_release) struct buf json = { 0 };

	buf_init(&json, JSON_CEILING);
	buf_printf(&json, "{\"ok\":%s,\"findings\":[", finding_any(l, FINDING_FAIL) ? "false" : "true");
	for (size_t i = 0; i < l->count; i++) {
		buf_printf(&json, "%s{\"level\":\"%s\",\"what\":", i ? "," : "", level_names[l->items[i].level]);
		buf_add_json(&json, slice_of(l->items[i].what));
		if (l->items[i].fix) {
			buf_add_str(&json, ",\"fix\":");
			buf_add_json(&json, slice_of(l->items[i].fix));
		}
		buf_add_char(&json, '}');
	}
	buf_add_str(&json, "]}");
	puts(buf_str(&json));
}

static int run(const struct cli *cli)
{
	_cleanup_(config_freep) struct config *config = NULL;
	_cleanup_(check_release) struct check c = { 0 };

	if (!cli_load_config(cli, false, &config))
		return CLI_SETTINGS;
	log_silence();
	c.config = config;
	check_settings(&c);
	check_database(&c);
	for (size_t i = 0; i < config->n_outboxes; i++)
		check_outbox(&c, &config->outboxes[i]);
	if (cli_value(cli, "json"))
		print_json(&c.findings);
	else
		print_text(&c.findings);
	if (c.settings_wrong)
		return CLI_SETTINGS;
	return finding_any(&c.findings, FINDING_FAIL) ? CLI_FAILED : CLI_OK;
}

static const struct cli_flag flags[] = {
	{ "json", 0, NULL, "one JSON object instead of text" },
	{ 0 },
};

const struct command command_check = {
	.name = "check",
	.summary = "find what is wrong, and how to mend it",
	.usage = "[--json]",
	.details =
		"Reads the settings, connects to the database and to every sink, and looks at each outbox:\n"
		"table, columns, types, privileges, order, indexes, trigger. Below each finding stands the\n"
		"SQL or the setting that mends it. Nothing is changed and nothing published.\n\n"
		"Exit code 0: the relay can run, though some findings may be worth a look; 1: it cannot.",
	.flags = flags,
	.run = run,
};
