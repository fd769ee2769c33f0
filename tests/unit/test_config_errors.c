/* Wrong settings, and exactly what a user reads about them. */
#include "config_fixture.h"

static void wrong_files_are_told_with_their_place(void **state _unused_)
{
	static const struct {
		const char *yaml, *errors;
	} cases[] = {
		/* Not YAML, or more YAML than a settings file has. */
		{ "a: [1, 2\nb: 3\n",
		  "f.yaml:2:2: not valid YAML: while parsing a flow sequence, did not find expected ',' or ']'\n" },
		{ "a: \"x",
		  "f.yaml:1:6: not valid YAML: while scanning a quoted scalar, found unexpected end of stream\n" },
		{ "\tnode: x\n",
		  "f.yaml:1:1: not valid YAML: while scanning for the next token, found character that cannot start "
		  "any token\n" },
		{ "node: a\nlog: \x01\n", "f.yaml:2:6: not valid YAML: control characters are not allowed\n" },
		{ "node: a\nlog: \xff\n", "f.yaml:2:6: not valid YAML: invalid leading UTF-8 octet\n" },
		{ "- a\n", "f.yaml:1:1: a settings file must be a mapping, not a list\n" },
		{ "hello\n", "f.yaml:1:1: a settings file must be a mapping, not text\n" },
		{ "node: &a x\n", "f.yaml:1:7: anchors and aliases are not supported; write the value out\n" },
		{ "node: *a\n", "f.yaml:1:7: anchors and aliases are not supported; write the value out\n" },
		{ "node: !!str x\n", "f.yaml:1:7: tags are not supported; write the value without it\n" },
		{ "{a: b}: c\n", "f.yaml:1:1: a key must be plain text\n" },
		{ "node: \"a\\0b\"\n", "f.yaml:1:7: a value must not contain a NUL character\n" },
		{ "node: a\n---\nnode: b\n", "f.yaml:2:1: only one YAML document is expected\n" },
		{ "a: [[[[[[[[[[[[[[[[x]]]]]]]]]]]]]]]]\n", "f.yaml:1:19: nested too deeply for a settings file\n" },

		/* Keys. */
		{ "databse: {}\n" OUTBOX SINK, "f.yaml:1:1: unknown key \"databse\"; did you mean `database`?\n" },
		{ "zzz: 1\n" OUTBOX SINK,
		  "f.yaml:1:1: unknown key \"zzz\"; known are node, heartbeat, stop_timeout, log, database, http, "
		  "outboxes\n" },
		{ "log: {levl: info}\n" OUTBOX SINK, "f.yaml:1:7: unknown key \"levl\"; did you mean `level`?\n" },
		{ OUTBOX "    wrokers: 4\n" SINK, "f.yaml:3:5: unknown key \"wrokers\"; did you mean `workers`?\n" },
		{ OUTBOX "    route: {\"to\\npic\": x}\n" SINK,
		  "f.yaml:3:13: unknown key \"to\\u000apic\"; did you mean `topic`?\n" },
		{ OUTBOX "    route.topic: x\n" SINK,
		  "f.yaml:3:5: unknown key \"route.topic\"; known are table, preset, reader, workers, batch_size, "
		  "batch_max, entity_max_rows, in_flight_bytes, settle, lease, order, poll_interval, wakeup, order_by, "
		  "published, retention, shards, wal, failure, partitions, columns, route, sinks, branches\n" },
		{ "node: a\nlog: {}\nnode: b\n" OUTBOX SINK, "f.yaml:3:1: key \"node\" is given twice; the first is at "
		"line 1\n" },
		{ OUTBOX SINK "  orders:\n" SINK,
		  "f.yaml:4:3: key \"orders\" is given twice; the first is at line 2\n" },
		{ OUTBOX "    sinks: [{type: stdout, brokers: x}]\n",
		  "f.yaml:3:28: `brokers` belongs to sinks of type kafka, and this one is of type stdout\n" },
		{ OUTBOX "    sinks: [{type: stdout, pth: x}]\n",
		  "f.yaml:3:28: unknown key \"pth\"; did you mean `path`?\n" },

		/* Values. */
		{ "stop_timeout: 30\n" OUTBOX SINK,
		  "f.yaml:1:15: `stop_timeout` must be a duration from 0 to 1h, such as 5s, not \"30\"\n" },
		{ "stop_timeout: -1s\n" OUTBOX SINK,
		  "f.yaml:1:15: `stop_timeout` must be a duration from 0 to 1h, such as 5s, not \"-1s\"\n" },
		{ "log: {level: loud}\n" OUTBOX SINK,
		  "f.yaml:1:14: `log.level` must be error, warn, info or debug, not \"loud\"\n" },
		{ "log: quiet\n" OUTBOX SINK, "f.yaml:1:6: `log` must be a mapping, not text\n" },
		{ "node: [a]\n" OUTBOX SINK, "f.yaml:1:7: `node` must be text, not a list\n" },
		{ "node: |\n  a\n" OUTBOX SINK,
		  "f.yaml:1:7: `node` must be text without line breaks or control characters\n" },
		{ "database: {url: \"postgresql://u:geheim@h\\n\"}\n" OUTBOX SINK,
		  "f.yaml:1:17: `database.url` must be text without line breaks or control characters\n" },
		{ OUTBOX "    workers: 0\n" SINK,
		  "f.yaml:3:14: `workers` must be a whole number from 1 to 256, not \"0\"\n" },
		{ OUTBOX "    workers:\n" SINK,
		  "f.yaml:3:13: `workers` must be a whole number from 1 to 256, not empty\n" },
		{ OUTBOX "    workers: {a: b}\n" SINK,
		  "f.yaml:3:14: `workers` must be a whole number from 1 to 256, not a mapping\n" },
		{ OUTBOX "    in_flight_bytes: 4MB\n" SINK,
		  "f.yaml:3:22: `in_flight_bytes` must be a size from 64KiB to 4GiB, such as 4MiB, not \"4MB\"\n" },
		{ OUTBOX "    batch_size: 99999999999999999999\n" SINK,
		  "f.yaml:3:17: `batch_size` must be a whole number from 1 to 100000, not \"99999999999999999999\"\n" },
		{ OUTBOX "    table: ''\n" SINK, "f.yaml:3:12: `table` must be text, not empty\n" },
		{ OUTBOX "    columns: {id: ''}\n" SINK,
		  "f.yaml:3:19: `columns.id` must be a column name, not empty\n" },
		{ OUTBOX "    preset: debezum\n" SINK,
		  "f.yaml:3:13: `preset` must be postrider or debezium, not \"debezum\"\n" },
		{ OUTBOX "    route: {tombstone: yes}\n" SINK,
		  "f.yaml:3:24: `route.tombstone` must be true or false, not \"yes\"\n" },
		{ OUTBOX "    route: {headers: x}\n" SINK,
		  "f.yaml:3:22: `route.headers` must be a mapping of names to templates, not text\n" },
		{ OUTBOX "    route: {headers: {a: [b]}}\n" SINK,
		  "f.yaml:3:26: a value of `route.headers` must be text, not a list\n" },
		{ OUTBOX "    route: {headers: {'': b}}\n" SINK,
		  "f.yaml:3:27: `route.headers` must have names that are not empty and without control characters\n" },
		{ OUTBOX "    sinks: [{type: kafka, brokers: b, sasl_mechanism: MD5}]\n",
		  "f.yaml:3:55: `sasl_mechanism` must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, not \"MD5\"\n" },

		/* What is missing or does not fit together. */
		{ "",
		  "f.yaml: no outbox; write for example `outboxes: {orders: {table: public.outbox, sinks: [{type: "
		  "stdout}]}}`\n" },
		{ "outboxes: {}\n",
		  "f.yaml: no outbox; write for example `outboxes: {orders: {table: public.outbox, sinks: [{type: "
		  "stdout}]}}`\n" },
		{ "outboxes: [a]\n", "f.yaml:1:11: `outboxes` must be a mapping of names to outboxes, not a list\n" },
		{ "outboxes: {orders: }\n",
		  "f.yaml:1:12: outbox `orders` has no sinks; write for example `sinks: [{type: stdout}]`\n" },
		{ "outboxes: {orders: {sinks: []}}\n",
		  "f.yaml:1:12: outbox `orders` has no sinks; write for example `sinks: [{type: stdout}]`\n" },
		{ "outboxes: {orders: {sinks: stdout}}\n",
		  "f.yaml:1:28: `sinks` must be a list, which begins with `- type: …`, not text\n" },
		{ "outboxes: {orders: {sinks: [stdout]}}\n", "f.yaml:1:29: a sink must be a mapping, not text\n"
							    "f.yaml:1:29: a sink needs a `type`: kafka, nats, postgres, queue, rabbitmq, redis, stdout or webhook\n" },
		{ "outboxes: {Orders: {sinks: [{type: stdout}]}}\n",
		  "f.yaml:1:12: the name of an outbox must be 1 to 40 small letters, digits, _ or -, not "
		  "\"Orders\"\n" },
		{ OUTBOX "    sinks: [{name: x}]\n",
		  "f.yaml:3:13: a sink needs a `type`: kafka, nats, postgres, queue, rabbitmq, redis, stdout or webhook\n" },
		{ OUTBOX "    sinks: [{type: ''}]\n", "f.yaml:3:20: `type` must be text, not empty\n" },
		{ OUTBOX "    sinks: [{type: kafak, brokers: b}]\n",
		  "f.yaml:3:20: this build has no sink of type \"kafak\"; did you mean `kafka`?\n" },
		{ OUTBOX "    sinks: [{type: carrier-pigeon}]\n",
		  "f.yaml:3:20: this build has no sink of type \"carrier-pigeon\"; known are kafka, postgres, "
		  "stdout\n" },
		{ OUTBOX "    sinks: [{type: kafka}]\n", "f.yaml:3:13: a sink of type kafka needs `brokers`\n" },
		{ OUTBOX "    sinks: [{type: kafka, brokers: b, sasl_username: u}]\n",
		  "f.yaml:3:54: `sasl_username` means nothing without `sasl_mechanism`\n" },
		{ OUTBOX "    sinks: [{type: stdout}, {type: stdout, path: /tmp/x}]\n",
		  "f.yaml:3:29: two sinks of this outbox are called stdout; give one of them a `name`\n" },
		{ OUTBOX "    reader: advisary\n" SINK,
		  "f.yaml:3:13: this build has no reader \"advisary\"; did you mean `advisory`?\n" },
		{ OUTBOX "    batch_max: 50\n" SINK,
		  "f.yaml:3:16: `batch_max` is 50, which is less than `batch_size`, 100\n" },
		{ OUTBOX SINK "  again:\n" SINK,
		  "f.yaml:4:3: outbox `orders` reads table \"public.outbox\" already; one outbox may have several "
		  "sinks\n" },

		{ "http: {listen: \"0.0.0.0:9187\"}\n" OUTBOX SINK,
		  "f.yaml:1:16: other machines can reach 0.0.0.0:9187: name a file with a token in `http.token_file`, or listen "
		  "on 127.0.0.1\n" },
		{ "http: {listen: \"relay:9187\"}\n" OUTBOX SINK,
		  "f.yaml:1:16: `http.listen` must be an address in digits, or localhost, and a port from 1 to 65535, such as "
		  "`127.0.0.1:9187` or `[::1]:9187`\n" },

		/* Several at once. */
		{ "nod: a\nlog: {level: loud}\n" OUTBOX "    workers: many\n    sinks: [{type: kafka}]\n",
		  "f.yaml:1:1: unknown key \"nod\"; did you mean `node`?\n"
		  "f.yaml:2:14: `log.level` must be error, warn, info or debug, not \"loud\"\n"
		  "f.yaml:5:14: `workers` must be a whole number from 1 to 256, not \"many\"\n"
		  "f.yaml:6:13: a sink of type kafka needs `brokers`\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mem_freep) char *errors = NULL;
		struct config *c = NULL;

		assert_false(load_request(cases[i].yaml, (struct config_request){ 0 }, &c, &errors));
		assert_null(c);
		assert_string_equal(errors, cases[i].errors);
	}
}

static void wrong_variables_and_flags_are_told_by_name(void **state _unused_)
{
	static const char yaml[] = OUTBOX "    sinks: [{type: kafka, brokers: b}]\n";
	static const struct {
		const char *variable;   /* or NULL */
		const char *set;        /* or NULL */
		const char *errors;
	} cases[] = {
		{ "OUTBOX_WORKER_COUNT=many", NULL,
		  "OUTBOX_WORKER_COUNT: must be a whole number from 1 to 256, not \"many\"\n" },
		{ "POSTRIDER_OUTBOXES_ORDERS_POLL_INTERVAL=5", NULL,
		  "POSTRIDER_OUTBOXES_ORDERS_POLL_INTERVAL: must be a duration from 10ms to 1h, such as 5s, not "
		  "\"5\"\n" },
		{ "POSTRIDER_OUTBOXES_ORDERS_ROUTE_HEADERS=x", NULL,
		  "POSTRIDER_OUTBOXES_ORDERS_ROUTE_HEADERS: must be a YAML mapping such as {name: value}, not text\n" },
		{ "POSTRIDER_OUTBOXES_ORDERS_ROUTE_HEADERS={a: [b]}", NULL,
		  "POSTRIDER_OUTBOXES_ORDERS_ROUTE_HEADERS: a value of the mapping must be text, not a list\n" },
		{ NULL, "outboxes.orders.workers", "--set: expects key=value, such as outboxes.orders.workers=8\n" },
		{ NULL, "=8", "--set: expects key=value, such as outboxes.orders.workers=8\n" },
		{ NULL, "outboxes.orders.workers=many",
		  "--set outboxes.orders.workers: must be a whole number from 1 to 256, not \"many\"\n" },
		{ NULL, "outboxes.orders.worker=8",
		  "--set outboxes.orders.worker: unknown setting \"worker\"; did you mean `workers`?\n" },
		{ NULL, "outboxes.order.workers=8",
		  "--set outboxes.order.workers: there is no outbox \"order\"; did you mean `orders`?\n" },
		{ NULL, "outboxes.orders.sinks.2.type=stdout",
		  "--set outboxes.orders.sinks.2.type: there is no such sink: outbox `orders` has 1, counted from 0; "
		  "setting sinks.1.type adds one\n" },
		{ NULL, "outboxes.orders.route.headers=x",
		  "--set outboxes.orders.route.headers: needs a name: outboxes.orders.route.headers.<name>=<value>\n" },
		{ NULL, "database.url=postgresql://app:geheim@db/shop",
		  "--set database.url: holds a secret, and other users can see the arguments of a process; use a "
		  "password file, the environment or the settings file\n" },
		{ NULL, "database.url=host=db password=geheim",
		  "--set database.url: holds a secret, and other users can see the arguments of a process; use a "
		  "password file, the environment or the settings file\n" },
		{ NULL, "outboxes.orders.sinks.0.properties.sasl.password=geheim",
		  "--set outboxes.orders.sinks.0.properties.sasl.password: holds a secret, and other users can see the "
		  "arguments of a process; use a password file, the environment or the settings file\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *const environment[] = { cases[i].variable, NULL };
		struct config_request req = {
			.environment = (char *const *)environment,
			.sets = &cases[i].set,
			.n_sets = cases[i].set ? 1 : 0,
		};
		_cleanup_(mem_freep) char *errors = NULL;
		struct config *c = NULL;

		assert_false(load_request(yaml, req, &c, &errors));
		assert_string_equal(errors, cases[i].errors);
	}
}

static void unknown_variables_are_warnings(void **state _unused_)
{
	static const char *const environment[] = {
		"POSTRIDER_SERVICE_HOST=10.0.0.1",
		"POSTRIDER_OUTBOXES_ORDERS_WORKER=8",
		"POSTRIDER_TEST_DSN=x",
		NULL,
	};
	struct config_request req = { .environment = (char *const *)environment };
	_cleanup_(mem_freep) char *errors = NULL;
	_cleanup_(config_freep) struct config *c = NULL;

	assert_true(load_request(OUTBOX SINK, req, &c, &errors));
	assert_string_equal(errors, "POSTRIDER_SERVICE_HOST: warning: not a setting of postrider\n"
				    "POSTRIDER_OUTBOXES_ORDERS_WORKER: warning: not a setting of postrider; did you "
				    "mean POSTRIDER_OUTBOXES_ORDERS_WORKERS?\n");
}

static void a_variable_with_two_meanings_is_refused(void **state _unused_)
{
	static const char *const environment[] = { "POSTRIDER_OUTBOXES_A_B_WORKERS=8", NULL };
	struct config_request req = { .environment = (char *const *)environment };
	_cleanup_(mem_freep) char *errors = NULL;
	struct config *c = NULL;

	assert_false(load_request("outboxes:\n"
				  "  a-b: {table: x, sinks: [{type: stdout}]}\n"
				  "  a_b: {table: y, sinks: [{type: stdout}]}\n",
				  req, &c, &errors));
	assert_string_equal(errors, "POSTRIDER_OUTBOXES_A_B_WORKERS: could mean `outboxes.a-b.workers` or "
	"`outboxes.a_b.workers`; use --set\n");
}

static void nothing_to_publish_to_is_told(void **state _unused_)
{
	_cleanup_(mem_freep) char *errors = NULL;
	struct config *c = NULL;

	assert_false(load_request(NULL, (struct config_request){ 0 }, &c, &errors));
	assert_string_equal(errors, "there is no settings file, and nothing says where to publish; name a file with "
	"--config, or set POSTRIDER_OUTBOXES_OUTBOX_SINKS_0_TYPE\n");
}

static void a_file_that_cannot_be_read_is_told(void **state _unused_)
{
	static const struct {
		const char *path, *errors;
	} cases[] = {
		{ "/nowhere/postrider.yaml",
		  "/nowhere/postrider.yaml: could not open the settings file: No such file or directory\n" },
		{ "/tmp", "/tmp: could not read the settings file: Is a directory\n" },
		{ "/dev/zero", "/dev/zero: larger than 1 MiB, which no settings file is\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mem_freep) char *errors = NULL;
		struct config *c = NULL;

		assert_false(load_request(NULL, (struct config_request){ .path = cases[i].path }, &c, &errors));
		assert_string_equal(errors, cases[i].errors);
	}
}

/* `count` items of a list inside of one outbox. */
static char *many(const char *before, const char *item, size_t count, const char *after)
{
	struct buf b = { .ceiling = 1024 * 1024 };

	buf_add_str(&b, before);
	for (size_t i = 0; i < count; i++)
		buf_printf(&b, item, i, i);
	buf_add_str(&b, after);
	return buf_take(&b);
}

static void sizes_of_a_file_are_bounded(void **state _unused_)
{
	static const struct {
		const char *before, *item;
		size_t count;
		const char *after, *errors;
	} cases[] = {
		{ "outboxes: {", "o%zu: {table: t%zu, sinks: [{type: stdout}]},", 65, "}",
		  "f.yaml:1:1: a process may have 64 outboxes at most\n" },
		{ "outboxes: {a: {sinks: [", "{type: stdout, name: s%zu},", 17, "]}}",
		  "f.yaml:1:16: an outbox may have 16 sinks at most\n" },
		{ "[", "%zu,", 6000, "]", "f.yaml:1:23887: too many values for a settings file\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mem_freep) char *yaml = many(cases[i].before, cases[i].item, cases[i].count, cases[i].after);
		_cleanup_(mem_freep) char *errors = NULL;
		struct config *c = NULL;

		assert_false(load_request(yaml, (struct config_request){ 0 }, &c, &errors));
		assert_string_equal(errors, cases[i].errors);
	}
}

static void no_more_errors_are_shown_than_somebody_reads(void **state _unused_)
{
	_cleanup_(mem_freep) char *yaml = many("", "zzzzzz%zu: x\n", 150, "outboxes: {a: {sinks: [{type: stdout}]}}\n");
	_cleanup_(mem_freep) char *errors = NULL;
	struct config *c = NULL;

	assert_false(load_request(yaml, (struct config_request){ 0 }, &c, &errors));
	assert_non_null(strstr(errors, "f.yaml:100:1: unknown key"));
	assert_null(strstr(errors, "f.yaml:101:1: unknown key"));
	assert_non_null(strstr(errors, "\nand 50 more errors\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_files_are_told_with_their_place),
		cmocka_unit_test(wrong_variables_and_flags_are_told_by_name),
		cmocka_unit_test(unknown_variables_are_warnings),
		cmocka_unit_test(a_variable_with_two_meanings_is_refused),
		cmocka_unit_test(nothing_to_publish_to_is_told),
		cmocka_unit_test(a_file_that_cannot_be_read_is_told),
		cmocka_unit_test(sizes_of_a_file_are_bounded),
		cmocka_unit_test(no_more_errors_are_shown_than_somebody_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
