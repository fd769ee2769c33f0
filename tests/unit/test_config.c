/* What a configuration becomes. What is wrong with one is in test_config_errors.c. */
#include <unistd.h>

#include "config_fixture.h"

/* Loads what must load without a word. */
static struct config *loaded(const char *yaml, const char *const *environment, const char *const *sets, size_t n_sets)
{
	struct config_request req = { .environment = (char *const *)environment, .sets = sets, .n_sets = n_sets };
	_cleanup_(mem_freep) char *errors = NULL;
	struct config *config = NULL;

	if (!load_request(yaml, req, &config, &errors) || errors[0])
		fail_msg("%s", errors);
	return config;
}

static void defaults_are_those_of_the_documentation(void **state _unused_)
{
	_cleanup_(config_freep) struct config *c = loaded(OUTBOX SINK, NULL, NULL, 0);
	const struct outbox_config *o = &c->outboxes[0];

	assert_string_equal(c->file, "f.yaml");
	assert_true(c->node[0] != '\0');
	assert_int_equal(c->stop_timeout_ms, 30000);
	assert_int_equal(c->log.level, LOG_LEVEL_INFO);
	assert_string_equal(c->database.url, "");
	assert_int_equal(c->database.idle_session_timeout_ms, 30000);
	assert_int_equal(c->n_outboxes, 1);
	assert_string_equal(o->name, "orders");
	assert_string_equal(o->where, "f.yaml:2:3");
	assert_string_equal(o->table, "public.outbox");
	assert_string_equal(o->reader, "advisory");
	assert_int_equal(o->workers, 4);
	assert_int_equal(o->batch_size, 100);
	assert_int_equal(o->batch_max, 1000);
	assert_int_equal(o->poll_interval_ms, 5000);
	assert_int_equal(o->in_flight_bytes, 2 * 1024 * 1024);
	assert_int_equal(o->wakeup, WAKEUP_ARMED);
	assert_string_equal(o->columns.entity_id.name, "entity_id");
	assert_null(o->columns.entity_id.where);
	assert_string_equal(o->route.topic, "outbox.event.{entity_type}");
	assert_string_equal(o->route.source, "/postrider/orders");
	assert_int_equal(o->n_sinks, 1);
	assert_string_equal(o->sinks[0].name, "stdout");
	assert_string_equal(o->sinks[0].where, "f.yaml:3:13");
	assert_string_equal(o->sinks[0].std.path, "-");
	assert_ptr_equal(o->sinks[0].outbox_database, &c->database);
	/* Settings of other types are there too, so that nobody meets a NULL. */
	assert_string_equal(o->sinks[0].kafka.brokers, "");
	assert_int_equal(o->sinks[0].postgres.database.connect_timeout_ms, 10000);
}

static void a_file_sets_everything(void **state _unused_)
{
	static const char yaml[] =
		"node: relay-1\n"
		"stop_timeout: 1m\n"
		"log: {level: debug, format: json}\n"
		"database: {url: 'postgresql://app@db/shop', password_file: /run/secrets/pg, tls: off, pooler: "
		"session}\n"
		"outboxes:\n"
		"  orders:\n"
		"    table: shop.events\n"
		"    workers: 8\n"
		"    in_flight_bytes: 512KiB\n"
		"    wakeup: off\n"
		"    order_by: seq\n"
		"    columns: {id: uid, topic: null, headers: ''}\n"
		"    route:\n"
		"      topic: events\n"
		"      headers: {source: orders-service, tenant: '{tenant}'}\n"
		"      envelope: cloudevents\n"
		"      tombstone: true\n"
		"    sinks:\n"
		"      - {type: kafka, brokers: 'a:1,b:2', tls: on, properties: {compression.type: lz4}}\n"
		"      - type: postgres\n"
		"        table: store.event\n"
		"      - {type: stdout, name: copy, path: /var/log/events}\n"
		"  invoices: {table: billing.outbox, sinks: [{type: stdout}]}\n";
	_cleanup_(config_freep) struct config *c = loaded(yaml, NULL, NULL, 0);
	const struct outbox_config *o = &c->outboxes[0];

	assert_string_equal(c->node, "relay-1");
	assert_int_equal(c->stop_timeout_ms, 60000);
	assert_int_equal(c->log.format, LOG_FORMAT_JSON);
	assert_string_equal(c->database.url, "postgresql://app@db/shop");
	assert_int_equal(c->database.tls, DATABASE_TLS_OFF);
	assert_int_equal(c->database.pooler, DATABASE_POOLER_SESSION);
	assert_int_equal(c->n_outboxes, 2);
	assert_int_equal(o->workers, 8);
	assert_int_equal(o->in_flight_bytes, 512 * 1024);
	assert_int_equal(o->wakeup, WAKEUP_OFF);
	assert_string_equal(o->order_by.name, "seq");
	assert_string_equal(o->columns.id.name, "uid");
	assert_string_equal(o->columns.id.where, "f.yaml:12:19");
	assert_string_equal(o->columns.topic.name, "");
	assert_string_equal(o->columns.headers.name, "");
	assert_int_equal(o->route.headers.count, 2);
	assert_string_equal(o->route.headers.pairs[1].key, "tenant");
	assert_string_equal(o->route.headers.pairs[1].value, "{tenant}");
	assert_string_equal(o->route.headers.pairs[1].where, "f.yaml:15:49");
	assert_int_equal(o->route.envelope, ENVELOPE_CLOUDEVENTS);
	assert_true(o->route.tombstone);
	assert_int_equal(o->n_sinks, 3);
	assert_int_equal(o->sinks[0].kafka.tls, SINK_TLS_ON);
	assert_string_equal(o->sinks[0].kafka.properties.pairs[0].key, "compression.type");
	assert_string_equal(o->sinks[1].postgres.table, "store.event");
	assert_string_equal(o->sinks[2].name, "copy");
	assert_string_equal(c->outboxes[1].table, "billing.outbox");
}

static void flags_win_over_environment_over_file_over_preset(void **state _unused_)
{
	static const char *const environment[] = {
		"PATH=/bin",
		"OUTBOX_WORKER_COUNT=5",
		"OUTBOX_BATCH_SIZE=50",
		"OUTBOX_POLL_INTERVAL=1s",
		"POSTRIDER_OUTBOXES_B_C_WORKERS=6",
		"POSTRIDER_OUTBOXES_A_BATCH_SIZE=60",
		"POSTRIDER_DATABASE_URL=postgresql://app:geheim@db/shop",
		"POSTRIDER_DATABASE_PASSWORD_FILE=",
		"POSTRIDER_OUTBOXES_A_COLUMNS_ENTITY_ID=key",
		"POSTRIDER_OUTBOXES_A_SINKS_0_BROKERS=env:9092",
		"POSTRIDER_OUTBOXES_A_SINKS_0_PROPERTIES={linger.ms: 7, compression.type: lz4}",
		"POSTRIDER_OUTBOXES_A_SINKS_1_TYPE=stdout",
		"POSTRIDER_CONFIG=elsewhere",
		NULL,
	};
	static const char *const sets[] = {
		"outboxes.a.batch_size=70",
		"outboxes.a.route.topic=a=b",
		"outboxes.a.sinks.0.properties.linger.ms=9",
		"outboxes.a.sinks.2.type=postgres",
		"database.connect_timeout=2s",
		"outboxes.a.batch_size=71",
	};
	static const char yaml[] = "database: {url: file, password_file: from-file}\n"
				   "outboxes:\n"
				   "  a:\n"
				   "    preset: debezium\n"
				   "    workers: 2\n"
				   "    columns: {event_type: kind}\n"
				   "    sinks: [{type: kafka, brokers: file, properties: {linger.ms: 5, acks: all}}]\n"
				   "  b-c: {table: t, workers: 3, sinks: [{type: stdout}]}\n";
	_cleanup_(config_freep) struct config *c = loaded(yaml, environment, sets, ARRAY_SIZE(sets));
	const struct outbox_config *a = &c->outboxes[0], *b = &c->outboxes[1];
	const struct config_map *properties = &a->sinks[0].kafka.properties;

	assert_string_equal(c->database.url, "postgresql://app:geheim@db/shop");
	assert_string_equal(c->database.password_file, "from-file");
	assert_int_equal(c->database.connect_timeout_ms, 2000);
	assert_int_equal(a->workers, 5);
	assert_int_equal(b->workers, 6);
	assert_int_equal(a->batch_size, 71);
	assert_int_equal(b->batch_size, 50);
	assert_int_equal(a->poll_interval_ms, 1000);
	assert_string_equal(a->columns.entity_type.name, "aggregatetype");
	assert_null(a->columns.entity_type.where);
	assert_string_equal(a->columns.event_type.name, "kind");
	assert_string_equal(a->columns.entity_id.name, "key");
	assert_string_equal(a->columns.entity_id.where, "POSTRIDER_OUTBOXES_A_COLUMNS_ENTITY_ID");
	assert_string_equal(a->route.topic, "a=b");
	assert_int_equal(a->n_sinks, 3);
	assert_string_equal(a->sinks[0].kafka.brokers, "env:9092");
	assert_string_equal(a->sinks[1].type, "stdout");
	assert_string_equal(a->sinks[2].name, "postgres");
	assert_int_equal(properties->count, 3);
	assert_string_equal(properties->pairs[0].key, "linger.ms");
	assert_string_equal(properties->pairs[0].value, "9");
	assert_string_equal(properties->pairs[0].where, "--set outboxes.a.sinks.0.properties.linger.ms");
	assert_string_equal(properties->pairs[2].value, "lz4");
}

static void the_preset_may_come_from_anywhere(void **state _unused_)
{
	static const char *const environment[] = { "POSTRIDER_OUTBOXES_ORDERS_PRESET=debezium", NULL };
	static const char *const sets[] = { "outboxes.orders.preset=postrider" };
	struct config *c = loaded(OUTBOX SINK, environment, NULL, 0);
	const struct columns_config *columns = &c->outboxes[0].columns;

	assert_int_equal(c->outboxes[0].preset, PRESET_DEBEZIUM);
	assert_string_equal(columns->id.name, "id");
	assert_string_equal(columns->message_id.name, "id");
	assert_string_equal(columns->entity_id.name, "aggregateid");
	assert_string_equal(columns->entity_type.name, "aggregatetype");
	assert_string_equal(columns->event_type.name, "type");
	assert_string_equal(columns->payload.name, "payload");
	assert_string_equal(columns->headers.name, "");
	assert_string_equal(columns->topic.name, "");
	assert_string_equal(columns->created_at.name, "");
	assert_string_equal(columns->traceparent.name, "");
	assert_string_equal(c->outboxes[0].order_by.name, "");
	assert_string_equal(c->outboxes[0].route.topic, "outbox.event.{entity_type}");
	config_free(c);

	c = loaded(OUTBOX "    preset: debezium\n" SINK, environment, sets, 1);
	assert_int_equal(c->outboxes[0].preset, PRESET_POSTRIDER);
	assert_string_equal(c->outboxes[0].columns.entity_id.name, "entity_id");
	config_free(c);
}

static void without_a_file_the_environment_is_enough(void **state _unused_)
{
	static const char *const environment[] = {
		"POSTRIDER_OUTBOXES_OUTBOX_SINKS_0_TYPE=kafka",
		"POSTRIDER_OUTBOXES_OUTBOX_SINKS_0_BROKERS=kafka:9092",
		NULL,
	};
	_cleanup_(config_freep) struct config *c = loaded(NULL, environment, NULL, 0);

	assert_null(c->file);
	assert_int_equal(c->n_outboxes, 1);
	assert_string_equal(c->outboxes[0].name, "outbox");
	assert_int_equal(c->outboxes[0].n_sinks, 1);
	assert_string_equal(c->outboxes[0].sinks[0].kafka.brokers, "kafka:9092");
	assert_string_equal(c->outboxes[0].sinks[0].where, "outboxes.outbox.sinks.0");
}

static void a_command_that_publishes_nothing_needs_no_sinks(void **state _unused_)
{
	struct config_request req = { .sinks_optional = true };
	_cleanup_(mem_freep) char *errors = NULL;
	_cleanup_(config_freep) struct config *c = NULL;

	assert_true(load_request(NULL, req, &c, &errors));
	assert_int_equal(c->outboxes[0].n_sinks, 0);
}

static void a_batch_size_that_was_asked_for_raises_the_default_ceiling(void **state _unused_)
{
	_cleanup_(config_freep) struct config *c = loaded(OUTBOX "    batch_size: 5000\n" SINK, NULL, NULL, 0);

	assert_int_equal(c->outboxes[0].batch_max, 5000);
}

static void a_url_without_a_secret_may_be_a_flag(void **state _unused_)
{
	static const char *const sets[] = { "database.url=postgresql://app@db:5432/shop?sslmode=verify-full" };
	_cleanup_(config_freep) struct config *c = loaded(OUTBOX SINK, NULL, sets, 1);

	assert_string_equal(c->database.url, "postgresql://app@db:5432/shop?sslmode=verify-full");
}

static void the_file_is_named_by_flag_then_variable_then_custom(void **state _unused_)
{
	static const char *const environment[] = { "POSTRIDER_CONFIG=/etc/p.yaml", NULL };
	char folder[] = "/tmp/postrider-config-XXXXXX";
	char *previous = getcwd(NULL, 0);
	FILE *f;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(chdir(folder), 0);
	assert_string_equal(config_path("mine.yaml", (char *const *)environment), "mine.yaml");
	assert_string_equal(config_path(NULL, (char *const *)environment), "/etc/p.yaml");
	assert_null(config_path(NULL, NULL));
	f = fopen(CONFIG_DEFAULT_FILE, "w");
	assert_non_null(f);
	fclose(f);
	assert_string_equal(config_path(NULL, NULL), CONFIG_DEFAULT_FILE);
	unlink(CONFIG_DEFAULT_FILE);
	assert_int_equal(chdir(previous), 0);
	rmdir(folder);
	free(previous);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_those_of_the_documentation),
		cmocka_unit_test(a_file_sets_everything),
		cmocka_unit_test(flags_win_over_environment_over_file_over_preset),
		cmocka_unit_test(the_preset_may_come_from_anywhere),
		cmocka_unit_test(without_a_file_the_environment_is_enough),
		cmocka_unit_test(a_command_that_publishes_nothing_needs_no_sinks),
		cmocka_unit_test(a_batch_size_that_was_asked_for_raises_the_default_ceiling),
		cmocka_unit_test(a_url_without_a_secret_may_be_a_flag),
		cmocka_unit_test(the_file_is_named_by_flag_then_variable_then_custom),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
