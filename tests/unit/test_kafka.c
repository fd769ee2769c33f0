/* What Kafka can do to us and a real broker cannot be made to do at will: librdkafka's mock cluster answers here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "relay/mailbox.h"
#include "sink/kafka_conf.h"
#include "sink/kafka_errors.h"
#include "sink/kafka_producer.h"
#include "sink/sink.h"

extern const struct sink_driver sink_kafka;

enum { PRODUCE = 0, PATIENCE_MS = 10000 };

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

/* --- a cluster ------------------------------------------------------------------------------------------------ */

struct cluster {
	struct topic_limits limits;
	rd_kafka_t *host;               /* the mock cluster lives in some client */
	rd_kafka_mock_cluster_t *mock;
	struct config_pair properties[4];
	struct sink_config sink;
};

static void cluster_open(struct cluster *c, int partitions)
{
	char reason[512];

	*c = (struct cluster){ .sink = { .type = text("kafka"), .name = text("kafka"), .where = text("postrider.yaml:9:7") } };
	c->host = rd_kafka_new(RD_KAFKA_PRODUCER, NULL, reason, sizeof(reason));
	assert_non_null(c->host);
	topic_limits_init(&c->limits);
	c->mock = rd_kafka_mock_cluster_new(c->host, 1);
	assert_non_null(c->mock);
	assert_int_equal(rd_kafka_mock_topic_create(c->mock, "orders", partitions, 1), 0);
	c->sink.kafka = (struct kafka_config){
		.brokers = text(rd_kafka_mock_cluster_bootstraps(c->mock)),
		.tls_ca_file = text(""), .tls_cert_file = text(""), .tls_key_file = text(""),
		.tls_key_password_file = text(""), .sasl_mechanism = text(""), .sasl_username = text(""),
		.sasl_password_file = text(""), .properties.pairs = c->properties,
	};
}

static void set_property(struct cluster *c, const char *key, const char *value)
{
	struct config_map *map = &c->sink.kafka.properties;

	map->pairs[map->count++] = (struct config_pair){ text(key), text(value), text("postrider.yaml:12:9") };
}

static void cluster_close(struct cluster *c)
{
	rd_kafka_mock_cluster_destroy(c->mock);
	rd_kafka_destroy(c->host);
	topic_limits_release(&c->limits);
}

static struct producer *open_producer(struct cluster *c, bool one_by_one)
{
	struct producer *p;
	struct error err;

	if (!producer_open(&c->sink, &c->limits, one_by_one, &p, &err))
		fail_msg("%s", err.message);
	return p;
}

static rd_kafka_t *open_consumer(struct cluster *c)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char reason[512];
	rd_kafka_t *rk;

	rd_kafka_conf_set(conf, "bootstrap.servers", c->sink.kafka.brokers, NULL, 0);
	rd_kafka_conf_set(conf, "group.id", "test", NULL, 0);
	rd_kafka_conf_set(conf, "enable.partition.eof", "true", NULL, 0);
	rd_kafka_conf_set(conf, "auto.offset.reset", "earliest", NULL, 0);
	rd_kafka_conf_set(conf, "fetch.wait.max.ms", "10", NULL, 0);
	rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof(reason));
	assert_non_null(rk);
	return rk;
}

static void add_word(char *line, size_t room, struct slice word, const char *note)
{
	size_t used = strlen(line);

	snprintf(line + used, room - used, "%s%.*s%s", used ? " " : "", (int)word.len, word.ptr, note);
}

/* The values in partition 0 of the topic, in order. */
static const char *arrived(struct cluster *c)
{
	static char line[4096];
	rd_kafka_t *rk = open_consumer(c);
	rd_kafka_topic_partition_list_t *partitions = rd_kafka_topic_partition_list_new(1);
	int64_t deadline = clock_ms() + PATIENCE_MS;
	bool end = false;

	line[0] = '\0';
	rd_kafka_topic_partition_list_add(partitions, "orders", 0)->offset = 0;
	assert_int_equal(rd_kafka_assign(rk, partitions), 0);
	rd_kafka_topic_partition_list_destroy(partitions);
	while (!end) {
		rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, 100);

		assert_true(clock_ms() < deadline);
		if (!m)
			continue;
		end = m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
		if (!m->err)
			add_word(line, sizeof(line), (struct slice){ m->payload, m->len }, "");
		rd_kafka_message_destroy(m);
	}
	rd_kafka_destroy(rk);
	return line;
}

/* --- rows and their outcomes ---------------------------------------------------------------------------------- */

/* Rows named "a1", "a2", "b1": the letter is the entity and key, the name is the payload. */
struct rows {
	struct event events[64];
	struct event *pointers[64];
	char names[64][8];
	uint32_t n;
	struct mailbox box;
	char line[1024];
};

static void rows_init(struct rows *r, const char *names)
{
	*r = (struct rows){ 0 };
	mailbox_init(&r->box);
	for (const char *p = names; *p; p += strspn(p, " ")) {
		struct event *ev = &r->events[r->n];
		size_t len = strcspn(p, " ");

		memcpy(r->names[r->n], p, len);
		ev->id = ev->payload = (struct slice){ r->names[r->n], len };
		ev->entity = ev->key = (struct slice){ r->names[r->n], 1 };
		ev->topic = SLICE_LITERAL("orders");
		ev->outcomes = &r->box;
		r->pointers[r->n++] = ev;
		p += len;
	}
}

static void rows_release(struct rows *r)
{
	assert_null(mailbox_take(&r->box));
	for (uint32_t i = 0; i < r->n; i++)
		free(r->events[i].failure);
	mailbox_release(&r->box);
}

static void forget_failures(struct rows *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		free(r->events[i].failure);
		r->events[i].failure = NULL;
	}
}

/* Waits for `n` outcomes: "a1 a2:lost", in the order in which they came. */
static const char *outcomes(struct rows *r, uint32_t n)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;

	r->line[0] = '\0';
	while (n > 0) {
		struct pollfd p = { .fd = r->box.fd, .events = POLLIN };

		assert_true(clock_ms() < deadline);
		poll(&p, 1, 100);
		for (struct event *ev = mailbox_take(&r->box); ev; ev = ev->next, n--) {
			char note[32] = "";

			if (ev->failure)
				snprintf(note, sizeof(note), ":%s", error_kind_name(ev->failure->kind));
			add_word(r->line, sizeof(r->line), ev->id, note);
		}
	}
	return r->line;
}

/* Submits all rows; as a worker does, what is not taken is tried again after a look at the producer. */
static void submit_all(struct producer *p, struct rows *r)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	uint32_t taken = 0;

	while (taken < r->n) {
		struct error err;

		assert_true(clock_ms() < deadline);
		producer_mend(p);
		taken += producer_submit(p, r->pointers + taken, r->n - taken, &err);
		assert_int_equal(err.kind, ERROR_NONE);
		if (taken < r->n)
			poll(NULL, 0, 1);
	}
}

/* --- delivery --------------------------------------------------------------------------------------------------- */

static void reports_reach_the_mailbox_of_their_row_in_order(void **state _unused_)
{
	struct rows mine, yours;
	struct producer *p;
	struct cluster c;
	struct error err;

	cluster_open(&c, 1);
	p = open_producer(&c, false);
	rows_init(&mine, "a1 a2 a3 a4 a5");
	rows_init(&yours, "b1 b2 b3 b4 b5");
	for (uint32_t i = 0; i < mine.n; i++) {
		assert_int_equal(producer_submit(p, &mine.pointers[i], 1, &err), 1);
		assert_int_equal(producer_submit(p, &yours.pointers[i], 1, &err), 1);
	}
	assert_string_equal(outcomes(&mine, 5), "a1 a2 a3 a4 a5");
	assert_string_equal(outcomes(&yours, 5), "b1 b2 b3 b4 b5");
	assert_string_equal(arrived(&c), "a1 b1 a2 b2 a3 b3 a4 b4 a5 b5");
	producer_close(p);
	rows_release(&mine);
	rows_release(&yours);
	cluster_close(&c);
}

static void passing_errors_are_retried_unseen_and_in_order(void **state _unused_)
{
	struct producer *p;
	struct cluster c;
	struct rows r;

	cluster_open(&c, 1);
	set_property(&c, "batch.num.messages", "2");
	/* The mock does not check sequence numbers, so it would take the second request after it failed the first. */
	set_property(&c, "max.in.flight", "1");
	set_property(&c, "retry.backoff.ms", "10");
	rd_kafka_mock_push_request_errors(c.mock, PRODUCE, 4, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
					  RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, RD_KAFKA_RESP_ERR__TRANSPORT,
					  RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS);
	p = open_producer(&c, false);
	rows_init(&r, "a1 a2 a3 a4 a5 a6 a7 a8");
	submit_all(p, &r);
	assert_string_equal(outcomes(&r, 8), "a1 a2 a3 a4 a5 a6 a7 a8");
	assert_string_equal(arrived(&c), "a1 a2 a3 a4 a5 a6 a7 a8");
	producer_close(p);
	rows_release(&r);
	cluster_close(&c);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void a_refused_batch_comes_back_as_lost_and_its_rows_travel_alone_next_time(void **state _unused_)
{
	struct producer *p;
	struct cluster c;
	struct rows r;

	cluster_open(&c, 1);
	set_property(&c, "linger.ms", "100");           /* one batch */
	rd_kafka_mock_push_request_errors(c.mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
	p = open_producer(&c, false);
	rows_init(&r, "a1 b1 a2");
	submit_all(p, &r);
	assert_string_equal(outcomes(&r, 3), "a1:lost b1:lost a2:lost");
	for (uint32_t i = 0; i < r.n; i++)
		assert_true(r.events[i].alone);
	forget_failures(&r);
	submit_all(p, &r);
	assert_string_equal(outcomes(&r, 3), "a1 b1 a2");
	assert_string_equal(arrived(&c), "a1 b1 a2");
	producer_close(p);
	rows_release(&r);
	cluster_close(&c);
}

static void a_producer_stops_at_a_row_that_it_refuses_and_leaves_it_to_the_caller(void **state _unused_)
{
	static char large[5000];
	struct producer *p;
	struct cluster c;
	struct error err;
	struct rows r;

	cluster_open(&c, 1);
	set_property(&c, "message.max.bytes", "1000");
	p = open_producer(&c, false);
	rows_init(&r, "a1 a2 a3");
	r.events[1].payload = (struct slice){ large, sizeof(large) };
	assert_int_equal(producer_submit(p, r.pointers, 3, &err), 1);
	assert_int_equal(err.kind, ERROR_REJECTED);
	assert_non_null(strstr(err.message, "MSG_SIZE_TOO_LARGE"));
	assert_string_equal(outcomes(&r, 1), "a1");
	assert_string_equal(arrived(&c), "a1");
	producer_close(p);
	assert_null(r.events[1].failure);
	rows_release(&r);
	cluster_close(&c);
}

static void nothing_more_is_taken_while_a_refusal_lies_unread_in_the_mailbox(void **state _unused_)
{
	static char large[5000];
	struct sink_target *target;
	struct sink *sink;
	struct cluster c;
	struct error err;
	struct rows r;

	cluster_open(&c, 1);
	set_property(&c, "message.max.bytes", "1000");
	rows_init(&r, "a1 a2 a3");
	r.events[1].payload = (struct slice){ large, sizeof(large) };
	assert_true(sink_kafka.target_open(&c.sink, &target, &err));
	assert_true(sink_kafka.open(target, &(struct sink_env){ .outcomes = &r.box, .last = true }, &sink, &err));
	/* A worker that filled its chunk submits the next one before it looks at outcomes. */
	assert_int_equal(sink_kafka.submit(sink, r.pointers, 2), 2);
	assert_int_equal(sink_kafka.submit(sink, r.pointers + 2, 1), 0);
	outcomes(&r, 2);
	assert_int_equal(sink_kafka.submit(sink, r.pointers + 2, 1), 1);
	assert_string_equal(outcomes(&r, 1), "a3");
	sink_kafka.close(sink);
	sink_kafka.target_close(target);
	rows_release(&r);
	cluster_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reports_reach_the_mailbox_of_their_row_in_order),
		cmocka_unit_test(passing_errors_are_retried_unseen_and_in_order),
		cmocka_unit_test(a_refused_batch_comes_back_as_lost_and_its_rows_travel_alone_next_time),
		cmocka_unit_test(a_producer_stops_at_a_row_that_it_refuses_and_leaves_it_to_the_caller),
		cmocka_unit_test(nothing_more_is_taken_while_a_refusal_lies_unread_in_the_mailbox),
	};

	log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
