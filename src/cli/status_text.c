#include "cli/status_text.h"

#include <stdlib.h>

#include "base/macros.h"
#include "base/mem.h"
#include "cli/text_table.h"
#include "pg/migrate.h"

static const char *count_cell(struct text_short *to, const PGresult *res, int row, int column)
{
	const char *value = cell(res, row, column);

	return value ? text_count(to, atoll(value)) : NULL;
}

/* Rows in a second, of the workers that have this value in this column. */
static const char *rate_cell(struct text_short *to, const struct rates *rates, int column, const char *value)
{
	int64_t rate = rates ? rates_of(rates, column, value) : -1;

	return rate >= 0 ? text_count(to, rate) : NULL;
}

/* Said, because of such a node nobody can tell whether it died. */
static void write_pooled(const PGresult *nodes, struct buf *out)
{
	for (int i = 0; i < PQntuples(nodes); i++)
		if (!cell(nodes, i, NODE_SESSION))
			buf_printf(out, "  node %s is behind a pooler: if it dies, what it holds is free when it expires\n",
				   cell(nodes, i, NODE_NUMBER));
}

static void write_nodes(const PGresult *nodes, const struct rates *rates, struct buf *out)
{
	static const struct text_column columns[] = {
		{ "node", true, 8 },     { "name", false, 24 },      { "version", false, 12 }, { "state", false, 6 },
		{ "started", false, 20 }, { "last beat", true, 10 }, { "workers", true, 7 },
		{ "rows/s", true, 9 },
	};
	_cleanup_(text_table_release) struct text_table t = { 0 };

	buf_add_str(out, "\nnodes\n");
	text_table_init(&t, columns, ARRAY_SIZE(columns) - !rates);
	for (int i = 0; i < PQntuples(nodes); i++) {
		int64_t age_ms = atoll(cell(nodes, i, NODE_HEARTBEAT_AGE_MS));
		struct text_short age, rate;
		_cleanup_(mem_freep) char *ago = mem_printf("%s ago", text_duration(&age, age_ms));

		text_table_add(&t, (const char *const[]){ cell(nodes, i, NODE_NUMBER), cell(nodes, i, NODE_NAME),
							  cell(nodes, i, NODE_VERSION), cell(nodes, i, NODE_STATE),
							  cell(nodes, i, NODE_STARTED_AT), ago,
							  cell(nodes, i, NODE_WORKERS),
							  rate_cell(&rate, rates, WORKER_NODE, cell(nodes, i, NODE_NUMBER)) });
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

static void add_outbox(struct text_table *t, const struct outbox_overview *o, const struct rates *rates)
{
	struct text_short pending, oldest, held, retry, rate;
	_cleanup_(mem_freep) char *more = mem_printf("more than %s", text_count(&pending, PENDING_MAX));
	_cleanup_(mem_freep) char *due = mem_printf("in %s", text_duration(&retry, MAX(o->retry_ms, 0)));
	bool failed = o->error.kind != ERROR_NONE;

	text_table_add(t, (const char *const[]){
				  o->config->name, o->config->table, o->config->reader,
				  failed ? NULL : o->more ? more : text_count(&pending, o->pending),
				  failed || o->oldest_ms < 0 ? NULL : text_duration(&oldest, o->oldest_ms),
				  failed ? NULL : text_count(&held, o->held),
				  failed || o->retry_ms < 0 ? NULL : o->retry_ms == 0 ? "now" : due,
				  rate_cell(&rate, rates, WORKER_OUTBOX, o->config->name) });
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

static void write_outboxes(const struct overview *view, const struct rates *rates, struct buf *out)
{
	static const struct text_column columns[] = {
		{ "outbox", false, 16 }, { "table", false, 20 },   { "reader", false, 11 },     { "pending", true, 17 },
		{ "oldest", true, 7 },   { "held", true, 6 },      { "next try", true, 9 },
		{ "rows/s", true, 9 },
	};
	_cleanup_(text_table_release) struct text_table t = { 0 };

	buf_add_str(out, "\noutboxes\n");
	text_table_init(&t, columns, ARRAY_SIZE(columns) - !rates);
	for (size_t i = 0; i < view->n_outboxes; i++)
		add_outbox(&t, &view->outboxes[i], rates);
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

static void write_schema(const struct overview *view, struct buf *out)
{
	buf_printf(out, "schema postrider: version %d", view->schema);
	if (view->schema != (int)n_migrations)
		buf_printf(out, "; this program knows up to %zu, which it still serves", n_migrations);
	buf_add_char(out, '\n');
}

void status_write(const struct overview *view, struct buf *out)
{
	write_schema(view, out);
	write_nodes(view->nodes, NULL, out);
	write_workers(view->workers, out);
	write_sinks(view->sinks, out);
	write_outboxes(view, NULL, out);
	write_slots(view->slots, out);
}

void status_write_live(const struct overview *view, const struct rates *rates, struct buf *out)
{
	write_outboxes(view, rates, out);
	write_sinks(view->sinks, out);
	write_slots(view->slots, out);
	write_nodes(view->nodes, rates, out);
	write_workers(view->workers, out);
}
