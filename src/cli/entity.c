/* `postrider entity`: what holds an entity back, and letting it go or putting it aside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "cli/propose.h"
#include "cli/steering.h"
#include "cli/text_table.h"
#include "steer/entity.h"
#include "steer/holder.h"

#define OUTPUT_CEILING ((size_t)1 << 20)

/* --- show ----------------------------------------------------------------------------------------------------------- */

static void write_entry(const PGresult *entry, struct buf *out)
{
	const char *blocked = steering_value(entry, 0, ENTRY_BLOCKED_AT), *row = steering_value(entry, 0, ENTRY_ROW);

	if (PQgetvalue(entry, 0, ENTRY_PARKED)[0] == 't') {
		buf_printf(out, "  state     parked since %s: %s\n", blocked, PQgetvalue(entry, 0, ENTRY_ERROR));
		return;
	}
	if (blocked)
		buf_printf(out, "  state     blocked since %s\n", blocked);
	else if (atoll(PQgetvalue(entry, 0, ENTRY_RETRY_MS)) > 0)
		buf_printf(out, "  state     held back; tried again at %s\n", PQgetvalue(entry, 0, ENTRY_RETRY_AT));
	else
		buf_add_str(out, "  state     due to be tried again\n");
	if (!row)
		return;
	buf_printf(out, "  behind    row %s, refused %s times, first at %s, last at %s\n", row,
		   PQgetvalue(entry, 0, ENTRY_ATTEMPTS), PQgetvalue(entry, 0, ENTRY_FIRST_FAILED_AT),
		   PQgetvalue(entry, 0, ENTRY_LAST_FAILED_AT));
	buf_printf(out, "  error     %s (%s)\n", PQgetvalue(entry, 0, ENTRY_ERROR), PQgetvalue(entry, 0, ENTRY_KIND));
}

static void write_count(struct buf *out, const char *title, int64_t n, int64_t max)
{
	struct text_short count;

	buf_printf(out, "  %-9s %s%s", title, n >= max ? "at least " : "", text_count(&count, n));
}

static void write_text(const struct target *t, const char *name, const struct entity *e, struct buf *out)
{
	buf_printf(out, "entity %s of outbox %s\n", name, t->config->name);
	if (PQntuples(e->entry) > 0)
		write_entry(e->entry, out);
	else
		buf_add_str(out, "  state     nothing holds it back\n");
	write_count(out, "rows", e->waiting, ENTITY_ROWS_MAX);
	buf_printf(out, " waiting%s%s\n", e->first ? ", the first is row " : "", e->first ? e->first : "");
	if (t->driver->rings_itself) {
		write_count(out, "aside", e->put_aside, ENTITY_ROWS_MAX);
		buf_add_str(out, " events\n");
	}
	write_count(out, "dead", e->dead, INT64_MAX);
	buf_add_str(out, " letters\n");
	if (PQntuples(e->holders) == 0)
		buf_add_str(out, "  held by   nobody\n");
	for (int i = 0; i < PQntuples(e->holders); i++) {
		const char *until = steering_value(e->holders, i, HOLDER_UNTIL), *shard = steering_value(e->holders, i, HOLDER_SHARD);

		buf_add_str(out, "  held by   ");
		holder_describe(e->holders, i, out);
		buf_printf(out, " (%s%s%s%s%s)\n", PQgetvalue(e->holders, i, HOLDER_BY), shard ? " " : "", shard ? shard : "",
			   until ? " until " : "", until ? until : "");
	}
}

/* A table of members: key, column, whether it is text. */
struct member {
	const char *key;
	int column;
	bool text;
};

static void add_members(struct buf *out, const struct member *members, size_t n, const PGresult *res, int row)
{
	buf_add_char(out, '{');
	for (size_t i = 0; i < n; i++) {
		const char *value = steering_value(res, row, members[i].column);

		if (members[i].text || !value)
			steering_add_text(out, members[i].key, value);
		else
			steering_add_number(out, members[i].key, atoll(value));
	}
	buf_add_char(out, '}');
}

static void write_json(const struct target *t, const char *name, const struct entity *e, struct buf *out)
{
	static const struct member of_entry[] = {
		{ "row", ENTRY_ROW, true },
		{ "attempts", ENTRY_ATTEMPTS, false },
		{ "kind", ENTRY_KIND, true },
		{ "error", ENTRY_ERROR, true },
		{ "first_failed_at", ENTRY_FIRST_FAILED_AT, true },
		{ "last_failed_at", ENTRY_LAST_FAILED_AT, true },
		{ "retry_at", ENTRY_RETRY_AT, true },
		{ "blocked_at", ENTRY_BLOCKED_AT, true },
	};
	static const struct member of_holder[] = {
		{ "by", HOLDER_BY, true },         { "session", HOLDER_PID, false }, { "application", HOLDER_APPLICATION, true },
		{ "client", HOLDER_CLIENT, true }, { "node", HOLDER_NODE, false },   { "name", HOLDER_NAME, true },
		{ "worker", HOLDER_WORKER, false }, { "until", HOLDER_UNTIL, true }, { "shard", HOLDER_SHARD, false },
	};
	bool entry = PQntuples(e->entry) > 0;
	const char *state = !entry ? "free" : PQgetvalue(e->entry, 0, ENTRY_PARKED)[0] == 't' ? "parked" :
			    steering_value(e->entry, 0, ENTRY_BLOCKED_AT) ? "blocked" : "held_back";

	buf_add_char(out, '{');
	steering_add_text(out, "outbox", t->config->name);
	steering_add_text(out, "entity", name);
	steering_add_text(out, "state", state);
	buf_add_str(out, ",\"held\":");
	if (entry)
		add_members(out, of_entry, ARRAY_SIZE(of_entry), e->entry, 0);
	else
		buf_add_str(out, "null");
	steering_add_number(out, "rows", e->waiting);
	steering_add_text(out, "first_row", e->first);
	steering_add_number(out, "put_aside", e->put_aside);
	steering_add_number(out, "dead_letters", e->dead);
	buf_add_str(out, ",\"holders\":[");
	for (int i = 0; i < PQntuples(e->holders); i++) {
		buf_add_str(out, i ? "," : "");
		add_members(out, of_holder, ARRAY_SIZE(of_holder), e->holders, i);
	}
	buf_add_str(out, "]}\n");
}

static bool show(const struct cli *cli, struct steering *s, const char *name, struct error *err)
{
	_cleanup_(entity_release) struct entity e = { 0 };
	_cleanup_(buf_release) struct buf out = { 0 };

	if (!entity_read(s->conn, &s->targets[0], name, &e, err))
		return false;
	buf_init(&out, OUTPUT_CEILING);
	if (cli_value(cli, "json"))
		write_json(&s->targets[0], name, &e, &out);
	else
		write_text(&s->targets[0], name, &e, &out);
	fputs(buf_str(&out), stdout);
	return true;
}

/* --- unblock and park ------------------------------------------------------------------------------------------------- */

static void say(const struct cli *cli, const struct target *t, const char *name, const char *state, const char *sentence,
		bool changed)
{
	_cleanup_(buf_release) struct buf out = { 0 };

	if (!cli_value(cli, "json")) {
		printf("entity %s of outbox %s %s\n", name, t->config->name, sentence);
		return;
	}
	buf_init(&out, OUTPUT_CEILING);
	buf_add_char(&out, '{');
	steering_add_text(&out, "outbox", t->config->name);
	steering_add_text(&out, "entity", name);
	steering_add_text(&out, "state", state);
	printf("%s,\"changed\":%s}\n", buf_str(&out), changed ? "true" : "false");
}

static bool unblock(const struct cli *cli, struct steering *s, const char *name, struct error *err)
{
	bool found;

	if (!entity_unblock(s->conn, &s->targets[0], name, &found, err))
		return false;
	say(cli, &s->targets[0], name, "free", found ? "is tried again at once" : "was not held back", found);
	return true;
}

static bool park(const struct cli *cli, struct steering *s, const char *name, struct error *err)
{
	const char *given = cli_value(cli, "reason");
	_cleanup_(mem_freep) char *who = steering_who();
	_cleanup_(mem_freep) char *reason = mem_printf("by %s%s%s", who, given && given[0] ? ": " : "", given ? given : "");

	if (!entity_park(s->conn, &s->targets[0], name, reason, err))
		return false;
	say(cli, &s->targets[0], name, "parked", "is parked; `postrider entity unblock` lets it go on", true);
	return true;
}

/* --- the command ------------------------------------------------------------------------------------------------------ */

static const struct {
	const char *word;
	bool (*act)(const struct cli *cli, struct steering *s, const char *name, struct error *err);
} actions[] = {
	{ "show", show },
	{ "unblock", unblock },
	{ "park", park },
};

static int run(const struct cli *cli)
{
	_cleanup_(steering_release) struct steering s = { 0 };
	const char *outbox = cli_value(cli, "outbox");
	struct error err = { 0 };
	size_t action = 0;
	int code;

	if (cli->n_operands < 2)
		return steering_wrong(cli, "say what to do with which entity: show, unblock or park, and its name");
	while (action < ARRAY_SIZE(actions) && strcmp(actions[action].word, cli->operands[0]) != 0)
		action++;
	if (action == ARRAY_SIZE(actions))
		return steering_wrong(cli, "entity cannot %s: it can show, unblock and park", cli->operands[0]);
	if (cli_value(cli, "reason") && actions[action].act != park)
		return steering_wrong(cli, "--reason goes with park only");
	code = steering_open(&s, cli, &outbox, outbox ? 1 : 0, STEER_ONE);
	if (code != CLI_OK)
		return code;
	if (actions[action].act(cli, &s, cli->operands[1], &err))
		return CLI_OK;
	cli_print_error(&err);
	return CLI_FAILED;
}

static void propose_actions(struct proposals *p)
{
	for (size_t i = 0; p->cli->n_operands == 0 && i < ARRAY_SIZE(actions); i++)
		propose_word(p, actions[i].word, NULL);
}

static const struct cli_flag flags[] = {
	{ "outbox", 0, "NAME", "the outbox; may be left out where the settings have one", propose_outboxes },
	{ "reason", 0, "TEXT", "of park: why, for those who find it" },
	{ "json", 0, NULL, "one JSON object instead of text" },
	{ 0 },
};

const struct command command_entity = {
	.name = "entity",
	.summary = "show an entity, let it go, or put it aside",
	.usage = "show|unblock|park ENTITY [--outbox NAME] [--reason TEXT] [--json]",
	.details =
		"show     what holds it back: the row that was refused, how often and why, when it is tried again; how many\n"
		"         rows wait behind it; its dead letters; and who has it at the moment.\n"
		"unblock  it is tried again at once, and attempts are counted anew. Also ends a park.\n"
		"park     no node publishes rows of it until `unblock`. Rows that are on their way finish; those that follow wait,\n"
		"         and go out in order later. Not in an outbox without order, where rows stand for themselves.\n\n"
		"Where an outbox keeps no order, the name is the id of a row.\n\n"
		"JSON of show: {\"outbox\", \"entity\", \"state\" (free, held_back, blocked, parked), \"held\" (null, or \"row\",\n"
		"\"attempts\", \"kind\", \"error\", times), \"rows\", \"first_row\", \"put_aside\", \"dead_letters\", \"holders\"}; of the\n"
		"others: {\"outbox\", \"entity\", \"state\", \"changed\"}.\n\n"
		"Exit code 0: done, also when nothing held it back; 1: the database failed, or it cannot be done.",
	.flags = flags,
	.max_operands = 2,
	.propose = propose_actions,
	.run = run,
};
