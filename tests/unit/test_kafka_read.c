#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Of the fixture, only the cluster is needed here. */
#pragma GCC diagnostic ignored "-Wunused-function"

#include "base/macros.h"
#include "kafka_fixture.h"
#include "sink/kafka_read.h"

/* ---- What is there to be read ------------------------------------------------------------------------------------ */

static rd_kafka_t *open_writer(struct cluster *c)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char reason[512];
	rd_kafka_t *rk;

	rd_kafka_conf_set(conf, "bootstrap.servers", c->sink.kafka.brokers, NULL, 0);
	rd_kafka_conf_set(conf, "linger.ms", "0", NULL, 0);
	rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
	assert_non_null(rk);
	return rk;
}

/* A record with as many headers `id` as there are values. */
static void put(rd_kafka_t *rk, const char *topic, int32_t partition, const struct slice *ids, size_t n_ids)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(n_ids + 1);

	rd_kafka_header_add(headers, "other", -1, "id", -1);
	for (size_t i = 0; i < n_ids; i++)
		rd_kafka_header_add(headers, "id", -1, ids[i].ptr, (ssize_t)ids[i].len);
	assert_int_equal(rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
					   RD_KAFKA_V_VALUE(text("v"), 1), RD_KAFKA_V_HEADERS(headers),
					   RD_KAFKA_V_END), 0);
	assert_int_equal(rd_kafka_flush(rk, PATIENCE_MS), 0);
}

static void put_one(rd_kafka_t *rk, const char *topic, int32_t partition, const char *id)
{
	put(rk, topic, partition, &(struct slice){ id, strlen(id) }, 1);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

struct seen {
	char line[4096];
	rd_kafka_t *writer;             /* writes on while we read, if set */
};

static void note(void *context, const struct kafka_record *record)
{
	struct seen *seen = context;
	char place[64];

	snprintf(place, sizeof(place), "@%u.%d.%d", record->topic, (int)record->partition, (int)record->offset);
	add_word(seen->line, sizeof(seen->line), record->header.ptr ? record->header : SLICE_LITERAL("-"), place);
	if (seen->writer)
		put_one(seen->writer, "orders", 0, "late");
}

static const char *read_all(struct cluster *c, const char *const *names, size_t n, struct seen *seen)
{
	_cleanup_(kafka_reader_freep) struct kafka_reader *reader = NULL;
	struct kafka_extent extent;
	struct error err;

	if (!kafka_reader_open(&c->sink, &reader, &err))
		fail_msg("%s", err.message);
	for (size_t i = 0; i < n; i++)
		if (!kafka_reader_add(reader, names[i], -1, &extent, &err))
			fail_msg("%s", err.message);
	if (!kafka_reader_run(reader, "id", note, seen, &err))
		fail_msg("%s", err.message);
	return seen->line;
}

static void a_topic_is_read_from_its_beginning_to_its_end(void **state _unused_)
{
	struct cluster c;
	struct seen seen = { 0 };
	rd_kafka_t *writer;

	cluster_open(&c, 2);
	assert_string_equal(read_all(&c, (const char *const[]){ "orders" }, 1, &seen), "");
	writer = open_writer(&c);
	put_one(writer, "orders", 1, "a");
	put_one(writer, "orders", 1, "b");
	put_one(writer, "orders", 1, "c");
	assert_string_equal(read_all(&c, (const char *const[]){ "orders" }, 1, &seen), "a@0.1.0 b@0.1.1 c@0.1.2");
	rd_kafka_destroy(writer);
	cluster_close(&c);
}

static void what_comes_meanwhile_is_left_for_another_time(void **state _unused_)
{
	struct cluster c;
	struct seen seen = { 0 };

	cluster_open(&c, 1);
	seen.writer = open_writer(&c);
	put_one(seen.writer, "orders", 0, "a");
	put_one(seen.writer, "orders", 0, "b");
	assert_string_equal(read_all(&c, (const char *const[]){ "orders" }, 1, &seen), "a@0.0.0 b@0.0.1");
	rd_kafka_destroy(seen.writer);
	cluster_close(&c);
}

static void topics_have_the_numbers_of_their_order(void **state _unused_)
{
	struct cluster c;
	struct seen seen = { 0 };
	rd_kafka_t *writer;

	cluster_open(&c, 1);
	assert_int_equal(rd_kafka_mock_topic_create(c.mock, "audit", 1, 1), 0);
	writer = open_writer(&c);
	put_one(writer, "orders", 0, "a");
	assert_string_equal(read_all(&c, (const char *const[]){ "audit", "orders" }, 2, &seen), "a@1.0.0");
	rd_kafka_destroy(writer);
	cluster_close(&c);
}

static void headers_may_be_anything(void **state _unused_)
{
	static const struct slice none[] = { { NULL, 0 } }, empty[] = { { "", 0 } };
	static const struct slice twice[] = { { "first", 5 }, { "last", 4 } };
	struct cluster c;
	struct seen seen = { 0 };
	rd_kafka_t *writer;

	cluster_open(&c, 1);
	writer = open_writer(&c);
	put(writer, "orders", 0, none, 0);
	put(writer, "orders", 0, none, 1);
	put(writer, "orders", 0, twice, 2);
	put(writer, "orders", 0, empty, 1);
	assert_string_equal(read_all(&c, (const char *const[]){ "orders" }, 1, &seen),
			    "-@0.0.0 -@0.0.1 last@0.0.2 @0.0.3");
	rd_kafka_destroy(writer);
	cluster_close(&c);
}

/* ---- What can be wrong ------------------------------------------------------------------------------------------- */

static void a_topic_that_is_not_there_is_named(void **state _unused_)
{
	_cleanup_(kafka_reader_freep) struct kafka_reader *reader = NULL;
	struct kafka_extent extent;
	struct cluster c;
	struct error err;

	cluster_open(&c, 1);
	assert_true(kafka_reader_open(&c.sink, &reader, &err));
	rd_kafka_mock_topic_set_error(c.mock, "nowhere", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
	assert_false(kafka_reader_add(reader, "nowhere", -1, &extent, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_ptr_equal(strstr(err.message, "topic nowhere: "), err.message);
	assert_non_null(strstr(err.hint, "route.topic"));
	kafka_reader_free(TAKE_PTR(reader));
	cluster_close(&c);
}

static void a_wrong_setting_is_told_before_anything_is_read(void **state _unused_)
{
	struct kafka_reader *reader;
	struct cluster c;
	struct error err;

	cluster_open(&c, 1);
	set_property(&c, "acks", "1");
	assert_false(kafka_reader_open(&c.sink, &reader, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	cluster_close(&c);
}

static void settings_for_producers_do_no_harm(void **state _unused_)
{
	struct cluster c;
	struct seen seen = { 0 };
	rd_kafka_t *writer;

	cluster_open(&c, 1);
	set_property(&c, "compression.type", "lz4");
	set_property(&c, "enable.auto.commit", "true");
	set_property(&c, "enable.partition.eof", "false");
	writer = open_writer(&c);
	put_one(writer, "orders", 0, "a");
	assert_string_equal(read_all(&c, (const char *const[]){ "orders" }, 1, &seen), "a@0.0.0");
	rd_kafka_destroy(writer);
	cluster_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_topic_is_read_from_its_beginning_to_its_end),
		cmocka_unit_test(what_comes_meanwhile_is_left_for_another_time),
		cmocka_unit_test(topics_have_the_numbers_of_their_order),
		cmocka_unit_test(headers_may_be_anything),
		cmocka_unit_test(a_topic_that_is_not_there_is_named),
		cmocka_unit_test(a_wrong_setting_is_told_before_anything_is_read),
		cmocka_unit_test(settings_for_producers_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
