#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "sink/kafka_conf.h"

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

/* --- settings, and what becomes of them ----------------------------------------------------------------------- */

struct settings {
	const char *brokers;
	enum sink_tls tls;
	const char *ca_file, *cert_file, *sasl, *password_file;
	const char *property, *value;
	bool one_by_one;
};

static bool build(const struct settings *s, rd_kafka_conf_t **ret, struct error *err)
{
	struct config_pair pair = { text(s->property), text(s->value), text("postrider.yaml:12:9") };
	struct sink_config sink = {
		.type = text("kafka"), .name = text("kafka"), .where = text("postrider.yaml:9:7"),
		.kafka = {
			.brokers = text(s->brokers ? s->brokers : "127.0.0.1:9092"),
			.tls = s->tls,
			.tls_ca_file = text(s->ca_file ? s->ca_file : ""),
			.tls_cert_file = text(s->cert_file ? s->cert_file : ""),
			.tls_key_file = text(""),
			.tls_key_password_file = text(""),
			.sasl_mechanism = text(s->sasl ? s->sasl : ""),
			.sasl_username = text(s->sasl ? "relay" : ""),
			.sasl_password_file = text(s->password_file ? s->password_file : ""),
			.properties = { &pair, s->property ? 1 : 0 },
		},
	};

	*err = (struct error){ 0 };
	return kafka_conf_build(&sink, s->one_by_one, ret, err);
}

static rd_kafka_conf_t *built(const struct settings *s)
{
	rd_kafka_conf_t *conf = NULL;
	struct error err;

	if (!build(s, &conf, &err))
		fail_msg("%s", err.message);
	return conf;
}

static void assert_value(const rd_kafka_conf_t *conf, const char *name, const char *expected)
{
	char value[512];
	size_t size = sizeof(value);

	assert_int_equal(rd_kafka_conf_get(conf, name, value, &size), RD_KAFKA_CONF_OK);
	if (strcmp(value, expected) != 0)
		fail_msg("%s is %s instead of %s", name, value, expected);
}

static void assert_becomes(const struct settings *s, const char *name, const char *expected)
{
	rd_kafka_conf_t *conf = built(s);

	assert_value(conf, name, expected);
	rd_kafka_conf_destroy(conf);
}

/* --- properties ----------------------------------------------------------------------------------------------- */

static void rows_can_neither_be_lost_nor_overtake_by_default(void **state _unused_)
{
	rd_kafka_conf_t *conf = built(&(struct settings){ 0 });

	assert_value(conf, "bootstrap.servers", "127.0.0.1:9092");
	assert_value(conf, "acks", "-1");
	assert_value(conf, "enable.idempotence", "true");
	assert_value(conf, "enable.gapless.guarantee", "true");
	assert_value(conf, "message.timeout.ms", "0");
	assert_value(conf, "partitioner", "murmur2_random");
	assert_value(conf, "allow.auto.create.topics", "false");
	assert_value(conf, "client.id", "postrider");
	rd_kafka_conf_destroy(conf);
}

static void properties_that_guarantees_rest_on_cannot_be_set(void **state _unused_)
{
	static const char *const names[][2] = {
		{ "acks", "1" },
		{ "request.required.acks", "0" },
		{ "enable.idempotence", "false" },
		{ "enable.gapless.guarantee", "false" },
		{ "message.timeout.ms", "5000" },
		{ "delivery.timeout.ms", "5000" },
		{ "delivery.report.only.error", "true" },       /* no row would ever be acknowledged */
		{ "security.protocol", "plaintext" },
		{ "bootstrap.servers", "elsewhere:9092" },
		{ "metadata.broker.list", "elsewhere:9092" },
		{ "transactional.id", "t" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		rd_kafka_conf_t *conf = NULL;
		struct error err;
		char expected[128];

		if (build(&(struct settings){ .property = names[i][0], .value = names[i][1] }, &conf, &err)) {
			rd_kafka_conf_destroy(conf);
			fail_msg("%s can be set", names[i][0]);
		}
		snprintf(expected, sizeof(expected), "postrider.yaml:12:9: Kafka property %s cannot be set: ",
			 names[i][0]);
		assert_int_equal(err.kind, ERROR_CONFIG);
		assert_ptr_equal(strstr(err.message, expected), err.message);
	}
}

/* Not even to what they are anyway: the file would say something that is not its to say. */
static void not_even_to_the_value_that_they_have(void **state _unused_)
{
	rd_kafka_conf_t *conf;
	struct error err;

	assert_false(build(&(struct settings){ .property = "acks", .value = "all" }, &conf, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
}

static void an_unknown_property_is_named_with_its_place(void **state _unused_)
{
	rd_kafka_conf_t *conf;
	struct error err;

	assert_false(build(&(struct settings){ .property = "compresion.type", .value = "lz4" }, &conf, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_ptr_equal(strstr(err.message, "postrider.yaml:12:9: Kafka property compresion.type: "), err.message);
}

static void a_wrong_value_is_named_with_its_place(void **state _unused_)
{
	rd_kafka_conf_t *conf;
	struct error err;

	assert_false(build(&(struct settings){ .property = "linger.ms", .value = "soon" }, &conf, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_ptr_equal(strstr(err.message, "postrider.yaml:12:9: Kafka property linger.ms: "), err.message);
}

static void a_property_of_the_user_wins_over_a_default(void **state _unused_)
{
	assert_becomes(&(struct settings){ .property = "linger.ms", .value = "25" }, "linger.ms", "25");
	assert_becomes(&(struct settings){ .property = "partitioner", .value = "random" }, "partitioner", "random");
	assert_becomes(&(struct settings){ .property = "allow.auto.create.topics", .value = "true" },
		       "allow.auto.create.topics", "true");
}

static void one_by_one_means_batches_of_one_whatever_the_user_says(void **state _unused_)
{
	assert_becomes(&(struct settings){ .one_by_one = true }, "batch.num.messages", "1");
	assert_becomes(&(struct settings){ .one_by_one = true, .property = "batch.num.messages", .value = "500" },
		       "batch.num.messages", "1");
	assert_becomes(&(struct settings){ .property = "batch.num.messages", .value = "500" }, "batch.num.messages",
		       "500");
}

static void whether_messages_are_compressed_is_known(void **state _unused_)
{
	static const struct {
		const char *property, *value;
		bool compresses;
	} cases[] = {
		{ NULL, NULL, false },
		{ "compression.type", "lz4", true },
		{ "compression.codec", "gzip", true },
		{ "compression.type", "none", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct settings s = { .property = cases[i].property, .value = cases[i].value };
		rd_kafka_conf_t *conf = built(&s);

		assert_int_equal(kafka_conf_compresses(conf), cases[i].compresses);
		rd_kafka_conf_destroy(conf);
	}
}

/* --- TLS ------------------------------------------------------------------------------------------------------ */

static void plain_text_leaves_the_machine_only_when_asked_for(void **state _unused_)
{
	static const struct {
		const char *brokers;
		enum sink_tls tls;
		const char *expected;
	} cases[] = {
		{ "127.0.0.1:9092", SINK_TLS_AUTO, "plaintext" },
		{ "127.0.0.1", SINK_TLS_AUTO, "plaintext" },
		{ "127.255.1.2:9092", SINK_TLS_AUTO, "plaintext" },
		{ "localhost", SINK_TLS_AUTO, "plaintext" },
		{ "localhost:9092", SINK_TLS_AUTO, "plaintext" },
		{ "::1", SINK_TLS_AUTO, "plaintext" },
		{ "[::1]", SINK_TLS_AUTO, "plaintext" },
		{ "[::1]:9092", SINK_TLS_AUTO, "plaintext" },
		{ "127.0.0.1:9092,localhost:9093, [::1]:9094", SINK_TLS_AUTO, "plaintext" },

		{ "kafka:9092", SINK_TLS_AUTO, "ssl" },
		{ "10.0.0.7:9092", SINK_TLS_AUTO, "ssl" },
		{ "localhost.example.com:9092", SINK_TLS_AUTO, "ssl" },
		{ "localhost2", SINK_TLS_AUTO, "ssl" },
		{ "127.example.com:9092", SINK_TLS_AUTO, "ssl" },
		{ "127.0.0.1.example.com:9092", SINK_TLS_AUTO, "ssl" },
		{ "1270.0.0.1:9092", SINK_TLS_AUTO, "ssl" },
		{ "[::1].example.com:9092", SINK_TLS_AUTO, "ssl" },
		{ "[::2]:9092", SINK_TLS_AUTO, "ssl" },
		{ "127.0.0.1:9092,kafka:9092", SINK_TLS_AUTO, "ssl" },
		{ "kafka:9092,127.0.0.1:9092", SINK_TLS_AUTO, "ssl" },
		{ "localhost:9092, kafka:9092", SINK_TLS_AUTO, "ssl" },

		{ "127.0.0.1:9092", SINK_TLS_ON, "ssl" },
		{ "kafka:9092", SINK_TLS_ON, "ssl" },
		{ "127.0.0.1:9092", SINK_TLS_OFF, "plaintext" },
		{ "kafka:9092", SINK_TLS_OFF, "plaintext" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		rd_kafka_conf_t *conf = built(&(struct settings){ .brokers = cases[i].brokers, .tls = cases[i].tls });
		char value[64];
		size_t size = sizeof(value);

		assert_int_equal(rd_kafka_conf_get(conf, "security.protocol", value, &size), RD_KAFKA_CONF_OK);
		if (strcmp(value, cases[i].expected) != 0)
			fail_msg("%s: %s", cases[i].brokers, value);
		rd_kafka_conf_destroy(conf);
	}
}

/* A file with the given content; the caller unlinks and frees. */
static char *file_with(const char *content)
{
	char *path = strdup("/tmp/postrider-test-XXXXXX");
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, strlen(content)), strlen(content));
	close(fd);
	return path;
}

static void remove_file(char *path)
{
	unlink(path);
	free(path);
}

static void a_certificate_file_means_tls_even_at_home(void **state _unused_)
{
	char *file = file_with("certificate");
	rd_kafka_conf_t *conf = built(&(struct settings){ .ca_file = file });

	assert_value(conf, "security.protocol", "ssl");
	assert_value(conf, "ssl.ca.location", file);
	rd_kafka_conf_destroy(conf);
	conf = built(&(struct settings){ .cert_file = file });
	assert_value(conf, "security.protocol", "ssl");
	assert_value(conf, "ssl.certificate.location", file);
	rd_kafka_conf_destroy(conf);
	remove_file(file);
}

static void a_certificate_file_that_cannot_be_read_is_named(void **state _unused_)
{
	rd_kafka_conf_t *conf;
	struct error err;

	assert_false(build(&(struct settings){ .ca_file = "/nowhere/ca.pem" }, &conf, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_non_null(strstr(err.message, "tls_ca_file"));
	assert_non_null(strstr(err.message, "/nowhere/ca.pem"));
	assert_ptr_equal(strstr(err.message, "postrider.yaml:9:7: "), err.message);
}

static void certificates_are_verified(void **state _unused_)
{
	assert_becomes(&(struct settings){ .tls = SINK_TLS_ON }, "enable.ssl.certificate.verification", "true");
	assert_becomes(&(struct settings){ .tls = SINK_TLS_ON }, "ssl.endpoint.identification.algorithm", "https");
}

/* --- SASL ----------------------------------------------------------------------------------------------------- */

static void sasl_rides_on_tls_or_not(void **state _unused_)
{
	assert_becomes(&(struct settings){ .sasl = "SCRAM-SHA-512" }, "security.protocol", "sasl_plaintext");
	assert_becomes(&(struct settings){ .sasl = "SCRAM-SHA-512", .brokers = "kafka:9092" }, "security.protocol",
		       "sasl_ssl");
	assert_becomes(&(struct settings){ .sasl = "PLAIN", .tls = SINK_TLS_ON }, "security.protocol", "sasl_ssl");
	assert_becomes(&(struct settings){ .sasl = "PLAIN", .brokers = "kafka:9092", .tls = SINK_TLS_OFF },
		       "security.protocol", "sasl_plaintext");
}

static void the_password_comes_from_its_file_without_the_newline(void **state _unused_)
{
	char *file = file_with("s3cret \n");
	rd_kafka_conf_t *conf = built(&(struct settings){ .sasl = "SCRAM-SHA-512", .password_file = file });

	assert_value(conf, "sasl.password", "s3cret ");
	assert_value(conf, "sasl.username", "relay");
	assert_value(conf, "sasl.mechanism", "SCRAM-SHA-512");
	rd_kafka_conf_destroy(conf);
	remove_file(file);
}

static void a_password_file_that_is_missing_is_named(void **state _unused_)
{
	rd_kafka_conf_t *conf;
	struct error err;

	assert_false(build(&(struct settings){ .sasl = "PLAIN", .password_file = "/nowhere/password" }, &conf, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_non_null(strstr(err.message, "/nowhere/password"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_can_neither_be_lost_nor_overtake_by_default),
		cmocka_unit_test(properties_that_guarantees_rest_on_cannot_be_set),
		cmocka_unit_test(not_even_to_the_value_that_they_have),
		cmocka_unit_test(an_unknown_property_is_named_with_its_place),
		cmocka_unit_test(a_wrong_value_is_named_with_its_place),
		cmocka_unit_test(a_property_of_the_user_wins_over_a_default),
		cmocka_unit_test(one_by_one_means_batches_of_one_whatever_the_user_says),
		cmocka_unit_test(whether_messages_are_compressed_is_known),
		cmocka_unit_test(plain_text_leaves_the_machine_only_when_asked_for),
		cmocka_unit_test(a_certificate_file_means_tls_even_at_home),
		cmocka_unit_test(a_certificate_file_that_cannot_be_read_is_named),
		cmocka_unit_test(certificates_are_verified),
		cmocka_unit_test(sasl_rides_on_tls_or_not),
		cmocka_unit_test(the_password_comes_from_its_file_without_the_newline),
		cmocka_unit_test(a_password_file_that_is_missing_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
