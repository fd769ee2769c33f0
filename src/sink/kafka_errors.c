#include "sink/kafka_errors.h"

#include <string.h>

#include "base/macros.h"

static const char create_topic[] =
	"create the topic, or let the brokers do it with properties: {allow.auto.create.topics: \"true\"}";
static const char raise_limit[] =
	"raise message.max.bytes under properties and max.message.bytes of the topic, or delete the row";

static const char old_brokers[] = "the brokers are too old for an idempotent producer: they must be Kafka 0.11 or newer";

/* Anything that is not here is the transport's: wait and send again. */
static const struct {
	rd_kafka_resp_err_t code;
	enum error_kind kind;
	const char *hint;
} codes[] = {
	{ RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, ERROR_REJECTED, raise_limit },
	{ RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE, ERROR_REJECTED, raise_limit },
	{ RD_KAFKA_RESP_ERR_INVALID_MSG, ERROR_REJECTED, NULL },
	{ RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE, ERROR_REJECTED, NULL },
	{ RD_KAFKA_RESP_ERR_INVALID_RECORD, ERROR_REJECTED, "a compacted topic refuses messages without a key" },
	{ RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, ERROR_REJECTED, NULL },
	{ RD_KAFKA_RESP_ERR__INVALID_ARG, ERROR_REJECTED, NULL },

	{ RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, ERROR_CONFIG, create_topic },
	{ RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC, ERROR_CONFIG, create_topic },
	{ RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, ERROR_CONFIG, create_topic },
	{ RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, ERROR_CONFIG, "the topic's name is not one that Kafka allows" },
	{ RD_KAFKA_RESP_ERR_POLICY_VIOLATION, ERROR_CONFIG, NULL },

	{ RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE, ERROR_CONFIG, "choose another compression.codec under properties" },
	{ RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, ERROR_CONFIG, old_brokers },
	{ RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION, ERROR_CONFIG, old_brokers },
	{ RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE, ERROR_CONFIG, old_brokers },

	{ RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, ERROR_AUTH, "grant the user Write and Describe on the topic" },
	{ RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, ERROR_AUTH, "grant the user IdempotentWrite on the cluster" },
	{ RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED, ERROR_AUTH, "check sasl_username and sasl_password_file" },
	{ RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM, ERROR_AUTH, "the brokers do not offer this sasl_mechanism" },
	{ RD_KAFKA_RESP_ERR_ILLEGAL_SASL_STATE, ERROR_AUTH, NULL },
	{ RD_KAFKA_RESP_ERR__AUTHENTICATION, ERROR_AUTH, "check sasl_mechanism, sasl_username and sasl_password_file" },
	{ RD_KAFKA_RESP_ERR__SSL, ERROR_AUTH, "check tls_ca_file: the brokers' certificate must verify for their host name" },

	/* A quota. librdkafka waits as long as the brokers say; this code comes only where it does not. */
	{ RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED, ERROR_THROTTLED, "see the quotas of this client at the brokers" },

	/* Delivered or not, nobody knows: the producer was purged or gave up. */
	{ RD_KAFKA_RESP_ERR__PURGE_QUEUE, ERROR_LOST, NULL },
	{ RD_KAFKA_RESP_ERR__PURGE_INFLIGHT, ERROR_LOST, NULL },
	{ RD_KAFKA_RESP_ERR__FATAL, ERROR_LOST, NULL },
	{ RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE, ERROR_LOST, NULL },
	{ RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, ERROR_LOST, NULL },
	{ RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER, ERROR_LOST, NULL },
	{ RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, ERROR_LOST, NULL },
	{ RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, ERROR_LOST, NULL },
	{ RD_KAFKA_RESP_ERR_PRODUCER_FENCED, ERROR_LOST, NULL },
	{ RD_KAFKA_RESP_ERR__FENCED, ERROR_LOST, NULL },
};

static size_t find(rd_kafka_resp_err_t code)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(codes) && codes[i].code != code)
		i++;
	return i;
}

enum error_kind kafka_error_kind(rd_kafka_resp_err_t code)
{
	size_t i = find(code);

	return i < ARRAY_SIZE(codes) ? codes[i].kind : ERROR_TRANSPORT;
}

/* A handshake that fails at once, with librdkafka's first look at it, is reported as a connection that was lost. */
static rd_kafka_resp_err_t meant(rd_kafka_resp_err_t code, const char *detail)
{
	bool untrusted = detail && strstr(detail, "certificate verify failed");

	return code == RD_KAFKA_RESP_ERR__TRANSPORT && untrusted ? RD_KAFKA_RESP_ERR__SSL : code;
}

bool kafka_error_set(struct error *err, rd_kafka_resp_err_t reported, const char *detail)
{
	rd_kafka_resp_err_t code = meant(reported, detail);
	size_t i = find(code);

	error_set(err, kafka_error_kind(code), "%s: %s", rd_kafka_err2name(code), detail ? detail : rd_kafka_err2str(code));
	if (i < ARRAY_SIZE(codes) && codes[i].hint)
		error_hint(err, "%s", codes[i].hint);
	return false;
}
