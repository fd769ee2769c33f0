/* `postrider explain`: why a row is not out yet. */
#include <stdio.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/propose.h"
#include "cli/steering.h"
#include "steer/explain.h"

#define OUTPUT_CEILING ((size_t)1 << 20)

static void write_text(const struct explanation *e, struct buf *out)
{
	buf_printf(out, "%s\n", e->reasons[0].sentence);
	for (uint32_t i = 1; i < e->n_reasons; i++)
		buf_printf(out, "also: %s\n", e->reasons[i].sentence);
	buf_add_str(out, e->n_facts > 0 ? "\n" : "");
	for (uint32_t i = 0; i < e->n_facts; i++)
		buf_printf(out, "  %-29s %s\n", e->facts[i].key, e->facts[i].text);
}

/* Programs have no blanks in their names. */
static void add_fact(struct buf *out, const struct fact *f)
{
	_cleanup_(mem_freep) char *key = mem_strdup(f->key);

	for (char *c = key; *c; c++)
		*c = *c == ' ' ? '_' : *c;
	steering_add_text(out, key, f->text);
}

static void write_json(const struct target *t, const char *name, const struct explanation *e, struct buf *out)
{
	buf_add_char(out, '{');
	steering_add_text(out, "outbox", t->config->name);
	steering_add_text(out, e->is_row ? "row" : "entity", name);
	steering_add_text(out, "state", e->reasons[0].state);
	steering_add_text(out, "because", e->reasons[0].sentence);
	buf_add_str(out, ",\"also\":[");
	for (uint32_t i = 1; i < e->n_reasons; i++) {
		buf_add_str(out, i > 1 ? ",{" : "{");
		steering_add_text(out, "state", e->reasons[i].state);
		steering_add_text(out, "because", e->reasons[i].sentence);
		buf_add_char(out, '}');
	}
	buf_add_str(out, "],\"facts\":{");
	for (uint32_t i = 0; i < e->n_facts; i++)
		add_fact(out, &e->facts[i]);
	buf_add_str(out, "}}\n");
}

static int run(const struct cli *cli)
{
	_cleanup_(steering_release) struct steering s = { 0 };
	_cleanup_(explanation_release) struct explanation e = { 0 };
	_cleanup_(buf_release) struct buf out = { 0 };
	const char *outbox = cli_value(cli, "outbox"), *row = cli_value(cli, "id"), *entity = cli_value(cli, "entity");
	enum explain_what what = row ? EXPLAIN_ROW : entity ? EXPLAIN_ENTITY : EXPLAIN_EITHER;
	const char *name = row ? row : entity ? entity : cli->n_operands > 0 ? cli->operands[0] : NULL;
	struct error err = { 0 };
	int code;

	if (!name || (row != NULL) + (entity != NULL) + cli->n_operands != 1)
		return steering_wrong(cli, "say what to explain: the id of a row, or an entity");
	code = steering_open(&s, cli, &outbox, outbox ? 1 : 0, STEER_ONE);
	if (code != CLI_OK)
		return code;
	if (!explain(s.conn, &s.targets[0], name, what, &e, &err)) {
		cli_print_error(&err);
		return CLI_FAILED;
	}
	buf_init(&out, OUTPUT_CEILING);
	if (cli_value(cli, "json"))
		write_json(&s.targets[0], name, &e, &out);
	else
		write_text(&e, &out);
	fputs(buf_str(&out), stdout);
	return CLI_OK;
}

static const struct cli_flag flags[] = {
	{ "outbox", 0, "NAME", "the outbox; may be left out where the settings have one", propose_outboxes },
	{ "id", 0, "ID", "a row, even if an entity is called the same" },
	{ "entity", 0, "ENTITY", "an entity, even if a row is called the same" },
	{ "json", 0, NULL, "one JSON object instead of text" },
	{ 0 },
};

const struct command command_explain = {
	.name = "explain",
	.summary = "say why a row or an entity is not out yet",
	.usage = "ID|ENTITY [--outbox NAME] [--json]",
	.details =
		"The first line says why; then come further reasons, and what is known besides. Reads only.\n"
		"A transaction that has not committed cannot be seen by anybody else, and so not by this command.\n\n"
		"JSON: {\"outbox\", \"row\" or \"entity\", \"state\", \"because\", \"also\" (a list of \"state\" and \"because\"),\n"
		"\"facts\"}. States: published, dead, not_there, nothing_waits, no_entity, parked, blocked, scheduled, held_back,\n"
		"paused, no_node, nodes_silent, no_slot, slot_lost, no_worker, sink_away, slot_idle, in_flight, due, waiting.\n\n"
		"Exit code 0: explained, whatever the reason is; 1: the database failed.",
	.flags = flags,
	.max_operands = 1,
	.run = run,
};
