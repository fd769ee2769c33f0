#include "sink/kafka_conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/mem.h"
#include "base/slice.h"
#include "config/secret.h"

/* Not for the user to change: with any of them otherwise rows could be lost or overtake each other. */
static const struct {
	const char *name, *value, *why;
} required[] = {
	{ "acks", "all", "a row is deleted when every in-sync replica has it" },
	{ "request.required.acks", "all", "a row is deleted when every in-sync replica has it" },
	{ "enable.idempotence", "true", "retries would reorder and repeat" },
	{ "enable.gapless.guarantee", "true", "a row behind a failed one would overtake it" },
	{ "message.timeout.ms", "0", "a message given up by the client is a gap" },
	{ "delivery.timeout.ms", "0", "a message given up by the client is a gap" },
	{ "delivery.report.only.error", "false", "no row would ever be acknowledged" },
	{ "security.protocol", NULL, "it follows from tls and sasl_mechanism" },
	{ "bootstrap.servers", NULL, "it is the setting brokers" },
	{ "metadata.broker.list", NULL, "it is the setting brokers" },
	{ "transactional.id", NULL, "transactions are not used" },
};

static const struct {
	const char *name, *value;
} defaults[] = {
	{ "client.id", "postrider" },
	{ "partitioner", "murmur2_random" },            /* as Java's: a key stays in its partition whoever writes */
	{ "linger.ms", "0.2" },
	{ "allow.auto.create.topics", "false" },        /* a wrong topic name is an error, not a new topic */
	{ "topic.metadata.propagation.max.ms", "5000" },
	{ "socket.keepalive.enable", "true" },
	{ "reconnect.backoff.max.ms", "5000" },
	{ "socket.nagle.disable", "true" },
	{ "log_level", "3" },
};

static bool set(rd_kafka_conf_t *conf, const char *name, const char *value, const char *where, struct error *err)
{
	char reason[512];

	if (rd_kafka_conf_set(conf, name, value, reason, sizeof(reason)) == RD_KAFKA_CONF_OK)
		return true;
	return error_set(err, ERROR_CONFIG, "%s: Kafka property %s: %s", where, name, reason);
}

static bool set_user_properties(rd_kafka_conf_t *conf, const struct config_map *properties, struct error *err)
{
	for (size_t i = 0; i < properties->count; i++) {
		const struct config_pair *p = &properties->pairs[i];

		for (size_t k = 0; k < ARRAY_SIZE(required); k++)
			if (strcmp(required[k].name, p->key) == 0)
				return error_set(err, ERROR_CONFIG, "%s: Kafka property %s cannot be set: %s", p->where,
						 p->key, required[k].why);
		if (!set(conf, p->key, p->value, p->where, err))
			return false;
	}
	return true;
}

/* --- TLS and SASL --------------------------------------------------------------------------------------------- */

static bool is_loopback(struct slice broker)
{
	static const char *const hosts[] = { "localhost", "[::1]", "::1" };
	const char *scheme = memmem(broker.ptr, broker.len, "://", 3);

	if (scheme) {
		broker.len -= (size_t)(scheme + 3 - broker.ptr);
		broker.ptr = scheme + 3;
	}
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		size_t len = strlen(hosts[i]);

		if (broker.len >= len && memcmp(broker.ptr, hosts[i], len) == 0 &&
		    (broker.len == len || (broker.ptr[len] == ':' && hosts[i][0] != ':')))
			return true;
	}
	/* 127.0.0.0/8 in digits, not a name that begins so. */
	for (size_t i = 0; i < broker.len; i++)
		if (!strchr("0123456789.:", broker.ptr[i]))
			return false;
	return broker.len > 4 && memcmp(broker.ptr, "127.", 4) == 0;
}

static bool all_loopback(const char *brokers)
{
	while (*brokers) {
		size_t len = strcspn(brokers, ",");

		while (len > 0 && *brokers == ' ') {
			brokers++;
			len--;
		}
		if (len > 0 && !is_loopback((struct slice){ brokers, len }))
			return false;
		brokers += len;
		brokers += *brokers == ',';
	}
	return true;
}

/* Plain text leaves this machine only when asked for. */
static bool wants_tls(const struct kafka_config *k)
{
	if (k->tls != SINK_TLS_AUTO)
		return k->tls == SINK_TLS_ON;
	return k->tls_ca_file[0] || k->tls_cert_file[0] || !all_loopback(k->brokers);
}

static bool set_optional(rd_kafka_conf_t *conf, const char *name, const char *value, const char *where, struct error *err)
{
	return value[0] == '\0' || set(conf, name, value, where, err);
}

/* librdkafka would say that a file is wrong, but not which. */
static bool set_file(rd_kafka_conf_t *conf, const char *name, const char *option, const char *file, const char *where,
		     struct error *err)
{
	if (file[0] != '\0' && access(file, R_OK) != 0)
		return error_set(err, ERROR_CONFIG, "%s: %s: could not read %s: %s", where, option, file, strerror(errno));
	return set_optional(conf, name, file, where, err);
}

static bool set_secret(rd_kafka_conf_t *conf, const char *name, const char *file, const char *where, struct error *err)
{
	_cleanup_(mem_freep) char *secret = NULL;

	if (file[0] == '\0')
		return true;
	if (!config_read_secret(file, &secret, err))
		return false;
	return set(conf, name, secret, where, err);
}

static bool set_security(rd_kafka_conf_t *conf, const struct kafka_config *k, const char *where, struct error *err)
{
	bool tls = wants_tls(k), sasl = k->sasl_mechanism[0] != '\0';
	const char *protocol = tls ? (sasl ? "sasl_ssl" : "ssl") : (sasl ? "sasl_plaintext" : "plaintext");

	return set(conf, "security.protocol", protocol, where, err) &&
	       set_file(conf, "ssl.ca.location", "tls_ca_file", k->tls_ca_file, where, err) &&
	       set_file(conf, "ssl.certificate.location", "tls_cert_file", k->tls_cert_file, where, err) &&
	       set_file(conf, "ssl.key.location", "tls_key_file", k->tls_key_file, where, err) &&
	       set_secret(conf, "ssl.key.password", k->tls_key_password_file, where, err) &&
	       set_optional(conf, "sasl.mechanism", k->sasl_mechanism, where, err) &&
	       set_optional(conf, "sasl.username", k->sasl_username, where, err) &&
	       set_secret(conf, "sasl.password", k->sasl_password_file, where, err);
}

/* --- partitions ----------------------------------------------------------------------------------------------- */

/* All that librdkafka has. */
static const struct kafka_partitioner partitioners[] = {
	{ "murmur2_random", rd_kafka_msg_partitioner_murmur2_random, false },
	{ "murmur2", rd_kafka_msg_partitioner_murmur2, true },
	{ "consistent_random", rd_kafka_msg_partitioner_consistent_random, false },
	{ "consistent", rd_kafka_msg_partitioner_consistent, true },
	{ "fnv1a_random", rd_kafka_msg_partitioner_fnv1a_random, false },
	{ "fnv1a", rd_kafka_msg_partitioner_fnv1a, true },
	{ "random", rd_kafka_msg_partitioner_random, false },
};

const struct kafka_partitioner *kafka_conf_partitioner(const rd_kafka_conf_t *conf)
{
	char name[32] = "";
	size_t size = sizeof(name);

	rd_kafka_conf_get(conf, "partitioner", name, &size);
	for (size_t i = 0; i < ARRAY_SIZE(partitioners); i++)
		if (strcmp(partitioners[i].name, name) == 0)
			return &partitioners[i];
	return &partitioners[0];
}

/* Our partitioner stands before the configured one (kafka_gate.h). librdkafka asks it for messages without a key only
 * when they do not stick to a random partition for a while. */
static bool set_sticky(rd_kafka_conf_t *conf, const char *where, struct error *err)
{
	return !kafka_conf_partitioner(conf)->places_keyless || set(conf, "sticky.partitioning.linger.ms", "0", where, err);
}

/* --- all of it ------------------------------------------------------------------------------------------------ */

static bool set_ours(rd_kafka_conf_t *conf, const char *where, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(required); i++)
		if (required[i].value && !set(conf, required[i].name, required[i].value, where, err))
			return false;
	for (size_t i = 0; i < ARRAY_SIZE(defaults); i++)
		if (!set(conf, defaults[i].name, defaults[i].value, where, err))
			return false;
	return true;
}

bool kafka_conf_build(const struct sink_config *sink, bool one_by_one, rd_kafka_conf_t **ret, struct error *err)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	if (!set_ours(conf, sink->where, err) || !set(conf, "bootstrap.servers", sink->kafka.brokers, sink->where, err) ||
	    !set_security(conf, &sink->kafka, sink->where, err) ||
	    !set_user_properties(conf, &sink->kafka.properties, err) || !set_sticky(conf, sink->where, err) ||
	    (one_by_one && !set(conf, "batch.num.messages", "1", sink->where, err))) {
		rd_kafka_conf_destroy(conf);
		return false;
	}
	*ret = conf;
	return true;
}

bool kafka_conf_compresses(const rd_kafka_conf_t *conf)
{
	char codec[32] = "";
	size_t size = sizeof(codec);

	return rd_kafka_conf_get(conf, "compression.codec", codec, &size) == RD_KAFKA_CONF_OK && strcmp(codec, "none") != 0;
}
