/* What Kafka can do to us and a real broker cannot be made to do at will: librdkafka's mock cluster, and rows for it.
 * To be included after cmocka.h. */
#ifndef POSTRIDER_TESTS_KAFKA_FIXTURE_H
#define POSTRIDER_TESTS_KAFKA_FIXTURE_H

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "config/config.h"
#include "relay/mailbox.h"
#include "sink/breaker.h"
#include "sink/kafka_limits.h"

enum { PATIENCE_MS = 10000 };

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

/* --- a cluster ------------------------------------------------------------------------------------------------ */

struct cluster {
	rd_kafka_t *host;               /* the mock cluster lives in some client */
	rd_kafka_mock_cluster_t *mock;
	struct topic_limits limits;
	struct breaker breaker;
	struct config_pair properties[8];
	struct sink_config sink;
};

static void cluster_open(struct cluster *c, int partitions)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char reason[512];

	rd_kafka_conf_set(conf, "log_level", "0", NULL, 0);
	*c = (struct cluster){ 0 };
	c->sink = (struct sink_config){ .type = text("kafka"), .name = text("kafka"), .where = text("postrider.yaml:9:7") };
	c->host = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof(reason));
	assert_non_null(c->host);
	topic_limits_init(&c->limits);
	breaker_init(&c->breaker);
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
	breaker_release(&c->breaker);
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
	void (*pump)(void *arg);        /* what their worker does in each turn; NULL: nothing */
	void *arg;
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

/* Waits for `n` outcomes: "a1 a2:lost", in the order in which they came. */
static const char *outcomes(struct rows *r, uint32_t n)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;

	r->line[0] = '\0';
	while (n > 0) {
		struct pollfd p = { .fd = r->box.fd, .events = POLLIN };

		assert_true(clock_ms() < deadline);
		poll(&p, 1, 100);
		if (r->pump)
			r->pump(r->arg);
		for (struct event *ev = mailbox_take(&r->box); ev; ev = ev->next, n--) {
			char note[32] = "";

			if (ev->failure)
				snprintf(note, sizeof(note), ":%s", error_kind_name(ev->failure->kind));
			add_word(r->line, sizeof(r->line), ev->id, note);
		}
	}
	return r->line;
}

#endif
