/* `postrider verify`: is everything that a table says was published in the topics, and in order? Reads only. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/propose.h"
#include "config/load.h"
#include "config/units.h"
#include "pg/conn.h"
#include "pg/exec.h"
#include "read/reader.h"
#include "relay/route.h"
#include "sink/kafka_read.h"
#include "verify/archive.h"
#include "verify/compare.h"
#include "verify/ledger.h"
#include "verify/moment.h"
#include "verify/report.h"

#define OUTPUT_CEILING ((size_t)1 << 30)

enum {
	SHOW_AT_FIRST = 5,
	SHOW_MAX = 1000000,
	CLOCKS_MS = 60 * 60 * 1000,     /* by how much the clocks of writers and relays may differ */
	PROGRESS_EVERY_MS = 200,
};

struct verify {
	const struct cli *cli;
	const struct outbox_config *outbox;
	const struct sink_config *sink;
	const struct database_config *database;
	struct route *route;
	struct moment since, until;
	const char *only_topic;         /* NULL: all */
	int64_t show;
	bool outbox_itself;
	char *table;                    /* its name, as the server writes it */

	struct ledger ledger;
	struct comparison comparison;
	struct verify_topic *topics;    /* by number in the ledger */

	int64_t told_ms;                /* when progress was last shown */
	uint64_t rows_read;
	int64_t length;                 /* records to be read, about */
};

static void verify_release(struct verify *v)
{
	route_free(v->route);
	moment_release(&v->since);
	moment_release(&v->until);
	free(v->table);
	compare_release(&v->comparison);
	ledger_release(&v->ledger);
	free(v->topics);
}

/* ---- Progress, for people who wait ------------------------------------------------------------------------------- */

static void tell(struct verify *v, const char *what, uint64_t done, uint64_t of)
{
	int64_t now = clock_ms();

	if (now - v->told_ms < PROGRESS_EVERY_MS || !isatty(STDERR_FILENO))
		return;
	v->told_ms = now;
	if (of > 0)
		fprintf(stderr, "\r\033[Kreading %s: %" PRIu64 " of %" PRIu64, what, done, of);
	else
		fprintf(stderr, "\r\033[Kreading %s: %" PRIu64, what, done);
}

static void tell_no_more(const struct verify *v)
{
	if (v->told_ms > 0)
		fputs("\r\033[K", stderr);
}

/* ---- The command line -------------------------------------------------------------------------------------------- */

static bool wrong(const char *what)
{
	fprintf(stderr, "postrider: %s\nTry `postrider help verify`.\n", what);
	return false;
}

static bool choose_outbox(struct verify *v, const struct config *config)
{
	const char *name = cli_value(v->cli, "outbox");
	_cleanup_(mem_freep) char *message = NULL;

	for (size_t i = 0; i < config->n_outboxes; i++)
		if (!name || strcmp(config->outboxes[i].name, name) == 0) {
			v->outbox = &config->outboxes[i];
			break;
		}
	if (!name && config->n_outboxes > 1)
		return wrong("the settings have several outboxes: say which one with --outbox");
	if (v->outbox)
		return true;
	message = mem_printf("the settings have no outbox %s", name ? name : "");
	return wrong(message);
}

static bool choose_sink(struct verify *v)
{
	const char *name = cli_value(v->cli, "sink");
	_cleanup_(mem_freep) char *message = NULL;
	size_t found = 0;

	for (size_t i = 0; i < v->outbox->n_sinks; i++) {
		const struct sink_config *sink = &v->outbox->sinks[i];

		if (strcmp(sink->type, "kafka") != 0 || (name && strcmp(sink->name, name) != 0))
			continue;
		v->sink = sink;
		found++;
	}
	if (found == 1)
		return true;
	if (found > 1)
		return wrong("the outbox has several sinks of type kafka: say which one with --sink");
	message = mem_printf("outbox %s has no sink%s%s of type kafka", v->outbox->name, name ? " " : "",
			     name ? name : "");
	return wrong(message);
}

static bool read_flags(struct verify *v)
{
	const char *show = cli_value(v->cli, "show"), *marked = cli_value(v->cli, "marked");

	v->show = SHOW_AT_FIRST;
	v->only_topic = cli_value(v->cli, "topic");
	if (!cli_value(v->cli, "against"))
		return wrong("verify needs --against: the table that says what was published");
	if (show && (!units_integer(show, &v->show) || v->show > SHOW_MAX))
		return wrong("--show takes a number up to 1000000");
	if (marked && (marked[0] == '\0' || marked[0] == '='))
		return wrong("--marked takes COLUMN or COLUMN=VALUE");
	return true;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static bool expect_row(void *context, const struct archive_row *row, struct error *err)
{
	struct verify *v = context;
	const struct ledger_entry entry = {
		.id = row->id,
		.entity = row->entity,
		.topic = row->topic,
		.rank = row->rank,
		.pending = cli_value(v->cli, "marked") ? !row->marked : v->outbox_itself,
	};

	tell(v, "rows", ++v->rows_read, 0);
	if (v->only_topic && row->topic.ptr && !slice_is(row->topic, v->only_topic))
		return true;
	if (row->id.ptr ? ledger_add(&v->ledger, &entry) : ledger_add_unroutable(&v->ledger, row->row_id))
		return true;
	error_set(err, ERROR_CONFIG, "%s has too many rows, or rows for more than %d topics", v->table,
		  LEDGER_TOPICS_MAX);
	return error_hint(err, "compare a part at a time, with --since and --until or with --topic");
}

static bool is_pending(void *context, const struct archive_row *row, struct error *err _unused_)
{
	struct verify *v = context;

	if (row->id.ptr)
		ledger_set_pending(&v->ledger, row->id);
	return true;
}

/* To find nothing where nothing was looked for would be a false comfort. */
static bool check_topic(const struct verify *v, struct error *err)
{
	if (!v->only_topic || v->rows_read == 0 || v->ledger.ids.count > 0)
		return true;
	error_set(err, ERROR_CONFIG, "by the route of outbox %s, no row of %s goes to topic %s", v->outbox->name,
		  v->table, v->only_topic);
	return error_hint(err, "--topic chooses rows; to look for all of them in another topic, use --set"
			  " outboxes.%s.route.topic=TOPIC", outbox_path(v->outbox));
}

static bool read_tables(struct verify *v, PGconn *conn, struct error *err)
{
	struct archive_request wanted = {
		.outbox = v->outbox,
		.route = v->route,
		.table = cli_value(v->cli, "against"),
		.since = v->since.text,
		.until = v->until.text,
		.marked = cli_value(v->cli, "marked"),
		.ranked = true,
	};
	const struct archive_request waiting = { .outbox = v->outbox, .route = v->route, .table = v->outbox->table };
	_cleanup_(archive_freep) struct archive *archive = NULL, *outbox = NULL;

	if (!archive_open(conn, &wanted, &archive, err) ||
	    (!wanted.marked && !archive_open(conn, &waiting, &outbox, err)))
		return false;
	v->table = mem_strdup(archive_name(archive));
	v->outbox_itself = outbox && archive_is_same(archive, outbox);
	return archive_read(conn, archive, expect_row, v, err) && check_topic(v, err) &&
	       (!outbox || v->outbox_itself || archive_read(conn, outbox, is_pending, v, err));
}

/* One snapshot for both tables. They may be large, and nobody waits for us. */
static bool read_database(struct verify *v, struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;

	return pg_connect(v->database, "verify", -1, &conn, err) &&
	       pg_script(conn, "begin a transaction",
			 "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;"
			 " SET LOCAL statement_timeout = 0; SET LOCAL cursor_tuple_fraction = 1", err) &&
	       moment_read(conn, "since", cli_value(v->cli, "since"), &v->since, err) &&
	       moment_read(conn, "until", cli_value(v->cli, "until"), &v->until, err) &&
	       read_tables(v, conn, err) &&
	       pg_script(conn, "end the transaction", "COMMIT", err);
}

/* ---- The topics -------------------------------------------------------------------------------------------------- */

/* One row with a wrong topic of its own must not keep the others from being compared: what does not exist is empty.
 * When there is no topic at all, the settings are wrong. */
static bool find_topics(struct verify *v, struct kafka_reader *reader, struct error *err)
{
	const struct words *names = &v->ledger.topics;
	int64_t since_ms = v->since.text ? MAX(v->since.ms - CLOCKS_MS, 0) : -1;
	bool any = names->count == 0;

	v->topics = mem_new_array(struct verify_topic, (size_t)names->count + 1);
	for (uint32_t i = 0; i < names->count; i++) {
		struct slice name = words_get(names, i);
		_cleanup_(mem_freep) char *topic = mem_strndup(name.ptr, name.len);
		struct kafka_extent extent = { 0 };

		if (kafka_reader_add(reader, topic, since_ms, &extent, err))
			any = true;
		else if (err->kind != ERROR_CONFIG)
			return false;
		v->topics[i].partitions = extent.partitions;
		v->topics[i].missing = (uint64_t)extent.missing;
		v->length += extent.length;
	}
	return any;
}

static void take_record(void *context, const struct kafka_record *record)
{
	struct verify *v = context;

	v->topics[record->topic].records++;
	compare_take(&v->comparison, &(struct verify_record){
		.id = record->header, .topic = record->topic, .partition = record->partition,
		.offset = record->offset });
	tell(v, "records", v->comparison.records, (uint64_t)v->length);
}

static bool read_topics(struct verify *v, struct error *err)
{
	_cleanup_(kafka_reader_freep) struct kafka_reader *reader = NULL;

	compare_init(&v->comparison, &v->ledger, (uint32_t)v->show);
	if (!kafka_reader_open(v->sink, &reader, err) || !find_topics(v, reader, err) ||
	    !kafka_reader_run(reader, archive_id_header(v->outbox), take_record, v, err))
		return false;
	compare_finish(&v->comparison);
	return true;
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static int print_report(const struct verify *v)
{
	const struct verify_report report = {
		.outbox = v->outbox->name,
		.table = v->table,
		.comparison = &v->comparison,
		.topics = v->topics,
		.rules = {
			.unordered = cli_value(v->cli, "unordered") ||
				     !reader_keeps_order(reader_driver_find(v->outbox->reader), v->outbox),
			.partial = v->since.text || v->until.text,
		},
		.outbox_itself = v->outbox_itself,
	};
	_cleanup_(buf_release) struct buf out = { 0 };

	buf_init(&out, OUTPUT_CEILING);
	if (cli_value(v->cli, "json"))
		report_write_json(&report, &out);
	else
		report_write_text(&report, &out);
	if (out.overflow) {
		fputs("postrider: the report is too long: ask for less with --show\n", stderr);
		return CLI_FAILED;
	}
	fputs(buf_str(&out), stdout);
	return compare_is_clean(&v->comparison, &report.rules) ? CLI_OK : CLI_FAILED;
}

static int run(const struct cli *cli)
{
	_cleanup_(config_freep) struct config *config = NULL;
	_cleanup_(verify_release) struct verify v = { .cli = cli };
	struct error err;
	bool done;

	ledger_init(&v.ledger);
	if (!read_flags(&v))
		return CLI_USAGE;
	if (!cli_load_config(cli, false, &config))
		return CLI_SETTINGS;
	if (!choose_outbox(&v, config) || !choose_sink(&v))
		return CLI_USAGE;
	log_silence();
	v.database = &config->database;
	done = route_compile(v.outbox, &v.route, &err) && read_database(&v, &err) && read_topics(&v, &err);
	tell_no_more(&v);
	if (done)
		return print_report(&v);
	cli_print_error(&err);
	return err.kind == ERROR_CONFIG ? CLI_SETTINGS : CLI_FAILED;
}

static const struct cli_flag flags[] = {
	{ "against", 0, "SCHEMA.TABLE", "the table or view that says what was published" },
	{ "outbox", 0, "NAME", "which outbox of the settings; needed where there are several", propose_outboxes },
	{ "sink", 0, "NAME", "which of its Kafka sinks; needed where there are several", propose_sink_names },
	{ "topic", 0, "TOPIC", "only rows that go to this topic" },
	{ "since", 0, "TIME", "only rows created at this time or later; 2h is two hours ago" },
	{ "until", 0, "TIME", "only rows created before this time" },
	{ "marked", 0, "COLUMN[=VALUE]", "rows are published where it is set, true, or VALUE" },
	{ "unordered", 0, NULL, "count what is out of order, and allow it" },
	{ "show", 0, "N", "list the first N of each kind; 5 unless set" },
	{ "json", 0, NULL, "one JSON object instead of text" },
	{ 0 },
};

const struct command command_verify = {
	.name = "verify",
	.summary = "compare topics with a table of what was published",
	.usage = "--against SCHEMA.TABLE [OPTION]...",
	.details =
		"Reads a table that keeps what went through the outbox (an archive that a trigger fills, say,\n"
		"or the outbox itself where rows are marked and kept), makes of each row the topic and the id\n"
		"that its message has by the settings, and reads these topics from the beginning to the end\n"
		"that they have now. Reports rows without a record, records without a row, rows that came\n"
		"behind a later one of their entity, entities in several partitions, and duplicates. Rows that\n"
		"are still in the outbox may be missing. Nothing is written and no consumer group is used.\n\n"
		"Exit code 0: clean, perhaps with duplicates, which at-least-once delivery allows; 1: not\n"
		"clean, or a server is away.",
	.flags = flags,
	.run = run,
};
