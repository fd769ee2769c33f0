/* `postrider dead`: rows that were given up. Lists them, puts them back, drops them. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/propose.h"
#include "cli/steering.h"
#include "cli/text_table.h"
#include "config/units.h"
#include "pg/exec.h"
#include "steer/dead.h"
#include "verify/moment.h"

enum { LIST_LIMIT = 100, PAGE = 500, FAILURES_TOLD = 20, TELL_NODES_MS = 500 };
#define OUTPUT_CEILING ((size_t)256 << 20)
#define LIST_MAX 1000000

struct dead {
	const struct cli *cli;
	struct steering steering;
	struct dead_filter filter;
	struct buf ids;
	struct moment since, until;
	int64_t limit, rate;            /* 0: not given */
	struct dead_count count;
};

static void dead_release(struct dead *d)
{
	steering_release(&d->steering);
	buf_release(&d->ids);
	moment_release(&d->since);
	moment_release(&d->until);
}

static int failed(const struct error *err)
{
	cli_print_error(err);
	return CLI_FAILED;
}

static const char *plural(int64_t n)
{
	return n == 1 ? "" : "s";
}

/* --- which letters -------------------------------------------------------------------------------------------------- */

/* "17", or "17,18" */
static bool add_ids(struct dead *d, const char *text)
{
	for (;;) {
		size_t len = strcspn(text, ",");
		_cleanup_(mem_freep) char *one = mem_strndup(text, len);
		int64_t id;

		if (!units_integer(one, &id))
			return false;
		buf_printf(&d->ids, "%s%" PRId64, d->ids.len ? "," : "{", id);
		if (!text[len])
			return true;
		text += len + 1;
	}
}

static int read_ids(struct dead *d)
{
	const char *flag = cli_value(d->cli, "id");

	buf_init(&d->ids, (size_t)1 << 20);
	if (flag && !add_ids(d, flag))
		return steering_wrong(d->cli, "--id takes numbers of dead letters, such as 17,18: %s is none", flag);
	for (int i = 1; i < d->cli->n_operands; i++)
		if (!add_ids(d, d->cli->operands[i]))
			return steering_wrong(d->cli, "dead letters have numbers: %s is none", d->cli->operands[i]);
	if (d->ids.len == 0)
		return CLI_OK;
	buf_add_char(&d->ids, '}');
	d->filter.ids = buf_str(&d->ids);
	return CLI_OK;
}

static int read_number(struct dead *d, const char *flag, int64_t max, int64_t *ret)
{
	const char *text = cli_value(d->cli, flag);

	if (text && (!units_integer(text, ret) || *ret < 1 || *ret > max))
		return steering_wrong(d->cli, "--%s takes a number from 1 to %" PRId64 ": %s is none", flag, max, text);
	return CLI_OK;
}

static bool names_some(const struct dead *d)
{
	const struct dead_filter *f = &d->filter;

	return f->ids || f->entity || f->type || f->error || f->kind || cli_value(d->cli, "since") || cli_value(d->cli, "until") ||
	       cli_value(d->cli, "outbox");
}

/* Flags that only some actions have. */
struct only {
	const char *flag, *actions;
};

static int check_flags(const struct dead *d, const char *action, bool changes)
{
	static const struct only only[] = {
		{ "limit", "list" }, { "rate", "retry drop" }, { "dry-run", "retry drop" }, { "yes", "drop" }, { "all", "retry drop" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(only); i++)
		if (cli_value(d->cli, only[i].flag) && !strstr(only[i].actions, action))
			return steering_wrong(d->cli, "--%s does not go with dead %s", only[i].flag, action);
	if (changes && !names_some(d) && !cli_value(d->cli, "all"))
		return steering_wrong(d->cli, "say which dead letters to %s: their numbers, a filter, or --all", action);
	if (changes && names_some(d) && cli_value(d->cli, "all"))
		return steering_wrong(d->cli, "--all goes without numbers and filters");
	return CLI_OK;
}

static int read_filter(struct dead *d, const char *action, bool changes)
{
	int code;

	d->filter.entity = cli_value(d->cli, "entity");
	d->filter.type = cli_value(d->cli, "type");
	d->filter.error = cli_value(d->cli, "error");
	d->filter.kind = cli_value(d->cli, "kind");
	if ((code = read_ids(d)) != CLI_OK || (code = read_number(d, "limit", LIST_MAX, &d->limit)) != CLI_OK ||
	    (code = read_number(d, "rate", LIST_MAX, &d->rate)) != CLI_OK)
		return code;
	return check_flags(d, action, changes);
}

static int open_all(struct dead *d)
{
	const char *outbox = cli_value(d->cli, "outbox");
	struct error err = { 0 };
	int code = steering_open(&d->steering, d->cli, &outbox, outbox ? 1 : 0, STEER_SOME);

	if (code != CLI_OK)
		return code;
	d->filter.targets = d->steering.targets;
	d->filter.n_targets = d->steering.n_targets;
	if (!moment_read(d->steering.conn, "since", cli_value(d->cli, "since"), &d->since, &err) ||
	    !moment_read(d->steering.conn, "until", cli_value(d->cli, "until"), &d->until, &err)) {
		cli_print_error(&err);
		return err.kind == ERROR_CONFIG ? CLI_USAGE : CLI_FAILED;
	}
	d->filter.since = d->since.text;
	d->filter.until = d->until.text;
	return dead_count(d->steering.conn, &d->filter, &d->count, &err) ? CLI_OK : failed(&err);
}

/* --- list and show ---------------------------------------------------------------------------------------------------- */

static void write_table(const PGresult *page, struct buf *out)
{
	static const struct text_column columns[] = {
		{ "letter", true, 8 }, { "outbox", false, 12 }, { "entity", false, 20 }, { "row", false, 12 },
		{ "type", false, 16 }, { "tries", true, 5 },    { "kind", false, 9 },    { "age", true, 7 },
		{ "passed", false, 6 }, { "error", false, 50 },
	};
	_cleanup_(text_table_release) struct text_table t = { 0 };

	text_table_init(&t, columns, ARRAY_SIZE(columns));
	for (int i = 0; i < PQntuples(page); i++) {
		struct text_short age;

		text_table_add(&t, (const char *const[]){
					   steering_value(page, i, DEAD_ID), steering_value(page, i, DEAD_OUTBOX),
					   steering_value(page, i, DEAD_ENTITY), steering_value(page, i, DEAD_ROW),
					   steering_value(page, i, DEAD_TYPE), steering_value(page, i, DEAD_ATTEMPTS),
					   steering_value(page, i, DEAD_KIND),
					   text_duration(&age, atoll(PQgetvalue(page, i, DEAD_AGE_MS))),
					   PQgetisnull(page, i, DEAD_PASSED_AT) ? NULL : "yes",
					   steering_value(page, i, DEAD_ERROR) });
	}
	text_table_write(&t, out);
}

static void write_list(const struct dead *d, const PGresult *page, struct buf *out)
{
	if (PQntuples(page) == 0) {
		buf_add_str(out, "no dead letters\n");
		return;
	}
	write_table(page, out);
	if (d->count.letters > PQntuples(page))
		buf_printf(out, "… and %" PRId64 " more: --limit shows more\n", d->count.letters - PQntuples(page));
	if (d->count.passed > 0)
		buf_add_str(out, "passed: later rows of the entity have gone out since\n");
}

static void write_list_json(const struct dead *d, const PGresult *page, struct buf *out)
{
	buf_add_char(out, '{');
	steering_add_number(out, "count", d->count.letters);
	buf_add_str(out, ",\"letters\":[");
	for (int i = 0; i < PQntuples(page); i++)
		buf_printf(out, "%s%s", i ? "," : "", PQgetvalue(page, i, DEAD_JSON));
	buf_add_str(out, "]}\n");
}

static int list(struct dead *d)
{
	_cleanup_(pg_result_clearp) PGresult *page = NULL;
	_cleanup_(buf_release) struct buf out = { 0 };
	struct error err = { 0 };

	if (!dead_page(d->steering.conn, &d->filter, 0, d->count.last, (int)(d->limit ? d->limit : LIST_LIMIT), &page, &err))
		return failed(&err);
	buf_init(&out, OUTPUT_CEILING);
	if (cli_value(d->cli, "json"))
		write_list_json(d, page, &out);
	else
		write_list(d, page, &out);
	fputs(buf_str(&out), stdout);
	return CLI_OK;
}

static void write_letter(const PGresult *page, struct buf *out)
{
	static const struct {
		const char *title;
		int column;
	} lines[] = {
		{ "outbox", DEAD_OUTBOX },   { "entity", DEAD_ENTITY }, { "row", DEAD_ROW },         { "type", DEAD_TYPE },
		{ "topic", DEAD_TOPIC },     { "tries", DEAD_ATTEMPTS }, { "died at", DEAD_DIED_AT }, { "kind", DEAD_KIND },
		{ "error", DEAD_ERROR },
	};
	const char *passed = steering_value(page, 0, DEAD_PASSED_AT);

	buf_printf(out, "dead letter %s\n", PQgetvalue(page, 0, DEAD_ID));
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		const char *value = steering_value(page, 0, lines[i].column);

		buf_printf(out, "  %-8s %s\n", lines[i].title, value ? value : "-");
	}
	buf_printf(out, "  %-8s %s%s\n", "passed", passed ? "later rows of the entity have gone out since " : "no",
		   passed ? passed : "");
}

/* Fields of an event as an object; bytes that are no text are replaced. */
static bool add_fields(const PGresult *fields, struct buf *out)
{
	buf_add_char(out, '{');
	for (int i = 0; i < PQntuples(fields); i++) {
		size_t len = 0;
		unsigned char *bytes = PQgetisnull(fields, i, 1) ?
			NULL : PQunescapeBytea((const unsigned char *)PQgetvalue(fields, i, 1), &len);

		buf_add_str(out, i ? "," : "");
		buf_add_json(out, slice_of(PQgetvalue(fields, i, 0)));
		buf_add_char(out, ':');
		if (bytes)
			buf_add_json(out, (struct slice){ (const char *)bytes, len });
		else
			buf_add_str(out, "null");
		PQfreemem(bytes);
	}
	buf_add_char(out, '}');
	return true;
}

static bool add_content(struct dead *d, const PGresult *page, struct buf *out, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *fields = NULL;
	const char *row = steering_value(page, 0, DEAD_CONTENT);

	if (row) {
		buf_add_str(out, row);
		return true;
	}
	return dead_fields(d->steering.conn, atoll(PQgetvalue(page, 0, DEAD_ID)), &fields, err) && add_fields(fields, out);
}

static int show(struct dead *d)
{
	_cleanup_(pg_result_clearp) PGresult *page = NULL;
	_cleanup_(buf_release) struct buf out = { 0 };
	struct error err = { 0 };

	if (!dead_page(d->steering.conn, &d->filter, 0, INT64_MAX, 1, &page, &err))
		return failed(&err);
	if (PQntuples(page) == 0) {
		fprintf(stderr, "postrider: there is no dead letter %s\n", d->cli->n_operands > 1 ? d->cli->operands[1] :
			cli_value(d->cli, "id"));
		return CLI_FAILED;
	}
	buf_init(&out, OUTPUT_CEILING);
	if (cli_value(d->cli, "json")) {
		/* The object without its end, and one member more. */
		buf_add(&out, PQgetvalue(page, 0, DEAD_JSON), strlen(PQgetvalue(page, 0, DEAD_JSON)) - 1);
		buf_add_str(&out, ", \"content\":");
	} else {
		write_letter(page, &out);
		buf_add_str(&out, "  content  ");
	}
	if (!add_content(d, page, &out, &err))
		return failed(&err);
	printf("%s%s\n", buf_str(&out), cli_value(d->cli, "json") ? "}" : "");
	return CLI_OK;
}

/* --- retry ------------------------------------------------------------------------------------------------------------ */

struct outcome {
	int64_t done, failed;
	int64_t passed, waiting, gone;
	struct buf failures;            /* JSON, or lines of text */
};

static void note_failure(const struct dead *d, struct outcome *o, const char *id, const struct error *err)
{
	if (o->failed++ >= FAILURES_TOLD)
		return;
	if (cli_value(d->cli, "json")) {
		buf_printf(&o->failures, "%s{\"id\":%s", o->failures.len ? "," : "", id);
		steering_add_text(&o->failures, "error", err->message);
		buf_add_char(&o->failures, '}');
	} else {
		buf_printf(&o->failures, "postrider: dead letter %s: %s\n", id, err->message);
		if (err->hint[0])
			buf_printf(&o->failures, "  hint: %s\n", err->hint);
	}
}

static const struct target *target_of(const struct dead *d, const char *number)
{
	for (size_t i = 0; i < d->steering.n_targets; i++)
		if (d->steering.targets[i].number == atoi(number))
			return &d->steering.targets[i];
	abort();        /* the filter has only these */
}

/* So long after the start that no more than `rate` a second are done. */
static void keep_rate(const struct dead *d, int64_t began_ms, int64_t done)
{
	int64_t wait = d->rate ? began_ms + done * 1000 / d->rate - clock_ms() : 0;

	if (wait > 0)
		poll(NULL, 0, (int)MIN(wait, 60 * 1000));
}

static bool tell_nodes(struct dead *d, struct error *err)
{
	for (size_t i = 0; i < d->steering.n_targets; i++)
		if (!target_notify(&d->steering.targets[i], d->steering.conn, err))
			return false;
	return true;
}

/* False: the database is gone. That one letter cannot be put back is noted, and the others go on. */
static bool retry_one(struct dead *d, const PGresult *page, int row, struct outcome *o, struct error *err)
{
	const char *id = PQgetvalue(page, row, DEAD_ID);
	struct dead_return what;
	struct error why = { 0 };

	if (!dead_retry(d->steering.conn, target_of(d, PQgetvalue(page, row, DEAD_OUTBOX_NUMBER)), atoll(id), &what, &why)) {
		if (PQstatus(d->steering.conn) != CONNECTION_OK) {
			*err = why;
			return false;
		}
		note_failure(d, o, id, &why);
		return true;
	}
	o->gone += what.gone;
	o->done += !what.gone;
	o->passed += what.passed;
	o->waiting += what.waits;
	return true;
}

static bool retry_all(struct dead *d, struct outcome *o, struct error *err)
{
	struct progress progress = { .doing = "putting back", .of = d->count.letters };
	int64_t began_ms = clock_ms(), told_ms = began_ms, after = 0, seen = 0;
	bool ok = true;

	while (ok) {
		_cleanup_(pg_result_clearp) PGresult *page = NULL;

		ok = dead_page(d->steering.conn, &d->filter, after, d->count.last, PAGE, &page, err);
		if (!ok || PQntuples(page) == 0)
			break;
		for (int i = 0; ok && i < PQntuples(page); i++) {
			after = atoll(PQgetvalue(page, i, DEAD_ID));
			keep_rate(d, began_ms, seen++);
			ok = retry_one(d, page, i, o, err);
			progress_show(&progress, seen);
			if (ok && clock_ms() - told_ms >= TELL_NODES_MS) {
				told_ms = clock_ms();
				ok = tell_nodes(d, err);
			}
		}
	}
	progress_end(&progress);
	return ok && tell_nodes(d, err);
}

static void write_outcome(const struct dead *d, const struct outcome *o, const char *did)
{
	if (cli_value(d->cli, "json")) {
		printf("{\"matched\":%" PRId64 ",\"%s\":%" PRId64 ",\"passed\":%" PRId64 ",\"waiting\":%" PRId64
		       ",\"failed\":%" PRId64 ",\"failures\":[%s]}\n",
		       d->count.letters, did, o->done, o->passed, o->waiting, o->failed, buf_str(&o->failures));
		return;
	}
	printf("%s %" PRId64 " dead letter%s\n", did, o->done, plural(o->done));
	fputs(buf_str(&o->failures), stderr);
	if (o->failed > FAILURES_TOLD)
		fprintf(stderr, "postrider: and %" PRId64 " more could not be put back\n", o->failed - FAILURES_TOLD);
	if (o->waiting > 0)
		printf("  %" PRId64 " wait%s: the entity is held back by an earlier row, or parked; `postrider entity show` says more\n",
		       o->waiting, o->waiting == 1 ? "s" : "");
}

/* Order is what people count on: said where it does not hold. */
static void warn_of_passed(const struct dead *d, int64_t n, const char *will)
{
	if (n > 0 && !cli_value(d->cli, "json"))
		fprintf(stderr, "postrider: of %" PRId64 " of them, later rows of the same entity have already gone out: these %s out"
			" of order\n", n, will);
}

static int show_dry_run(struct dead *d, const char *would)
{
	_cleanup_(pg_result_clearp) PGresult *page = NULL;
	_cleanup_(buf_release) struct buf out = { 0 };
	struct error err = { 0 };

	if (cli_value(d->cli, "json")) {
		printf("{\"matched\":%" PRId64 ",\"passed\":%" PRId64 ",\"dry_run\":true}\n", d->count.letters, d->count.passed);
		return CLI_OK;
	}
	if (!dead_page(d->steering.conn, &d->filter, 0, d->count.last, LIST_LIMIT, &page, &err))
		return failed(&err);
	buf_init(&out, OUTPUT_CEILING);
	if (PQntuples(page) > 0)
		write_table(page, &out);
	printf("%swould %s %" PRId64 " dead letter%s\n", buf_str(&out), would, d->count.letters, plural(d->count.letters));
	return CLI_OK;
}

static int retry(struct dead *d)
{
	struct outcome o = { 0 };
	struct error err = { 0 };
	bool ok;

	if (cli_value(d->cli, "dry-run")) {
		warn_of_passed(d, d->count.passed, "would arrive");
		return show_dry_run(d, "put back");
	}
	buf_init(&o.failures, OUTPUT_CEILING);
	ok = retry_all(d, &o, &err);
	write_outcome(d, &o, "returned");
	warn_of_passed(d, o.passed, "arrive");
	buf_release(&o.failures);
	if (!ok)
		return failed(&err);
	return o.failed > 0 ? CLI_FAILED : CLI_OK;
}

/* --- drop ------------------------------------------------------------------------------------------------------------- */

static bool confirm(const struct dead *d)
{
	char answer[8] = "";

	if (cli_value(d->cli, "yes"))
		return true;
	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
		fputs("postrider: dropping dead letters cannot be undone: say --yes where nobody can be asked\n", stderr);
		return false;
	}
	fprintf(stderr, "drop %" PRId64 " dead letter%s for good? [y/N] ", d->count.letters, plural(d->count.letters));
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static bool drop_all(struct dead *d, struct outcome *o, struct error *err)
{
	struct progress progress = { .doing = "dropping", .of = d->count.letters };
	int64_t began_ms = clock_ms(), after = 0, dropped;
	int page = (int)(d->rate ? MIN(MAX(d->rate / 10, 1), PAGE) : PAGE);
	bool ok = true;

	while (ok && after < d->count.last) {
		keep_rate(d, began_ms, o->done);
		ok = dead_drop(d->steering.conn, &d->filter, after, d->count.last, page, &dropped, &after, err);
		o->done += ok ? dropped : 0;
		progress_show(&progress, o->done);
	}
	progress_end(&progress);
	return ok;
}

static int drop(struct dead *d)
{
	struct outcome o = { 0 };
	struct error err = { 0 };
	bool ok;

	if (cli_value(d->cli, "dry-run"))
		return show_dry_run(d, "drop");
	if (d->count.letters > 0 && !confirm(d))
		return CLI_USAGE;
	ok = drop_all(d, &o, &err);
	write_outcome(d, &o, "dropped");
	return ok ? CLI_OK : failed(&err);
}

/* --- the command ------------------------------------------------------------------------------------------------------ */

static const struct action {
	const char *word;
	int (*act)(struct dead *d);
	bool changes;
} actions[] = {
	{ "list", list, false },
	{ "show", show, false },
	{ "retry", retry, true },
	{ "drop", drop, true },
};

static const struct action *find_action(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (strcmp(actions[i].word, word) == 0)
			return &actions[i];
	return NULL;
}

/* Who names letters by number means each of them. */
static int miss_some(const struct dead *d)
{
	int64_t named = 1;

	for (const char *c = d->filter.ids; c && *c; c++)
		named += *c == ',';
	if (!d->filter.ids || d->count.letters >= named)
		return CLI_OK;
	fprintf(stderr, "postrider: %" PRId64 " of the dead letters that were named are not there\n", named - d->count.letters);
	return CLI_FAILED;
}

static int run(const struct cli *cli)
{
	_cleanup_(dead_release) struct dead d = { .cli = cli };
	const struct action *action = cli->n_operands > 0 ? find_action(cli->operands[0]) : NULL;
	int code, missed;

	if (cli->n_operands == 0)
		return steering_wrong(cli, "say what to do with dead letters: list, show, retry or drop");
	if (!action)
		return steering_wrong(cli, "dead cannot %s: it can list, show, retry and drop", cli->operands[0]);
	if ((code = read_filter(&d, action->word, action->changes)) != CLI_OK)
		return code;
	if (action->act == show && !d.filter.ids)
		return steering_wrong(cli, "say which dead letter to show: its number");
	if ((code = open_all(&d)) != CLI_OK)
		return code;
	missed = action->changes ? miss_some(&d) : CLI_OK;
	code = action->act(&d);
	return code != CLI_OK ? code : missed;
}

static void propose_actions(struct proposals *p)
{
	for (size_t i = 0; p->cli->n_operands == 0 && i < ARRAY_SIZE(actions); i++)
		propose_word(p, actions[i].word, NULL);
}

static const struct cli_flag flags[] = {
	{ "outbox", 0, "NAME", "of this outbox", propose_outboxes },
	{ "entity", 0, "ENTITY", "of this entity" },
	{ "type", 0, "TYPE", "of this type of event" },
	{ "error", 0, "TEXT", "whose error has this text in it" },
	{ "kind", 0, "KIND", "with this kind of error", propose_error_kinds },
	{ "since", 0, "TIME", "that died after it: a time, or 10m for ten minutes ago" },
	{ "until", 0, "TIME", "that died before it" },
	{ "id", 0, "N[,N...]", "with these numbers, as if they stood behind the action" },
	{ "all", 0, NULL, "of retry and drop: all of them" },
	{ "limit", 0, "N", "of list: no more than so many (100)" },
	{ "rate", 0, "N", "of retry and drop: so many a second" },
	{ "dry-run", 0, NULL, "of retry and drop: only say what would be done" },
	{ "yes", 0, NULL, "of drop: do not ask" },
	{ "json", 0, NULL, "one JSON object instead of text" },
	{ 0 },
};

const struct command command_dead = {
	.name = "dead",
	.summary = "list dead letters, put them back, drop them",
	.usage = "list|show|retry|drop [LETTER...] [--outbox NAME] [--entity ENTITY] ... [--json]",
	.details =
		"Dead letters are rows that were given up: failure.then: dead_letter. Filters may be combined.\n\n"
		"list   the oldest first; `passed` are those of whose entity later rows have gone out since.\n"
		"show   one of them, with its content.\n"
		"retry  puts them back to where they were: the row into its table with its old id, an event of the log to the\n"
		"       front of its entity. So order holds among the rows of the entity that are there, blocked ones too: an\n"
		"       entity that is held back for a later row is tried again from this one on. What has gone out has gone,\n"
		"       and is said. Each letter is one transaction.\n"
		"drop   for good. Asks before, unless --yes; refuses where nobody can be asked.\n\n"
		"JSON of list: {\"count\", \"letters\":[{\"id\", \"outbox\", \"entity\", \"row\", \"message_id\", \"entity_type\",\n"
		"\"event_type\", \"topic\", \"attempts\", \"kind\", \"error\", \"first_failed_at\", \"died_at\", \"passed_at\"}]}; of show: one\n"
		"of these with \"content\"; of retry and drop: {\"matched\", \"returned\" or \"dropped\", \"passed\", \"waiting\",\n"
		"\"failed\", \"failures\":[{\"id\", \"error\"}]}, or with --dry-run {\"matched\", \"passed\", \"dry_run\"}.\n\n"
		"Exit code 0: done, also when nothing matches; 1: some could not be put back, a letter that was named is not\n"
		"there, or the database failed; 2: not confirmed, or a wrong command line.",
	.flags = flags,
	.max_operands = 1000,
	.propose = propose_actions,
	.run = run,
};
