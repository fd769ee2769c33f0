/* `postrider status`: who relays, what each worker holds, and what waits. */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/text_table.h"
#include "config/load.h"
#include "keep/overview.h"
#include "pg/conn.h"
#include "pg/migrate.h"

#define OUTPUT_CEILING ((size_t)64 << 20)

static const char *cell(const PGresult *res, int row, int column)
{
	return PQgetisnull(res, row, column) ? NULL : PQgetvalue(res, row, column);
}

/* --- for people ----------------------------------------------------------------------------------------------- */

static const char *count_cell(struct text_short *to, const PGresult *res, int row, int column)
{
	const char *value = cell(res, row, column);

	return value ? text_count(to, atoll(value)) : NULL;
}

/* Said, because of such a node nobody can tell whether it died. */
static void write_pooled(const PGresult *nodes, struct buf *out)
{
	for (int i = 0; i < PQntuples(nodes); i++)
		if (!cell(nodes, i, NODE_SESSION))
			buf_printf(out, "  node %s is behind a pooler: if it dies, what it holds is free when it expires\n",
				   cell(nodes, i, NODE_NUMBER));
}

static void write_nodes(const PGresult *nodes, struct buf *out)
{
	static const struct text_column columns[] = {
		{ "node", true, 8 },     { "name", false, 24 },      { "version", false, 12 }, { "state", false, 6 },
		{ "started", false, 20 }, { "last beat", true, 10 }, { "workers", true, 7 },
	};
	_cleanup_(text_table_release) struct text_table t = { 0 };

	buf_add_str(out, "\nnodes\n");
	text_table_init(&t, columns, ARRAY_SIZE(columns));
	for (int i = 0; i < PQntuples(nodes); i++) {
		int64_t age_ms = atoll(cell(nodes, i, NODE_HEARTBEAT_AGE_MS));
		struct text_short age;
		_cleanup_(mem_freep) char *ago = mem_printf("%s ago", text_duration(&age, age_ms));

		text_table_add(&t, (const char *const[]){ cell(nodes, i, NODE_NUMBER), cell(nodes, i, NODE_NAME),
							  cell(nodes, i, NODE_VERSION), cell(nodes, i, NODE_STATE),
							  cell(nodes, i, NODE_STARTED_AT), ago,
							  cell(nodes, i, NODE_WORKERS) });
	}
	if (PQntuples(nodes) > 0)
		text_table_write(&t, out);
	else
		buf_add_str(out, "  none: no relay runs\n");
	write_pooled(nodes, out);
}

/* One line for each worker that says what keeps it away. */
static void write_errors(const PGresult *workers, struct buf *out)
{
	for (int i = 0; i < PQntuples(workers); i++) {
		if (!cell(workers, i, WORKER_ERROR))
			continue;
		buf_printf(out, "  worker %s of %s on node %s: %s\n", cell(workers, i, WORKER_NUMBER),
			   cell(workers, i, WORKER_OUTBOX), cell(workers, i, WORKER_NODE), cell(workers, i, WORKER_ERROR));
	}
}

/* One line for each sink that cannot be reached. */
static void write_sinks(const PGresult *sinks, struct buf *out)
{
	if (PQntuples(sinks) > 0)
		buf_add_str(out, "\nsinks that are away\n");
	for (int i = 0; i < PQntuples(sinks); i++)
		buf_printf(out, "  sink %s of %s on node %s: away since %s: %s\n", cell(sinks, i, SINK_NAME),
			   cell(sinks, i, SINK_OUTBOX), cell(sinks, i, SINK_NODE), cell(sinks, i, SINK_SINCE),
			   cell(sinks, i, SINK_REASON));
}

static const char *link_state(const PGresult *workers, int row)
{
	const char *connected = cell(workers, row, WORKER_CONNECTED), *condition = cell(workers, row, WORKER_CONDITION);

	if (!connected)
		return NULL;
	return connected[0] != 't' ? "down" : condition ? condition : "up";
}

static void write_workers(const PGresult *workers, struct buf *out)
{
	static const struct text_column columns[] = {
		{ "node", true, 8 },     { "outbox", false, 12 }, { "worker", true, 6 }, { "link", false, 7 },
		{ "entities", true, 8 }, { "owns", true, 6 },     { "rows", true, 7 },   { "settled", true, 7 },
		{ "claims", true, 7 },   { "empty", true, 7 },    { "lost", true, 7 },   { "claiming", true, 8 },
	};
	_cleanup_(text_table_release) struct text_table t = { 0 };

	if (PQntuples(workers) == 0)
		return;
	buf_add_str(out, "\nworkers\n");
	text_table_init(&t, columns, ARRAY_SIZE(columns));
	for (int i = 0; i < PQntuples(workers); i++) {
		struct text_short entities, owns, rows, settled, claims, empty, lost, claiming;
		const char *claim_ms = cell(workers, i, WORKER_CLAIM_MS);

		text_table_add(&t, (const char *const[]){
					   cell(workers, i, WORKER_NODE), cell(workers, i, WORKER_OUTBOX),
					   cell(workers, i, WORKER_NUMBER),
					   link_state(workers, i),
					   count_cell(&entities, workers, i, WORKER_ENTITIES),
					   count_cell(&owns, workers, i, WORKER_OWNS),
					   count_cell(&rows, workers, i, WORKER_ROWS),
					   count_cell(&settled, workers, i, WORKER_SETTLED),
					   count_cell(&claims, workers, i, WORKER_CLAIMS),
					   count_cell(&empty, workers, i, WORKER_EMPTY_CLAIMS),
					   count_cell(&lost, workers, i, WORKER_LOST),
					   claim_ms ? text_duration(&claiming, atoll(claim_ms)) : NULL });
	}
	text_table_write(&t, out);
	write_errors(workers, out);
}

static void add_outbox(struct text_table *t, const struct outbox_overview *o)
{
	struct text_short pending, oldest, held, retry;
	_cleanup_(mem_freep) char *more = mem_printf("more than %s", text_count(&pending, PENDING_MAX));
	_cleanup_(mem_freep) char *due = mem_printf("in %s", text_duration(&retry, MAX(o->retry_ms, 0)));
	bool failed = o->error.kind != ERROR_NONE;

	text_table_add(t, (const char *const[]){
				  o->config->name, o->config->table, o->config->reader,
				  failed ? NULL : o->more ? more : text_count(&pending, o->pending),
				  failed || o->oldest_ms < 0 ? NULL : text_duration(&oldest, o->oldest_ms),
				  failed ? NULL : text_count(&held, o->held),
				  failed || o->retry_ms < 0 ? NULL : o->retry_ms == 0 ? "now" : due });
}

/* Mostly there are none, and no column for them. */
static void write_scheduled(const struct outbox_overview *o, struct buf *out)
{
	struct text_short count, due;

	if (o->error.kind != ERROR_NONE || o->scheduled == 0)
		return;
	buf_printf(out, "  %s: %s%s scheduled for later", o->config->name, text_count(&count, o->scheduled),
		   o->scheduled == PENDING_MAX ? " or more" : "");
	if (o->next_due_ms >= 0)
		buf_printf(out, ", the next in %s", text_duration(&due, o->next_due_ms));
	buf_add_char(out, '\n');
}

static void write_outboxes(const struct overview *view, struct buf *out)
{
	static const struct text_column columns[] = {
		{ "outbox", false, 16 }, { "table", false, 20 },   { "reader", false, 11 },     { "pending", true, 17 },
		{ "oldest", true, 7 },   { "held", true, 6 },      { "next try", true, 9 },
	};
	_cleanup_(text_table_release) struct text_table t = { 0 };

	buf_add_str(out, "\noutboxes\n");
	text_table_init(&t, columns, ARRAY_SIZE(columns));
	for (size_t i = 0; i < view->n_outboxes; i++)
		add_outbox(&t, &view->outboxes[i]);
	text_table_write(&t, out);
	for (size_t i = 0; i < view->n_outboxes; i++)
		write_scheduled(&view->outboxes[i], out);
	for (size_t i = 0; i < view->n_outboxes; i++) {
		const struct outbox_overview *o = &view->outboxes[i];

		if (o->error.kind != ERROR_NONE)
			buf_printf(out, "  %s: %s\n", o->config->name, o->error.message);
		if (o->blocked > 0)
			buf_printf(out, "  %s: %lld of the entities that are held back are blocked or parked\n", o->config->name,
				   (long long)o->blocked);
		if (o->paused_since)
			buf_printf(out, "  %s: paused since %s by %s\n", o->config->name, o->paused_since, o->paused_by);
	}
}

static void write_slots(const PGresult *slots, struct buf *out)
{
	static const struct text_column columns[] = {
		{ "table", false, 20 },    { "slot", false, 20 },   { "state", false, 6 },    { "log kept", true, 12 },
		{ "server says", false, 11 }, { "backlog", true, 8 }, { "parked", true, 8 },
	};
	_cleanup_(text_table_release) struct text_table t = { 0 };

	if (PQntuples(slots) == 0)
		return;
	buf_add_str(out, "\nreplication slots\n");
	text_table_init(&t, columns, ARRAY_SIZE(columns));
	for (int i = 0; i < PQntuples(slots); i++) {
		const char *bytes = cell(slots, i, SLOT_RETAINED_BYTES);
		_cleanup_(mem_freep) char *kept = bytes ? mem_printf("%.1f MiB", atof(bytes) / (1 << 20)) : NULL;
		struct text_short backlog, parked;

		text_table_add(&t, (const char *const[]){ cell(slots, i, SLOT_TABLE), cell(slots, i, SLOT_NAME),
							  cell(slots, i, SLOT_STATE), kept, cell(slots, i, SLOT_WAL_STATUS),
							  count_cell(&backlog, slots, i, SLOT_BACKLOG),
							  count_cell(&parked, slots, i, SLOT_PARKED) });
	}
	text_table_write(&t, out);
}

static void write_text(const struct overview *view, struct buf *out)
{
	buf_printf(out, "schema postrider: version %d", view->schema);
	if (view->schema != (int)n_migrations)
		buf_printf(out, "; this program knows up to %zu, which it still serves", n_migrations);
	buf_add_char(out, '\n');
	write_nodes(view->nodes, out);
	write_workers(view->workers, out);
	write_sinks(view->sinks, out);
	write_outboxes(view, out);
	write_slots(view->slots, out);
}

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
		write_text(&view, &out);
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
