#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "kafka_fixture.h"
#include "sink/sink.h"

extern const struct sink_driver sink_kafka;

struct opened {
	struct cluster cluster;
	struct sink_target *target;
	struct sink *sink;
	struct rows rows;
};

static void open_sink(struct opened *o, const char *rows)
{
	struct error err;

	rows_init(&o->rows, rows);
	if (!sink_kafka.target_open(&o->cluster.sink, &o->target, &err) ||
	    !sink_kafka.open(o->target, &(struct sink_env){ .outcomes = &o->rows.box, .last = true }, &o->sink, &err))
		fail_msg("%s", err.message);
}

static void close_sink(struct opened *o)
{
	sink_kafka.close(o->sink);
	sink_kafka.target_close(o->target);
	rows_release(&o->rows);
	cluster_close(&o->cluster);
}

static void nothing_more_is_taken_while_a_refusal_lies_unread_in_the_mailbox(void **state _unused_)
{
	static char large[5000];
	struct opened o;

	cluster_open(&o.cluster, 1);
	set_property(&o.cluster, "message.max.bytes", "1000");
	open_sink(&o, "a1 a2 a3");
	o.rows.events[1].payload = (struct slice){ large, sizeof(large) };
	/* Not in the same call, and not in the next one: a worker that filled its chunk submits again before it looks
	 * at outcomes. */
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 3), 2);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers + 2, 1), 0);
	outcomes(&o.rows, 2);
	assert_null(o.rows.events[0].failure);
	assert_int_equal(o.rows.events[1].failure->kind, ERROR_REJECTED);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers + 2, 1), 1);
	assert_string_equal(outcomes(&o.rows, 1), "a3");
	assert_string_equal(arrived(&o.cluster), "a1 a3");
	close_sink(&o);
}

static void rows_that_must_go_alone_and_others_are_taken_in_one_call(void **state _unused_)
{
	struct opened o;

	cluster_open(&o.cluster, 1);
	open_sink(&o, "a1 b1 c1 d1");
	o.rows.events[1].alone = o.rows.events[2].alone = true;
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 4), 4);
	outcomes(&o.rows, 4);
	for (uint32_t i = 0; i < o.rows.n; i++)
		assert_null(o.rows.events[i].failure);
	close_sink(&o);
}

/* --- the end -------------------------------------------------------------------------------------------------- */

static void closing_gives_everything_back_while_the_brokers_are_away(void **state _unused_)
{
	int64_t before;
	struct opened o;

	cluster_open(&o.cluster, 1);
	rd_kafka_mock_broker_set_down(o.cluster.mock, 1);
	open_sink(&o, "a1 a2 b1 c1");
	o.rows.events[3].alone = true;
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 4), 4);
	before = clock_ms();
	sink_kafka.close(o.sink);
	sink_kafka.target_close(o.target);
	assert_true(clock_ms() - before < 2000);
	outcomes(&o.rows, 4);
	for (uint32_t i = 0; i < o.rows.n; i++)
		assert_int_equal(o.rows.events[i].failure->kind, ERROR_LOST);
	rows_release(&o.rows);
	cluster_close(&o.cluster);
}

static void closing_gives_back_what_is_on_its_way_to_a_slow_broker(void **state _unused_)
{
	int64_t before;
	struct opened o;

	cluster_open(&o.cluster, 1);
	open_sink(&o, "a1 a2 a3");
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 1), 1);
	assert_string_equal(outcomes(&o.rows, 1), "a1");
	rd_kafka_mock_broker_set_rtt(o.cluster.mock, 1, 60 * 1000);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers + 1, 2), 2);
	poll(NULL, 0, 50);
	before = clock_ms();
	sink_kafka.close(o.sink);
	sink_kafka.target_close(o.target);
	assert_true(clock_ms() - before < 2000);
	assert_string_equal(outcomes(&o.rows, 2), "a2:lost a3:lost");
	rows_release(&o.rows);
	cluster_close(&o.cluster);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_more_is_taken_while_a_refusal_lies_unread_in_the_mailbox),
		cmocka_unit_test(rows_that_must_go_alone_and_others_are_taken_in_one_call),
		cmocka_unit_test(closing_gives_everything_back_while_the_brokers_are_away),
		cmocka_unit_test(closing_gives_back_what_is_on_its_way_to_a_slow_broker),
	};

	log_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
