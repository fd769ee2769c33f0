#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "sink/sqs_errors.h"

static const struct {
	int status;
	const char *body;
	enum error_kind kind;
	enum sqs_scope scope;
} meanings[] = {
	{ 400, "{\"__type\":\"com.amazonaws.sqs#QueueDoesNotExist\",\"message\":\"The specified queue does not exist.\"}", ERROR_CONFIG,
	  SQS_QUEUE },
	{ 400, "{\"__type\":\"com.amazonaws.sqs#BatchRequestTooLong\",\"message\":\"too long\"}", ERROR_REJECTED, SQS_ROW },
	{ 400, "{\"__type\":\"com.amazonaws.sqs#InvalidAttributeValue\",\"Message\":\"MessageTooLong\"}", ERROR_REJECTED, SQS_ROW },
	{ 400, "{\"__type\":\"com.amazon.coral.service#ThrottlingException\",\"message\":\"Rate exceeded\"}", ERROR_THROTTLED, SQS_SERVICE },
	{ 400, "{\"__type\":\"com.amazonaws.sqs#RequestThrottled\"}", ERROR_THROTTLED, SQS_SERVICE },
	{ 400, "{\"__type\":\"com.amazonaws.sqs#KmsThrottled\"}", ERROR_THROTTLED, SQS_SERVICE },
	{ 403, "{\"__type\":\"com.amazon.coral.service#InvalidSignatureException\",\"message\":\"Signature expired: …\"}", ERROR_AUTH,
	  SQS_CREDENTIALS },
	{ 403, "{\"__type\":\"com.amazon.coral.service#ExpiredTokenException\"}", ERROR_AUTH, SQS_CREDENTIALS },
	{ 400, "{\"__type\":\"com.amazon.coral.service#UnrecognizedClientException\"}", ERROR_AUTH, SQS_CREDENTIALS },
	{ 403, "{\"__type\":\"com.amazon.coral.service#AccessDeniedException\"}", ERROR_AUTH, SQS_QUEUE },
	{ 400, "{\"__type\":\"com.amazonaws.sqs#KmsDisabled\"}", ERROR_CONFIG, SQS_QUEUE },
	{ 500, "{\"__type\":\"com.amazonaws.sqs#InternalFailure\"}", ERROR_TRANSPORT, SQS_SERVICE },
	/* without a code that we know */
	{ 503, "", ERROR_THROTTLED, SQS_SERVICE },
	{ 502, "<html>bad gateway</html>", ERROR_TRANSPORT, SQS_SERVICE },
	{ 429, "[]", ERROR_THROTTLED, SQS_SERVICE },
	{ 413, "", ERROR_REJECTED, SQS_ROW },
	{ 403, "forbidden", ERROR_AUTH, SQS_CREDENTIALS },
	{ 404, "", ERROR_CONFIG, SQS_QUEUE },
	{ 400, "{\"__type\":\"com.amazonaws.sqs#SomethingNew\",\"message\":\"…\"}", ERROR_CONFIG, SQS_QUEUE },
};

static void refusals_have_a_kind_and_a_scope(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(meanings); i++) {
		struct aws_refusal refusal;
		struct error err = { 0 };

		print_message("%d %s\n", meanings[i].status, meanings[i].body);
		aws_refusal_read(slice_of(meanings[i].body), &refusal);
		assert_int_equal(sqs_error_set(&err, meanings[i].status, &refusal, SLICE_LITERAL("q")), meanings[i].scope);
		assert_int_equal(err.kind, meanings[i].kind);
		assert_non_null(strstr(err.message, "queue q: "));
	}
}

static void a_missing_queue_comes_with_the_command_that_creates_it(void **state _unused_)
{
	struct aws_refusal refusal = { .code = "QueueDoesNotExist" };
	struct error err;

	sqs_error_set(&err, 400, &refusal, SLICE_LITERAL("orders"));
	assert_string_equal(err.hint, "create it: aws sqs create-queue --queue-name orders");
	sqs_error_set(&err, 400, &refusal, SLICE_LITERAL("orders.fifo"));
	assert_string_equal(err.hint, "create it: aws sqs create-queue --queue-name orders.fifo --attributes FifoQueue=true");
}

static void what_a_wrong_signature_is_answered_with_is_not_repeated(void **state _unused_)
{
	struct aws_refusal refusal = { "InvalidSignatureException", "should have been x-amz-security-token:SECRET" };
	struct error err;

	sqs_error_set(&err, 403, &refusal, SLICE_LITERAL("q"));
	assert_string_equal(err.message, "queue q: SQS: InvalidSignatureException");
	assert_null(strstr(err.hint, "SECRET"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refusals_have_a_kind_and_a_scope),
		cmocka_unit_test(a_missing_queue_comes_with_the_command_that_creates_it),
		cmocka_unit_test(what_a_wrong_signature_is_answered_with_is_not_repeated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
