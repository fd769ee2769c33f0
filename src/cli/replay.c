/* `postrider replay`: publishes again what was published before. */
#include "cli/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/propose.h"
#include "cli/text_table.h"
#include "config/load.h"
#include "config/units.h"
#include "pg/conn.h"
#include "relay/rfc3339.h"
#include "relay/route.h"
#include "verify/moment.h"

#define OUTPUT_CEILING ((size_t)64 << 20)
#define LIST_CEILING ((size_t)16 << 20)

enum {
	RATE_MAX = 1000000,
	PROGRESS_EVERY_MS = 200,
	STATEMENT_MS = 10 * 60 * 1000,  /* a page without an index takes its time, and nobody waits for it */
};

struct replay_job {
	const struct cli *cli;
	const struct config *config;
	struct database_config database;
	struct outbox_config outbox;            /* as a replay wants it */
	enum history_source source;
	int64_t rate, limit;

	struct moment since, until, now;
	char *first_id, *last_id;
	struct buf entities, types;
	struct history_filter filter;
	struct arena arena;                     /* for the times as messages write them */
	char *time, *since_text, *until_text;

	struct history *history;
	struct history_size size;
	struct replay replay;
	struct replay_report report;
	int64_t began_ms, told_ms;
};

static void release(struct replay_job *c)
{
	if (c->report.ran)
		replay_release(&c->replay);
	history_free(c->history);
	moment_release(&c->since);
	moment_release(&c->until);
	moment_release(&c->now);
	free(c->first_id);
	free(c->last_id);
	buf_release(&c->entities);
	buf_release(&c->types);
	free(c->time);
	free(c->since_text);
	free(c->until_text);
	arena_release(&c->arena);
}

/* --- the command line ----------------------------------------------------------------------------------------- */

static bool wrong(const char *what)
{
	fprintf(stderr, "postrider: %s\nTry `postrider help replay`.\n", what);
	return false;
}

static bool choose_outbox(struct replay_job *c)
{
	const char *name = cli_value(c->cli, "outbox");
	const struct outbox_config *found = NULL;

	for (size_t i = 0; i < c->config->n_outboxes && !found; i++)
		if (!name || strcmp(c->config->outboxes[i].name, name) == 0)
			found = &c->config->outboxes[i];
	if (!name && c->config->n_outboxes > 1)
		return wrong("the settings have several outboxes: say which one with --outbox");
	if (!found)
		return wrong("the settings have no such outbox as --outbox says");
	if (found->n_branches > 0)
		return wrong("this outbox has branches, and its rows were not published from here: replay a branch, such as --outbox NAME.BRANCH");
	replayer_settings(found, cli_value(c->cli, "topic"), &c->outbox);
	return true;
}

/* "A-B", "A-", "-B" or "A"; "A..B" for ids that have dashes themselves. */
static bool read_ids(struct replay_job *c, const char *text)
{
	const char *dots = text ? strstr(text, "..") : NULL, *dash = text ? strchr(text, '-') : NULL;
	const char *middle = dots ? dots : dash && dash == strrchr(text, '-') ? dash : NULL;
	const char *rest;

	if (!text)
		return true;
	rest = middle ? middle + (dots ? 2 : 1) : text;
	if (!middle || middle > text)
		c->first_id = mem_strndup(text, middle ? (size_t)(middle - text) : strlen(text));
	if (*rest)
		c->last_id = mem_strdup(rest);
	return c->first_id || c->last_id || wrong("--ids takes FIRST-LAST, of which one may be missing");
}

static void add_to_list(struct buf *list, const char *value)
{
	if (list->len == 0)
		buf_init(list, LIST_CEILING);
	buf_add_char(list, list->len ? ',' : '{');
	buf_add_array_element(list, slice_of(value));
}

static bool read_list(const struct cli *cli, const char *flag, struct buf *list, const char **ret)
{
	size_t at = 0;

	for (const char *value; (value = cli_next_value(cli, flag, &at)) != NULL;)
		add_to_list(list, value);
	if (list->len > 0) {
		buf_add_char(list, '}');
		*ret = buf_str(list);
	}
	return !list->overflow || wrong("too many values: the list is longer than 16 MiB");
}

static bool read_number(const char *text, int64_t max, const char *complaint, int64_t *ret)
{
	if (!text || (units_integer(text, ret) && *ret > 0 && *ret <= max))
		return true;
	return wrong(complaint);
}

static const struct {
	const char *word;
	enum history_source source;
} sources[] = { { "archive", HISTORY_ARCHIVE }, { "table", HISTORY_TABLE } };

static void propose_sources(struct proposals *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		propose_word(p, sources[i].word, NULL);
}

static bool read_source(struct replay_job *c)
{
	const char *text = cli_value(c->cli, "from");

	for (size_t i = 0; text && i < ARRAY_SIZE(sources); i++)
		if (strcmp(sources[i].word, text) == 0)
			c->source = sources[i].source;
	return !text || c->source != HISTORY_ANY || wrong("--from takes archive or table");
}

/* Everything at once is rarely what somebody wants who has forgotten a flag. */
static bool check_filter(const struct cli *cli)
{
	static const char *const filters[] = { "since", "until", "entity", "type", "ids", "start", "all" };

	for (size_t i = 0; i < ARRAY_SIZE(filters); i++)
		if (cli_value(cli, filters[i]))
			return true;
	return wrong("say what to replay, with --since, --until, --entity, --type or --ids; or --all");
}

static bool read_flags(struct replay_job *c)
{
	const struct cli *cli = c->cli;

	if (!check_filter(cli) || !read_source(c) || !read_ids(c, cli_value(cli, "ids")) ||
	    !read_number(cli_value(cli, "rate"), RATE_MAX, "--rate takes rows in a second, from 1 to 1000000", &c->rate) ||
	    !read_number(cli_value(cli, "limit"), INT64_MAX, "--limit takes a number of rows", &c->limit) ||
	    !read_list(cli, "entity", &c->entities, &c->filter.entities) ||
	    !read_list(cli, "type", &c->types, &c->filter.types))
		return false;
	c->filter.first_id = c->first_id;
	c->filter.last_id = c->last_id;
	c->filter.start = cli_value(cli, "start");
	return true;
}

/* --- what there is -------------------------------------------------------------------------------------------- */

/* As headers have it; the caller frees. */
static char *time_text(struct replay_job *c, const struct moment *m)
{
	struct slice text = slice_of(m->text);

	rfc3339_from_postgres(text, &c->arena, &text);
	return mem_strndup(text.ptr, text.len);
}

/* What a relay publishes while we are at it is no history yet; without an end we would follow it for ever. */
static bool read_times(struct replay_job *c, PGconn *conn, struct error *err)
{
	if (!moment_read(conn, "until", "0", &c->now, err) ||
	    !moment_read(conn, "since", cli_value(c->cli, "since"), &c->since, err) ||
	    !moment_read(conn, "until", cli_value(c->cli, "until"), &c->until, err))
		return false;
	if (!c->until.text || c->until.ms > c->now.ms) {
		moment_release(&c->until);
		c->until = (struct moment){ mem_strdup(c->now.text), c->now.ms };
	}
	c->filter.since = c->since.text;
	c->filter.until = c->until.text;
	c->time = time_text(c, &c->now);
	c->until_text = time_text(c, &c->until);
	if (c->since.text)
		c->since_text = time_text(c, &c->since);
	return true;
}

static bool look(struct replay_job *c, struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;
	_cleanup_(route_freep) struct route *route = NULL;
	const char *const *extra;
	size_t n_extra;

	if (!route_compile(&c->outbox, &route, err))
		return false;
	extra = route_extra_columns(route, &n_extra);
	return pg_connect(&c->database, "replay", -1, &conn, err) && read_times(c, conn, err) &&
	       history_open(conn, &c->outbox, extra, n_extra, c->source, &c->filter, &c->history, err) &&
	       route_check_table(route, c->history->table, err) && history_measure(conn, c->history, &c->size, err);
}

/* --- asking, and showing how far it is ------------------------------------------------------------------------ */

static bool agreed(const struct replay_job *c)
{
	char answer[16] = "";

	if (cli_value(c->cli, "yes"))
		return true;
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return wrong("nobody is there to be asked whether these rows are to be published again: say --yes");
	fputs("Publish these rows again? [y/N] ", stderr);
	if (fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y'))
		return true;
	fputs("nothing was published\n", stderr);
	return false;
}

static void tell(void *arg, bool stopping)
{
	struct replay_job *c = arg;
	int64_t now = clock_ms(), ms = MAX(now - c->began_ms, 1);
	uint64_t done = atomic_load(&c->replay.published), refused = atomic_load(&c->replay.refused);
	int64_t all = c->limit > 0 ? MIN(c->limit, c->size.rows) : c->size.rows;
	int64_t left = all - (int64_t)(done + refused);
	struct text_short rows, of, rate, time;

	if (!isatty(STDERR_FILENO) || now - c->told_ms < PROGRESS_EVERY_MS)
		return;
	c->told_ms = now;
	/* The cursor stays in front, so that a line of the log takes its place. */
	fprintf(stderr, "\033[K%s of %s%s rows, %s a second", text_count(&rows, (int64_t)done), c->size.exact ? "" : "about ",
		text_count(&of, all), text_count(&rate, (int64_t)done * 1000 / ms));
	if (refused > 0)
		fprintf(stderr, ", %llu refused", (unsigned long long)refused);
	if (stopping)
		fputs(", stopping when what is on its way has arrived", stderr);
	else if (done > 0 && left > 0)
		fprintf(stderr, ", %s left", text_duration(&time, left * ms / (int64_t)done));
	fputs("\r", stderr);
}

static void tell_no_more(const struct replay_job *c)
{
	if (c->told_ms > 0)
		fputs("\033[K", stderr);
}

/* --- all of it ------------------------------------------------------------------------------------------------ */

static void print(const struct replay_job *c, void (*write)(const struct replay_report *, struct buf *), FILE *to)
{
	_cleanup_(buf_release) struct buf out = { 0 };

	buf_init(&out, OUTPUT_CEILING);
	write(&c->report, &out);
	fputs(buf_str(&out), to);
}

static int publish(struct replay_job *c)
{
	struct error err = { 0 };
	const struct replayer_env env = {
		.database = &c->database,
		.outbox = &c->outbox,
		.node = c->config->node,
		.time = c->time,
		.topic_for_all = cli_value(c->cli, "topic"),
		.stop_timeout_ms = c->config->stop_timeout_ms,
		.tell = tell,
		.arg = c,
	};

	replay_init(&c->replay, c->history);
	c->replay.rate = c->rate;
	c->replay.limit = c->limit;
	c->began_ms = clock_ms();
	c->report.end = replayer_run(&env, &c->replay, &err);
	c->report.ms = clock_ms() - c->began_ms;
	c->report.replay = &c->replay;
	c->report.error = &err;
	c->report.ran = true;
	tell_no_more(c);
	print(c, cli_value(c->cli, "json") ? replay_report_json : replay_report_text, stdout);
	if (c->report.end == REPLAY_FAILED && err.kind == ERROR_CONFIG)
		return CLI_SETTINGS;
	return c->report.end == REPLAY_COMPLETE && c->replay.n_refusals == 0 ? CLI_OK : CLI_FAILED;
}

static int show_and_publish(struct replay_job *c)
{
	c->report = (struct replay_report){
		.outbox = &c->outbox,
		.history = c->history,
		.filter = &c->filter,
		.size = &c->size,
		.time = c->time,
		.since = c->since_text,
		.until = c->until_text,
		.topic = cli_value(c->cli, "topic"),
		.rate = c->rate,
		.limit = c->limit,
	};
	print(c, replay_report_plan, stderr);
	if (cli_value(c->cli, "dry-run")) {
		if (cli_value(c->cli, "json"))
			print(c, replay_report_json, stdout);
		return CLI_OK;
	}
	return agreed(c) ? publish(c) : CLI_USAGE;
}

static int run(const struct cli *cli)
{
	_cleanup_(config_freep) struct config *config = NULL;
	_cleanup_(release) struct replay_job c = { .cli = cli };
	struct error err = { 0 };

	arena_init(&c.arena);
	if (!read_flags(&c))
		return CLI_USAGE;
	if (!cli_load_config(cli, false, &config))
		return CLI_SETTINGS;
	/* Of what goes on inside only what is wrong. */
	log_setup(MIN(config->log.level, LOG_LEVEL_WARN), config->log.format);
	c.config = config;
	c.database = config->database;
	if (c.database.statement_timeout_ms > 0)
		c.database.statement_timeout_ms = MAX(c.database.statement_timeout_ms, STATEMENT_MS);
	if (!choose_outbox(&c))
		return CLI_USAGE;
	if (look(&c, &err))
		return show_and_publish(&c);
	cli_print_error(&err);
	return err.kind == ERROR_CONFIG ? CLI_SETTINGS : CLI_FAILED;
}

static const struct cli_flag flags[] = {
	{ "outbox", 0, "NAME", "which outbox of the settings; needed where there are several", propose_outboxes },
	{ "since", 0, "TIME", "only rows published at this time or later; 2h is two hours ago" },
	{ "until", 0, "TIME", "only rows published before this time" },
	{ "entity", 0, "ENTITY", "only rows of this entity; may be repeated" },
	{ "type", 0, "TYPE", "only rows of this event type; may be repeated" },
	{ "ids", 0, "FIRST-LAST", "only rows with these ids; also FIRST-, -LAST, FIRST..LAST" },
	{ "start", 0, "VALUE", "only rows from this value of the order column on" },
	{ "all", 0, NULL, "everything that was kept" },
	{ "from", 0, "archive|table", "where to read; the archive where there is one", propose_sources },
	{ "rate", 0, "N", "at most N rows in a second" },
	{ "limit", 0, "N", "at most N rows" },
	{ "topic", 0, "TEMPLATE", "publish to this topic instead of that of the settings" },
	{ "dry-run", 0, NULL, "show what would be published, and publish nothing" },
	{ "yes", 0, NULL, "do not ask" },
	{ "json", 0, NULL, "one JSON object instead of text" },
	{ 0 },
};

const struct command command_replay = {
	.name = "replay",
	.summary = "publish again what was published before",
	.usage = "FILTER... [OPTION]...",
	.details =
		"Reads rows that an outbox has kept after publishing them (published: archive, or mark), and\n"
		"publishes them once more to its sinks, each entity's in order. Messages are as they were, with\n"
		"the same id, and carry a header besides that says so: postrider-replay, with the time of the\n"
		"replay; in CloudEvents ce_postriderreplay. Nothing in the database is changed, and relays that\n"
		"run meanwhile are not disturbed.\n\n"
		"Shows what it is about to do, and asks. A row that is refused is reported, and later rows of\n"
		"its entity are left out. SIGINT (Ctrl-C) and SIGTERM stop it when what is on its way has\n"
		"arrived; it then says how to go on.\n\n"
		"Exit code 0: all are out; 1: some were refused, or it was stopped, or a server is away.",
	.flags = flags,
	.run = run,
};
