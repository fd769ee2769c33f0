/* `postrider pause` and `postrider resume`: stop claiming rows of an outbox on all nodes, and go on. */
#include <stdio.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/propose.h"
#include "cli/steering.h"
#include "steer/pause.h"

enum { PATIENCE_MS = 5000 };
#define OUTPUT_CEILING ((size_t)1 << 20)

/* What became of one outbox. */
struct paused {
	bool changed;
	PGresult *behind;               /* nodes that have not answered */
	int64_t in_flight;
};

static void write_text(const struct target *t, bool paused, const struct paused *p)
{
	printf("outbox %s is %s%s\n", t->config->name, p->changed ? "" : "already ", paused ? "paused" : "running");
	if (paused && p->in_flight > 0)
		printf("  %lld rows were on their way: these are published and settled\n", (long long)p->in_flight);
	for (int i = 0; i < PQntuples(p->behind); i++)
		fprintf(stderr, "postrider: node %s (%s) has not answered yet; it will when it reaches the database, unless its"
			" version knows nothing of pauses\n", PQgetvalue(p->behind, i, PAUSE_NODE_NUMBER),
			PQgetvalue(p->behind, i, PAUSE_NODE_NAME));
}

static void add_json(struct buf *out, const struct target *t, bool paused, const struct paused *p)
{
	buf_add_str(out, out->data[out->len - 1] == '[' ? "{" : ",{");
	steering_add_text(out, "outbox", t->config->name);
	buf_printf(out, ",\"paused\":%s,\"changed\":%s", paused ? "true" : "false", p->changed ? "true" : "false");
	steering_add_number(out, "rows_on_their_way", p->in_flight);
	buf_add_str(out, ",\"nodes_behind\":[");
	for (int i = 0; i < PQntuples(p->behind); i++)
		buf_printf(out, "%s%s", i ? "," : "", PQgetvalue(p->behind, i, PAUSE_NODE_NUMBER));
	buf_add_str(out, "]}");
}

/* All are told before any is waited for. */
static bool set_all(struct steering *s, bool paused, const char *by, struct paused *results, struct error *err)
{
	for (size_t i = 0; i < s->n_targets; i++)
		if (!pause_set(s->conn, &s->targets[i], paused, by, &results[i].changed, err))
			return false;
	for (size_t i = 0; i < s->n_targets; i++)
		if (!pause_await(s->conn, &s->targets[i], paused, PATIENCE_MS, &results[i].behind, err) ||
		    !pause_in_flight(s->conn, &s->targets[i], &results[i].in_flight, err))
			return false;
	return true;
}

static int show(const struct cli *cli, const struct steering *s, bool paused, const struct paused *results)
{
	_cleanup_(buf_release) struct buf out = { 0 };
	int code = CLI_OK;

	buf_init(&out, OUTPUT_CEILING);
	buf_add_str(&out, "{\"outboxes\":[");
	for (size_t i = 0; i < s->n_targets; i++) {
		if (PQntuples(results[i].behind) > 0)
			code = CLI_FAILED;
		if (cli_value(cli, "json"))
			add_json(&out, &s->targets[i], paused, &results[i]);
		else
			write_text(&s->targets[i], paused, &results[i]);
	}
	if (cli_value(cli, "json"))
		printf("%s]}\n", buf_str(&out));
	return code;
}

static int set(const struct cli *cli, bool paused)
{
	_cleanup_(steering_release) struct steering s = { 0 };
	_cleanup_(mem_freep) char *by = steering_who();
	_cleanup_(mem_freep) struct paused *results = NULL;
	struct error err = { 0 };
	bool done;
	int code;

	if (cli->n_operands == 0 && !cli_value(cli, "all"))
		return steering_wrong(cli, "say which outbox to %s, or --all", cli->command->name);
	if (cli->n_operands > 0 && cli_value(cli, "all"))
		return steering_wrong(cli, "--all goes without names of outboxes");
	code = steering_open(&s, cli, cli->operands, (size_t)cli->n_operands, STEER_SOME);
	if (code != CLI_OK)
		return code;
	results = mem_new_array(struct paused, s.n_targets);
	done = set_all(&s, paused, by, results, &err);
	if (done)
		code = show(cli, &s, paused, results);
	else
		cli_print_error(&err);
	for (size_t i = 0; i < s.n_targets; i++)
		PQclear(results[i].behind);
	return done ? code : CLI_FAILED;
}

static int run_pause(const struct cli *cli)
{
	return set(cli, true);
}

static int run_resume(const struct cli *cli)
{
	return set(cli, false);
}

static const struct cli_flag flags[] = {
	{ "all", 0, NULL, "all outboxes of the settings" },
	{ "json", 0, NULL, "one JSON object instead of text" },
	{ 0 },
};

const struct command command_pause = {
	.name = "pause",
	.summary = "stop relaying an outbox on all nodes",
	.usage = "OUTBOX... | --all [--json]",
	.details = "All nodes stop claiming rows of these outboxes, within a second. What is on its way is published and\n"
		   "settled, claims are given back, and rows that come meanwhile wait in the table. It lasts until `postrider\n"
		   "resume`, also over restarts. Returns when all nodes that live have said that they know.\n\n"
		   "With the reader wal the server keeps its log for as long: see wal.budget.\n\n"
		   "JSON: {\"outboxes\":[{\"outbox\", \"paused\", \"changed\" (false: it was so before), \"rows_on_their_way\",\n"
		   "\"nodes_behind\" (numbers of nodes that have not answered)}]}.\n\n"
		   "Exit code 0: all nodes know; 1: the database failed, or a node has not answered within 5 s (then it is\n"
		   "paused all the same, and the node learns of it when it reaches the database).",
	.flags = flags,
	.max_operands = 64,
	.propose = propose_outboxes,
	.run = run_pause,
};

const struct command command_resume = {
	.name = "resume",
	.summary = "go on with an outbox that was paused",
	.usage = "OUTBOX... | --all [--json]",
	.details = "All nodes claim rows of these outboxes again, within a second. Output and exit codes are those of\n"
		   "`postrider pause`.",
	.flags = flags,
	.max_operands = 64,
	.propose = propose_outboxes,
	.run = run_resume,
};
