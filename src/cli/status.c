/* `postrider status`: who relays, what each worker holds, and what waits. */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/status_text.h"
#include "config/load.h"
#include "keep/overview.h"
#include "pg/conn.h"
#include "pg/migrate.h"

#define OUTPUT_CEILING ((size_t)64 << 20)

/* --- for programs --------------------------------------------------------------------------------------------- */

static void add_text(struct buf *out, const char *key, const char *value)
{
	buf_printf(out, ",\"%s\":", key);
	if (value)
		buf_add_json(out, slice_of(value));
	else
		buf_add_str(out, "null");
}

static void add_number(struct buf *out, const char *key, int64_t value)
{
	buf_printf(out, ",\"%s\":", key);
	if (value >= 0)
		buf_printf(out, "%lld", (long long)value);
	else
		buf_add_str(out, "null");
}

static void add_node_json(struct buf *out, const PGresult *nodes, int row)
{
	static const struct {
		const char *key;
		int column;
		bool text;
	} members[] = {
		{ "name", NODE_NAME, true },
		{ "version", NODE_VERSION, true },
		{ "schema", NODE_SCHEMA, false },
		{ "pid", NODE_PID, false },
		{ "state", NODE_STATE, true },
		{ "session", NODE_SESSION, true },
		{ "started_at", NODE_STARTED_AT, true },
		{ "heartbeat_at", NODE_HEARTBEAT_AT, true },
		{ "heartbeat_age_ms", NODE_HEARTBEAT_AGE_MS, false },
		{ "heartbeat_ms", NODE_HEARTBEAT_MS, false },
		{ "workers", NODE_WORKERS, false },
	};

	buf_printf(out, "%s{\"number\":%s", row ? "," : "", cell(nodes, row, NODE_NUMBER));
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		const char *value = cell(nodes, row, members[i].column);

		if (members[i].text)
			add_text(out, members[i].key, value);
		else
			buf_printf(out, ",\"%s\":%s", members[i].key, value);
	}
	buf_printf(out, ",\"outboxes\":%s,\"owns\":%s}", cell(nodes, row, NODE_OUTBOXES), cell(nodes, row, NODE_OWNS));
}

static void add_outbox_json(struct buf *out, const struct outbox_overview *o)
{
	bool failed = o->error.kind != ERROR_NONE;

	buf_add_str(out, "{\"name\":");
	buf_add_json(out, slice_of(o->config->name));
	add_text(out, "table", o->config->table);
	add_text(out, "reader", o->config->reader);
	add_number(out, "pending", failed ? -1 : o->pending);
	buf_printf(out, ",\"pending_exact\":%s", !failed && !o->more ? "true" : "false");
	add_number(out, "oldest_ms", failed ? -1 : o->oldest_ms);
	add_number(out, "scheduled", failed ? -1 : o->scheduled);
	add_number(out, "next_due_ms", failed ? -1 : o->next_due_ms);
	add_number(out, "held", failed ? -1 : o->held);
	add_number(out, "blocked", failed ? -1 : o->blocked);
	add_text(out, "next_try_at", o->retry_at);
	add_text(out, "paused_since", o->paused_since);
	add_text(out, "paused_by", o->paused_by);
	add_text(out, "error", failed ? o->error.message : NULL);
	buf_add_char(out, '}');
}

static void add_slot_json(struct buf *out, const PGresult *slots, int row)
{
	const char *bytes = cell(slots, row, SLOT_RETAINED_BYTES);

	buf_printf(out, "%s{\"table\":", row ? "," : "");
	buf_add_json(out, slice_of(cell(slots, row, SLOT_TABLE)));
	add_text(out, "slot", cell(slots, row, SLOT_NAME));
	add_text(out, "state", cell(slots, row, SLOT_STATE));
	add_number(out, "retained_bytes", bytes ? atoll(bytes) : -1);
	add_text(out, "wal_status", cell(slots, row, SLOT_WAL_STATUS));
	add_text(out, "confirmed", cell(slots, row, SLOT_CONFIRMED));
	add_number(out, "backlog", atoll(cell(slots, row, SLOT_BACKLOG)));
	add_number(out, "parked", atoll(cell(slots, row, SLOT_PARKED)));
	buf_add_char(out, '}');
}

static void write_json(const struct overview *view, struct buf *out)
{
	buf_printf(out, "{\"schema\":{\"version\":%d,\"known\":%zu},\"nodes\":[", view->schema, n_migrations);
	for (int i = 0; i < PQntuples(view->nodes); i++)
		add_node_json(out, view->nodes, i);
	buf_add_str(out, "],\"outboxes\":[");
	for (size_t i = 0; i < view->n_outboxes; i++) {
		buf_add_str(out, i ? "," : "");
		add_outbox_json(out, &view->outboxes[i]);
	}
	buf_add_str(out, "],\"slots\":[");
	for (int i = 0; i < PQntuples(view->slots); i++)
		add_slot_json(out, view->slots, i);
	buf_add_str(out, "]}\n");
}

/* --- the command ---------------------------------------------------------------------------------------------- */

static int run(const struct cli *cli)
{
	_cleanup_(config_freep) struct config *config = NULL;
	_cleanup_(pg_closep) PGconn *conn = NULL;
	_cleanup_(overview_release) struct overview view = { 0 };
	_cleanup_(buf_release) struct buf out = { 0 };
	struct error err = { 0 };

	if (!cli_load_config(cli, true, &config))
		return CLI_SETTINGS;
	log_silence();
	if (!pg_connect(&config->database, "status", -1, &conn, &err) || !overview_read(conn, config, &view, &err)) {
		cli_print_error(&err);
		return CLI_FAILED;
	}
	buf_init(&out, OUTPUT_CEILING);
	if (cli_value(cli, "json"))
		write_json(&view, &out);
	else
		status_write(&view, &out);
	fputs(buf_str(&out), stdout);
	for (size_t i = 0; i < view.n_outboxes; i++)
		if (view.outboxes[i].error.kind != ERROR_NONE)
			return CLI_FAILED;
	return CLI_OK;
}

static const struct cli_flag flags[] = {
	{ "json", 0, NULL, "one JSON object instead of text" },
	{ 0 },
};

const struct command command_status = {
	.name = "status",
	.summary = "show nodes, workers and what waits",
	.usage = "[--json]",
	.details =
		"Shows every node that relays from this database, also those of other machines and versions;\n"
		"what each of their workers holds and has done, and which sinks are away, as of the last\n"
		"heartbeat; for each outbox of the settings the rows that wait, the age of the first, and the\n"
		"entities that are held back;\n"
		"and replication slots of the reader wal, with the log that the server keeps for them.\n"
		"Reads only, and counts no more than 100,000 rows of an outbox.\n\n"
		"Exit code 0: shown, whether nodes run or not; 1: the database or a table could not be read.",
	.flags = flags,
	.run = run,
};
