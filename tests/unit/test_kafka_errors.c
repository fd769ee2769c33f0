#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "sink/kafka_errors.h"

static const struct {
	rd_kafka_resp_err_t code;
	enum error_kind kind;
} meanings[] = {
	/* this row */
	{ RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, ERROR_REJECTED },
	{ RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE, ERROR_REJECTED },
	{ RD_KAFKA_RESP_ERR_INVALID_MSG, ERROR_REJECTED },
	{ RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE, ERROR_REJECTED },
	{ RD_KAFKA_RESP_ERR_INVALID_RECORD, ERROR_REJECTED },
	{ RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, ERROR_REJECTED },
	{ RD_KAFKA_RESP_ERR__INVALID_ARG, ERROR_REJECTED },
	/* the topic */
	{ RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, ERROR_CONFIG },
	{ RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC, ERROR_CONFIG },
	{ RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, ERROR_CONFIG },
	{ RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, ERROR_CONFIG },
	{ RD_KAFKA_RESP_ERR_POLICY_VIOLATION, ERROR_CONFIG },
	{ RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE, ERROR_CONFIG },
	{ RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, ERROR_CONFIG },
	{ RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION, ERROR_CONFIG },
	{ RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE, ERROR_CONFIG },
	/* us */
	{ RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, ERROR_AUTH },
	{ RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, ERROR_AUTH },
	{ RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED, ERROR_AUTH },
	{ RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM, ERROR_AUTH },
	{ RD_KAFKA_RESP_ERR_ILLEGAL_SASL_STATE, ERROR_AUTH },
	{ RD_KAFKA_RESP_ERR__AUTHENTICATION, ERROR_AUTH },
	{ RD_KAFKA_RESP_ERR__SSL, ERROR_AUTH },
	/* too much at once */
	{ RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED, ERROR_THROTTLED },
	/* nobody knows */
	{ RD_KAFKA_RESP_ERR__PURGE_QUEUE, ERROR_LOST },
	{ RD_KAFKA_RESP_ERR__PURGE_INFLIGHT, ERROR_LOST },
	{ RD_KAFKA_RESP_ERR__FATAL, ERROR_LOST },
	{ RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE, ERROR_LOST },
	{ RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, ERROR_LOST },
	{ RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER, ERROR_LOST },
	{ RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, ERROR_LOST },
	{ RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, ERROR_LOST },
	{ RD_KAFKA_RESP_ERR_PRODUCER_FENCED, ERROR_LOST },
	{ RD_KAFKA_RESP_ERR__FENCED, ERROR_LOST },
	/* the brokers are away, or not ready: no row is to blame, and none is held */
	{ RD_KAFKA_RESP_ERR__TRANSPORT, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR__RESOLVE, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR__TIMED_OUT, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR__QUEUE_FULL, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR, ERROR_TRANSPORT },
	{ RD_KAFKA_RESP_ERR_UNKNOWN, ERROR_TRANSPORT },
};

static void every_code_means_what_it_should(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(meanings); i++)
		if (kafka_error_kind(meanings[i].code) != meanings[i].kind)
			fail_msg("%s is %s", rd_kafka_err2name(meanings[i].code),
				 error_kind_name(kafka_error_kind(meanings[i].code)));
}

/* A code that this program does not know, of a broker newer than it is, is waited for: that loses nothing. */
static void every_other_code_of_the_library_is_the_transports(void **state _unused_)
{
	const struct rd_kafka_err_desc *descs;
	size_t n;

	rd_kafka_get_err_descs(&descs, &n);
	assert_true(n > ARRAY_SIZE(meanings));
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;

		while (k < ARRAY_SIZE(meanings) && meanings[k].code != descs[i].code)
			k++;
		if (k == ARRAY_SIZE(meanings) && kafka_error_kind(descs[i].code) != ERROR_TRANSPORT)
			fail_msg("%s is %s, which no test expects", descs[i].name,
				 error_kind_name(kafka_error_kind(descs[i].code)));
	}
	assert_int_equal(kafka_error_kind(RD_KAFKA_RESP_ERR_END_ALL + 100), ERROR_TRANSPORT);
}

static void an_error_says_its_name_and_what_it_means(void **state _unused_)
{
	struct error err = { 0 };

	assert_false(kafka_error_set(&err, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, NULL));
	assert_int_equal(err.kind, ERROR_REJECTED);
	assert_ptr_equal(strstr(err.message, "MSG_SIZE_TOO_LARGE: "), err.message);
	assert_non_null(strstr(err.hint, "max.message.bytes"));
}

static void a_detail_takes_the_place_of_the_general_text(void **state _unused_)
{
	struct error err = { 0 };

	kafka_error_set(&err, RD_KAFKA_RESP_ERR__SSL, "certificate has expired");
	assert_string_equal(err.message, "_SSL: certificate has expired");
	assert_non_null(strstr(err.hint, "tls_ca_file"));
}

static void a_handshake_that_fails_at_once_is_about_the_certificate(void **state _unused_)
{
	struct error err = { 0 };

	kafka_error_set(&err, RD_KAFKA_RESP_ERR__TRANSPORT, "error:0A000086:SSL routines::certificate verify failed");
	assert_int_equal(err.kind, ERROR_AUTH);
	assert_non_null(strstr(err.hint, "tls_ca_file"));
	kafka_error_set(&err, RD_KAFKA_RESP_ERR__TRANSPORT, "error:0A000126:SSL routines::unexpected eof while reading");
	assert_int_equal(err.kind, ERROR_TRANSPORT);
}

static void an_error_that_passes_by_itself_has_no_hint(void **state _unused_)
{
	struct error err = { 0 };

	kafka_error_set(&err, RD_KAFKA_RESP_ERR__TRANSPORT, NULL);
	assert_string_equal(err.hint, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_means_what_it_should),
		cmocka_unit_test(every_other_code_of_the_library_is_the_transports),
		cmocka_unit_test(an_error_says_its_name_and_what_it_means),
		cmocka_unit_test(a_detail_takes_the_place_of_the_general_text),
		cmocka_unit_test(a_handshake_that_fails_at_once_is_about_the_certificate),
		cmocka_unit_test(an_error_that_passes_by_itself_has_no_hint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
