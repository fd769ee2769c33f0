/* The event store against a real server: POSTRIDER_TEST_DSN names a database where this may create and drop the schema
 * postrider_test. Without it every test is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/finding.h"
#include "base/mem.h"
#include "pg/conn.h"
#include "pg/exec.h"
#include "sink/sink.h"

extern const struct sink_driver sink_postgres;

#define STORE "postrider_test.event"

struct fixture {
	struct database_config database;
	struct sink_config config;
	struct sink_target *target;
	struct mailbox box;
	struct sink *sink;
	PGconn *admin;                  /* looks from outside */
};

static void run(PGconn *conn, const char *sql)
{
	struct error err;

	if (!pg_script(conn, "prepare the test", sql, &err))
		fail_msg("%s", err.message);
}

static char *ask(PGconn *conn, const char *sql)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	struct error err;

	if (!pg_query(conn, "look", sql, 0, NULL, &res, &err))
		fail_msg("%s", err.message);
	return mem_strdup(PQntuples(res) ? PQgetvalue(res, 0, 0) : "");
}

static void assert_answer(struct fixture *f, const char *sql, const char *expected)
{
	_cleanup_(mem_freep) char *answer = ask(f->admin, sql);

	assert_string_equal(answer, expected);
}

/* "id:entity:version …" in the order of storing. */
#define STORED                                                                                                     \
	"SELECT coalesce(string_agg(message_id || ':' || entity_id || ':' || version, ' ' ORDER BY position), '')" \
	" FROM " STORE

static void create_store(PGconn *conn, const char *payload_type)
{
	_cleanup_(mem_freep) char *sql = mem_printf(
		"DROP SCHEMA IF EXISTS postrider_test CASCADE; CREATE SCHEMA postrider_test;"
		"CREATE TABLE " STORE " (position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
		" entity_type text NOT NULL DEFAULT '', entity_id text NOT NULL, version bigint NOT NULL, event_type text,"
		" message_id text NOT NULL UNIQUE, payload %s, headers jsonb, created_at timestamptz,"
		" stored_at timestamptz NOT NULL DEFAULT clock_timestamp(), UNIQUE (entity_type, entity_id, version));"
		"CREATE TABLE postrider_test.outbox (id text PRIMARY KEY);",
		payload_type);

	run(conn, sql);
}

static void fixture_open(struct fixture *f, const char *payload_type, const char *reader_identity)
{
	struct sink_env env = { .outcomes = &f->box, .reader_identity = reader_identity, .last = true };
	struct error err;

	if (!getenv("POSTRIDER_TEST_DSN"))
		skip();
	*f = (struct fixture){
		.database = {
			.url = getenv("POSTRIDER_TEST_DSN"),
			.password_file = (char *)"",
			.connect_timeout_ms = 5000,
			.statement_timeout_ms = 10000,
			.lock_timeout_ms = 5000,
		},
		.config = { .postgres = { .database = { .url = (char *)"", .password_file = (char *)"" },
					  .table = (char *)STORE } },
	};
	f->config.outbox_database = &f->database;
	if (!pg_connect(&f->database, "test", -1, &f->admin, &err))
		fail_msg("%s", err.message);
	create_store(f->admin, payload_type);
	mailbox_init(&f->box);
	assert_true(sink_postgres.target_open(&f->config, &f->target, &err));
	assert_true(sink_postgres.open(f->target, &env, &f->sink, &err));
}

static void fixture_close(struct fixture *f)
{
	sink_postgres.close(f->sink);
	sink_postgres.target_close(f->target);
	mailbox_release(&f->box);
	run(f->admin, "DROP SCHEMA IF EXISTS postrider_test CASCADE");
	pg_closep(&f->admin);
}

static struct event event_of(const char *id, const char *entity, struct slice payload)
{
	return (struct event){
		.id = slice_of(id),
		.message_id = slice_of(id),
		.entity = slice_of(entity),
		.entity_type = SLICE_LITERAL("order"),
		.event_type = SLICE_LITERAL("created"),
		.created_at = SLICE_LITERAL("2026-11-15T09:45:27.123456Z"),
		.payload = payload,
	};
}

#define GOOD SLICE_LITERAL("{\"a\": 1}")
#define BAD SLICE_LITERAL("{broken")

/* One turn of a worker's loop, as far as the sink is concerned. */
static void turn(struct fixture *f)
{
	int64_t now = clock_ms(), deadline = CLOCK_NEVER;
	struct pollfd fd = { .fd = -1 };

	fd.fd = sink_postgres.pollfd(f->sink, &fd.events, &deadline);
	poll(&fd, 1, (int)MAX(MIN(deadline - now, 20), 0));
	sink_postgres.pump(f->sink, clock_ms());
}

enum { EVENTS_MAX = 1200 };

/* Submits all of them as a worker would and waits for every outcome. Failures stay in the events. */
static void deliver(struct fixture *f, struct event *first, uint32_t n)
{
	struct event *events[EVENTS_MAX];
	int64_t give_up_ms = clock_ms() + 20000;
	uint32_t submitted = 0, back = 0;

	for (uint32_t i = 0; i < n; i++)
		events[i] = first + i;
	while (back < n) {
		submitted += sink_postgres.submit(f->sink, events + submitted, n - submitted);
		turn(f);
		for (struct event *ev = mailbox_take(&f->box); ev; ev = ev->next)
			back++;
		if (clock_ms() > give_up_ms)
			fail_msg("%u of %u events came back", back, n);
	}
}

static void assert_kinds(struct event *events, uint32_t n, const enum error_kind *kinds)
{
	for (uint32_t i = 0; i < n; i++) {
		enum error_kind kind = events[i].failure ? events[i].failure->kind : ERROR_NONE;

		if (kind != kinds[i])
			fail_msg("event %u: %s, not %s: %s", i, error_kind_name(kind), error_kind_name(kinds[i]),
				 events[i].failure ? events[i].failure->message : "delivered");
		free(events[i].failure);
		events[i].failure = NULL;
	}
}

static void assert_all_delivered(struct event *events, uint32_t n)
{
	enum error_kind kinds[EVENTS_MAX] = { ERROR_NONE };

	assert_kinds(events, n, kinds);
}

static void versions_are_contiguous_per_entity_and_duplicates_are_ignored(void **state _unused_)
{
	struct event first[] = {
		event_of("1", "a", GOOD), event_of("2", "b", GOOD), event_of("3", "a", GOOD), event_of("3", "a", GOOD),
	};
	struct event second[] = {
		event_of("4", "a", GOOD), event_of("3", "a", GOOD), event_of("5", "a", GOOD), event_of("2", "b", GOOD),
		event_of("6", "c", GOOD), event_of("7", "b", GOOD),
	};
	struct fixture f;

	fixture_open(&f, "json", NULL);
	deliver(&f, first, ARRAY_SIZE(first));
	assert_all_delivered(first, ARRAY_SIZE(first));
	assert_answer(&f, STORED, "1:a:1 2:b:1 3:a:2");
	deliver(&f, second, ARRAY_SIZE(second));
	assert_all_delivered(second, ARRAY_SIZE(second));
	assert_answer(&f, STORED, "1:a:1 2:b:1 3:a:2 4:a:3 5:a:4 6:c:1 7:b:2");
	fixture_close(&f);
}

static void an_event_is_stored_with_all_it_has(void **state _unused_)
{
	struct header headers[] = { { SLICE_LITERAL("id"), SLICE_LITERAL("1\"") }, { SLICE_LITERAL("none"), SLICE_NULL } };
	struct event events[] = { event_of("1", "a", GOOD), event_of("2", "a", SLICE_NULL) };
	struct fixture f;

	events[0].headers = headers;
	events[0].n_headers = 2;
	events[1].entity_type = events[1].event_type = events[1].created_at = SLICE_NULL;
	fixture_open(&f, "json", NULL);
	deliver(&f, events, 2);
	assert_all_delivered(events, 2);
	assert_answer(&f, "SELECT e::text FROM (SELECT entity_type, entity_id, version, event_type, message_id, payload,"
			  " headers, created_at FROM " STORE " WHERE message_id = '1') e",
		      "(order,a,1,created,1,\"{\"\"a\"\": 1}\",\"{\"\"id\"\": \"\"1\\\\\"\"\"\", \"\"none\"\": null}\","
		      "\"2026-11-15 09:45:27.123456+00\")");
	assert_answer(&f, "SELECT e::text FROM (SELECT entity_type, entity_id, version, event_type, message_id, payload,"
			  " headers, created_at FROM " STORE " WHERE message_id = '2') e",
		      "(\"\",a,1,,2,,,)");
	fixture_close(&f);
}

static void every_byte_survives_in_bytea(void **state _unused_)
{
	char bytes[256];
	struct event events[2];
	struct fixture f;

	for (int i = 0; i < 256; i++)
		bytes[i] = (char)i;
	events[0] = event_of("1", "a", (struct slice){ bytes, sizeof(bytes) });
	events[1] = event_of("2", "a", SLICE_LITERAL(""));
	fixture_open(&f, "bytea", NULL);
	deliver(&f, events, 2);
	assert_all_delivered(events, 2);
	assert_answer(&f, "SELECT payload = decode(string_agg(lpad(to_hex(i), 2, '0'), '' ORDER BY i), 'hex') FROM " STORE
			  ", generate_series(0, 255) i WHERE message_id = '1' GROUP BY payload", "t");
	assert_answer(&f, "SELECT length(payload) FROM " STORE " WHERE message_id = '2'", "0");
	fixture_close(&f);
}

static void text_and_jsonb_take_their_payloads(void **state _unused_)
{
	struct event events[] = { event_of("1", "a", SLICE_LITERAL("{\"b\":  1}")) };
	struct fixture f;

	fixture_open(&f, "text", NULL);
	deliver(&f, events, 1);
	assert_all_delivered(events, 1);
	assert_answer(&f, "SELECT payload FROM " STORE, "{\"b\":  1}");
	fixture_close(&f);
	fixture_open(&f, "jsonb", NULL);
	deliver(&f, events, 1);
	assert_all_delivered(events, 1);
	assert_answer(&f, "SELECT payload FROM " STORE, "{\"b\": 1}");
	fixture_close(&f);
}

static void only_the_bad_row_is_rejected_and_no_later_one_overtakes_it(void **state _unused_)
{
	struct event events[] = {
		event_of("1", "a", GOOD), event_of("2", "b", BAD),  event_of("3", "a", GOOD),
		event_of("4", "b", GOOD), event_of("5", "c", GOOD), event_of("6", "d", SLICE_LITERAL("\xff\xfe")),
	};
	const enum error_kind kinds[] = { ERROR_NONE, ERROR_REJECTED, ERROR_NONE, ERROR_LOST, ERROR_NONE, ERROR_REJECTED };
	struct fixture f;

	fixture_open(&f, "json", NULL);
	deliver(&f, events, ARRAY_SIZE(events));
	assert_kinds(events, ARRAY_SIZE(events), kinds);
	assert_answer(&f, STORED, "1:a:1 3:a:2 5:c:1");
	fixture_close(&f);
}

static void nothing_is_taken_while_a_failure_is_unread(void **state _unused_)
{
	struct event bad = event_of("1", "a", BAD), later = event_of("2", "a", GOOD);
	struct event *one[] = { &bad }, *two[] = { &later };
	struct fixture f;

	fixture_open(&f, "json", NULL);
	while (sink_postgres.submit(f.sink, one, 1) == 0)
		turn(&f);
	while (!atomic_load(&f.box.newest))
		turn(&f);
	assert_int_equal(sink_postgres.submit(f.sink, two, 1), 0);
	assert_ptr_equal(mailbox_take(&f.box), &bad);
	assert_kinds(&bad, 1, (enum error_kind[]){ ERROR_REJECTED });
	deliver(&f, &later, 1);
	assert_all_delivered(&later, 1);
	fixture_close(&f);
}

/* Turns the loop until an outcome is there; the mailbox stays as it is. */
static void await_outcome(struct fixture *f)
{
	int64_t give_up_ms = clock_ms() + 20000;

	while (!atomic_load(&f->box.newest)) {
		turn(f);
		assert_true(clock_ms() < give_up_ms);
	}
}

static void a_recall_drops_what_was_to_be_sent_one_by_one(void **state _unused_)
{
	static const enum error_kind kinds[] = { ERROR_NONE, ERROR_REJECTED, ERROR_LOST, ERROR_LOST };
	struct event events[] = { event_of("1", "a", GOOD), event_of("2", "b", BAD), event_of("3", "c", GOOD),
				  event_of("4", "d", GOOD) };
	struct fixture f;

	fixture_open(&f, "jsonb", NULL);
	while (sink_postgres.submit(f.sink, (struct event *[]){ &events[0], &events[1], &events[2], &events[3] }, 4) == 0)
		turn(&f);
	await_outcome(&f);              /* of the first one; the second is under way */
	assert_ptr_equal(mailbox_take(&f.box), &events[0]);
	sink_postgres.recall(f.sink);
	assert_ptr_equal(mailbox_take(&f.box), &events[2]);
	await_outcome(&f);
	assert_ptr_equal(mailbox_take(&f.box), &events[1]);
	assert_kinds(events, 4, kinds);
	assert_answer(&f, STORED, "1:a:1");
	/* Nothing is under way, and nothing is left behind. */
	sink_postgres.recall(f.sink);
	deliver(&f, &events[2], 2);
	assert_all_delivered(&events[2], 2);
	assert_answer(&f, STORED, "1:a:1 3:c:1 4:d:1");
	fixture_close(&f);
}

static void a_recall_takes_back_a_statement_that_is_not_sent_as_a_whole(void **state _unused_)
{
	size_t len = 64 << 20;
	_cleanup_(mem_freep) char *large = NULL;
	struct event first = event_of("1", "a", GOOD), ev;
	int64_t deadline;
	struct fixture f;
	short want = 0;

	fixture_open(&f, "text", NULL); /* which leaves the test where there is no server */
	large = mem_alloc(len);
	memset(large, 'x', len);
	ev = event_of("2", "a", (struct slice){ large, len });
	deliver(&f, &first, 1);
	assert_int_equal(sink_postgres.submit(f.sink, (struct event *[]){ &ev }, 1), 1);
	sink_postgres.pollfd(f.sink, &want, &deadline);
	assert_true(want & POLLOUT);
	sink_postgres.recall(f.sink);
	assert_ptr_equal(mailbox_take(&f.box), &ev);
	assert_kinds(&ev, 1, (enum error_kind[]){ ERROR_LOST });
	ev.payload = GOOD;
	deliver(&f, &ev, 1);
	assert_all_delivered(&ev, 1);
	assert_answer(&f, STORED, "1:a:1 2:a:2");
	assert_answer(&f, "SELECT length(payload)::text FROM " STORE " WHERE message_id = '2'", "8");
	fixture_close(&f);
}

static void many_events_go_in_several_statements(void **state _unused_)
{
	static struct event events[EVENTS_MAX];
	static char ids[EVENTS_MAX][16], entities[EVENTS_MAX][16];
	struct fixture f;

	for (uint32_t i = 0; i < EVENTS_MAX; i++) {
		snprintf(ids[i], sizeof(ids[i]), "%u", i);
		snprintf(entities[i], sizeof(entities[i]), "%u", i % 7);
		events[i] = event_of(ids[i], entities[i], GOOD);
	}
	fixture_open(&f, "json", NULL);
	deliver(&f, events, EVENTS_MAX);
	assert_all_delivered(events, EVENTS_MAX);
	assert_answer(&f, "SELECT count(*) || ' ' || bool_and(message_id::int / 7 + 1 = version) FROM " STORE, "1200 true");
	fixture_close(&f);
}

static void a_terminated_session_is_an_outage_and_loses_nothing(void **state _unused_)
{
	struct event events[] = { event_of("1", "a", GOOD), event_of("2", "a", GOOD) };
	struct event *first[] = { &events[0] };
	struct fixture f;

	fixture_open(&f, "json", NULL);
	deliver(&f, events, 1);
	/* The statement waits for the lock when its session ends. */
	run(f.admin, "BEGIN; LOCK TABLE " STORE);
	first[0] = &events[1];
	assert_int_equal(sink_postgres.submit(f.sink, first, 1), 1);
	turn(&f);
	run(f.admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postrider event store';"
		     " COMMIT");
	while (!atomic_load(&f.box.newest))
		turn(&f);
	mailbox_take(&f.box);
	assert_kinds(events, 2, (enum error_kind[]){ ERROR_NONE, ERROR_TRANSPORT });
	deliver(&f, events + 1, 1);
	assert_all_delivered(events, 2);
	assert_answer(&f, STORED, "1:a:1 2:a:2");
	fixture_close(&f);
}

static void a_missing_table_is_reported_by_one_event_per_attempt(void **state _unused_)
{
	struct event ev = event_of("1", "a", GOOD);
	struct event *one[] = { &ev };
	struct fixture f;

	fixture_open(&f, "json", NULL);
	run(f.admin, "ALTER TABLE " STORE " RENAME TO other");
	deliver(&f, &ev, 1);
	assert_string_equal(ev.failure->message, "the event store " STORE " does not exist");
	assert_kinds(&ev, 1, (enum error_kind[]){ ERROR_CONFIG });
	assert_int_equal(sink_postgres.submit(f.sink, one, 1), 0);
	run(f.admin, "ALTER TABLE postrider_test.other RENAME TO event");
	deliver(&f, &ev, 1);
	assert_all_delivered(&ev, 1);
	fixture_close(&f);
}

/* Settles as a reader does: the rider's writes and the DELETE in one implicit transaction of a pipeline. */
static bool settle(struct fixture *f, PGconn *reader, struct event *first, uint32_t n, bool fails)
{
	const char *last = fails ? "SELECT 1 / 0" : "DELETE FROM postrider_test.outbox";
	struct event *events[EVENTS_MAX];
	uint32_t results;
	struct error err;
	bool committed = true;

	for (uint32_t i = 0; i < n; i++)
		events[i] = first + i;
	if (!sink_postgres.ride(f->sink, reader, events, n, false, &results, &err))
		fail_msg("%s", err.message);
	assert_true(PQsendQueryParams(reader, last, 0, NULL, NULL, NULL, NULL, 0));
	assert_true(PQpipelineSync(reader));
	for (uint32_t i = 0; i < results + 1; i++) {
		PGresult *res = PQgetResult(reader);
		ExecStatusType status = PQresultStatus(res);

		committed = committed && (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK);
		PQclear(res);
		assert_null(PQgetResult(reader));
	}
	PQclear(PQgetResult(reader));
	return committed;
}

static PGconn *open_reader(struct fixture *f)
{
	PGconn *reader;
	struct error err;

	assert_true(pg_connect(&f->database, "test reader", -1, &reader, &err));
	assert_true(pg_apply_reader_settings(reader, &f->database, &err));
	assert_true(PQenterPipelineMode(reader));
	return reader;
}

static bool has_own_session(struct fixture *f)
{
	_cleanup_(mem_freep) char *count = ask(f->admin, "SELECT count(*) FROM pg_stat_activity"
							 " WHERE application_name = 'postrider event store'");

	return strcmp(count, "0") != 0;
}

static void a_ride_shares_the_fate_of_the_settling_transaction(void **state _unused_)
{
	_cleanup_(pg_closep) PGconn *reader = NULL;
	struct event events[] = { event_of("1", "a", GOOD), event_of("2", "a", GOOD), event_of("3", "b", GOOD) };
	struct fixture f;

	fixture_open(&f, "json", "here");
	run(f.admin, "INSERT INTO postrider_test.outbox VALUES ('1')");
	reader = open_reader(&f);
	assert_true(sink_postgres.rides(f.sink));
	deliver(&f, events, 3);
	assert_all_delivered(events, 3);
	assert_answer(&f, STORED, "");

	assert_false(settle(&f, reader, events, 2, true));
	assert_answer(&f, STORED, "");
	assert_true(settle(&f, reader, events, 2, false));
	assert_answer(&f, STORED, "1:a:1 2:a:2");
	assert_answer(&f, "SELECT count(*) FROM postrider_test.outbox", "0");
	assert_true(settle(&f, reader, events + 2, 1, false));
	assert_answer(&f, STORED, "1:a:1 2:a:2 3:b:1");
	/* Nobody needs the connection that looked the table up. */
	for (int64_t give_up_ms = clock_ms() + 5000; has_own_session(&f); turn(&f))
		assert_true(clock_ms() < give_up_ms);
	fixture_close(&f);
}

static void a_ride_follows_the_reader_to_its_next_connection(void **state _unused_)
{
	struct event events[] = { event_of("1", "a", GOOD), event_of("2", "a", GOOD) };
	struct fixture f;

	fixture_open(&f, "json", "here");
	deliver(&f, events, 2);
	for (int i = 0; i < 2; i++) {
		_cleanup_(pg_closep) PGconn *reader = open_reader(&f);

		assert_true(settle(&f, reader, events + i, 1, false));
	}
	assert_answer(&f, STORED, "1:a:1 2:a:2");
	fixture_close(&f);
}

/* As the worker does it: the rows that failed together are settled one by one. */
static void a_bad_row_fails_its_ride_and_no_other(void **state _unused_)
{
	struct event events[] = { event_of("1", "a", GOOD), event_of("2", "b", BAD), event_of("3", "c", GOOD) };
	_cleanup_(pg_closep) PGconn *reader = NULL;
	struct fixture f;

	fixture_open(&f, "json", "here");
	reader = open_reader(&f);
	deliver(&f, events, 3);
	assert_all_delivered(events, 3);
	assert_false(settle(&f, reader, events, 3, false));
	assert_true(settle(&f, reader, events, 1, false));
	assert_false(settle(&f, reader, events + 1, 1, false));
	assert_true(settle(&f, reader, events + 2, 1, false));
	assert_answer(&f, STORED, "1:a:1 3:c:1");
	fixture_close(&f);
}

static void a_ride_recovers_when_the_table_changes_under_it(void **state _unused_)
{
	struct event events[] = { event_of("1", "a", GOOD), event_of("2", "a", GOOD), event_of("3", "a", GOOD) };
	_cleanup_(pg_closep) PGconn *reader = NULL;
	struct fixture f;

	fixture_open(&f, "json", "here");
	reader = open_reader(&f);
	deliver(&f, events, 3);
	/* Gone before the statement was ever prepared, and back. */
	run(f.admin, "ALTER TABLE " STORE " RENAME TO other");
	assert_false(settle(&f, reader, events, 1, false));
	run(f.admin, "ALTER TABLE postrider_test.other RENAME TO event");
	assert_true(settle(&f, reader, events, 1, false));
	assert_true(settle(&f, reader, events + 1, 1, false));
	/* Another type: the sink looks again. */
	run(f.admin, "ALTER TABLE " STORE " ALTER COLUMN payload TYPE bytea USING convert_to(payload::text, 'UTF8')");
	for (int64_t give_up_ms = clock_ms() + 10000; !settle(&f, reader, events + 2, 1, false); turn(&f))
		assert_true(clock_ms() < give_up_ms);
	assert_answer(&f, STORED, "1:a:1 2:a:2 3:a:3");
	fixture_close(&f);
}

static void it_rides_only_where_the_reader_settles(void **state _unused_)
{
	static const struct {
		const char *url, *identity;
		bool last, rides;
	} cases[] = {
		{ "", "here", true, true },
		{ "", NULL, true, false },
		{ "", "here", false, false },
		{ "postgresql://u@h:1/d", "here", true, true },
		{ "host=h port=1 user=u dbname=d", "here", true, true },
		{ "postgresql://u@h:1/other", "here", true, false },
		{ "postgresql://u@h2:1/d", "here", true, false },
		{ "postgresql://writer@h:1/d", "here", true, false },
		{ "not a url", "here", true, false },
	};
	struct database_config outbox = { .url = (char *)"postgresql://u@h:1/d", .password_file = (char *)"" };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct sink_config config = {
			.postgres = { .database = { .url = (char *)cases[i].url, .password_file = (char *)"" },
				      .table = (char *)STORE },
			.outbox_database = &outbox,
		};
		struct mailbox box;
		struct sink_env env = { .outcomes = &box, .reader_identity = cases[i].identity, .last = cases[i].last };
		struct sink_target *target;
		struct sink *sink;
		struct error err;

		mailbox_init(&box);
		assert_true(sink_postgres.target_open(&config, &target, &err));
		assert_true(sink_postgres.open(target, &env, &sink, &err));
		if (sink_postgres.rides(sink) != cases[i].rides)
			fail_msg("case %zu: %s", i, cases[i].url);
		sink_postgres.close(sink);
		sink_postgres.target_close(target);
		mailbox_release(&box);
	}
}

static void check_finds_what_is_wrong_and_how_to_mend_it(void **state _unused_)
{
	static const struct {
		const char *breaks, *what, *fix;
	} cases[] = {
		{ "DROP TABLE " STORE, "the event store " STORE " does not exist",
		  "CREATE TABLE " STORE " (LIKE postrider.event INCLUDING ALL);" },
		{ "ALTER TABLE " STORE " DROP COLUMN headers", "the event store " STORE " has no column headers",
		  "ALTER TABLE " STORE " ADD COLUMN headers jsonb;" },
		{ "ALTER TABLE " STORE " DROP CONSTRAINT event_message_id_key",
		  "\"postrider_test\".\"event\" has no unique index on message_id, so events could be stored twice",
		  "CREATE UNIQUE INDEX CONCURRENTLY ON \"postrider_test\".\"event\" (message_id);" },
		{ "ALTER TABLE " STORE " DROP CONSTRAINT event_entity_type_entity_id_version_key",
		  "\"postrider_test\".\"event\" has no unique index on entity_type, entity_id and version, so finding the"
		  " next version reads all of it",
		  "CREATE UNIQUE INDEX CONCURRENTLY ON \"postrider_test\".\"event\" (entity_type, entity_id, version);" },
		{ "ALTER TABLE " STORE " ADD COLUMN tenant text NOT NULL",
		  "\"postrider_test\".\"event\" has columns that postrider does not fill and that must have a value: tenant",
		  "give each of them a DEFAULT, or let it be NULL" },
		{ "ALTER TABLE " STORE " ALTER COLUMN payload TYPE int USING NULL",
		  "column payload of \"postrider_test\".\"event\" is integer; it can be json, jsonb, text or bytea",
		  "ALTER TABLE \"postrider_test\".\"event\" ALTER COLUMN payload TYPE json USING payload::text::json;" },
	};
	struct fixture f;

	fixture_open(&f, "json", NULL);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct finding_list findings = { 0 };

		create_store(f.admin, "json");
		sink_postgres.check(f.target, NULL, &findings);
		assert_int_equal(findings.count, 1);
		if (findings.items[0].level != FINDING_OK)
			fail_msg("%s", findings.items[0].what);
		finding_release(&findings);

		findings = (struct finding_list){ 0 };
		run(f.admin, cases[i].breaks);
		sink_postgres.check(f.target, NULL, &findings);
		assert_int_equal(findings.items[0].level, FINDING_FAIL);
		assert_string_equal(findings.items[0].what, cases[i].what);
		assert_string_equal(findings.items[0].fix, cases[i].fix);
		finding_release(&findings);
	}
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_rides_only_where_the_reader_settles),
		cmocka_unit_test(versions_are_contiguous_per_entity_and_duplicates_are_ignored),
		cmocka_unit_test(an_event_is_stored_with_all_it_has),
		cmocka_unit_test(every_byte_survives_in_bytea),
		cmocka_unit_test(text_and_jsonb_take_their_payloads),
		cmocka_unit_test(only_the_bad_row_is_rejected_and_no_later_one_overtakes_it),
		cmocka_unit_test(nothing_is_taken_while_a_failure_is_unread),
		cmocka_unit_test(a_recall_drops_what_was_to_be_sent_one_by_one),
		cmocka_unit_test(a_recall_takes_back_a_statement_that_is_not_sent_as_a_whole),
		cmocka_unit_test(many_events_go_in_several_statements),
		cmocka_unit_test(a_terminated_session_is_an_outage_and_loses_nothing),
		cmocka_unit_test(a_missing_table_is_reported_by_one_event_per_attempt),
		cmocka_unit_test(a_ride_shares_the_fate_of_the_settling_transaction),
		cmocka_unit_test(a_ride_follows_the_reader_to_its_next_connection),
		cmocka_unit_test(a_bad_row_fails_its_ride_and_no_other),
		cmocka_unit_test(a_ride_recovers_when_the_table_changes_under_it),
		cmocka_unit_test(check_finds_what_is_wrong_and_how_to_mend_it),
	};

	if (!getenv("POSTRIDER_TEST_DSN"))
		print_message("POSTRIDER_TEST_DSN is not set: tests that need a server are skipped\n");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
