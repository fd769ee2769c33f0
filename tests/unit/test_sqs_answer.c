/* What SQS and ElasticMQ answer to a batch, and what is only like it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "sink/sqs_answer.h"

static void each_entry_has_its_own_fate(void **state _unused_)
{
	struct sqs_answer a;

	assert_true(sqs_answer_read(
		slice_of("{\"Failed\":[{\"Code\":\"AWS.SimpleQueueService.InvalidMessageContents\",\"Id\":\"1\",\"Message\":\"no\","
			 "\"SenderFault\":true}], \"Successful\": [{\"Id\":\"0\",\"MD5OfMessageBody\":\"4\",\"MessageId\":\"f\"},"
			 "{\"Id\":\"9\"}]}"), &a));
	assert_int_equal(a.fate[0], SQS_STORED);
	assert_int_equal(a.fate[1], SQS_REFUSED);
	assert_string_equal(a.why[1].code, "InvalidMessageContents");
	assert_string_equal(a.why[1].message, "no");
	assert_int_equal(a.fate[2], SQS_UNKNOWN);
	assert_int_equal(a.fate[9], SQS_STORED);
}

static void what_is_not_said_once_is_unknown(void **state _unused_)
{
	struct sqs_answer a;

	assert_true(sqs_answer_read(slice_of("{\"Successful\":[{\"Id\":\"3\"},{\"Id\":\"10\"},{\"Id\":\"x\"},{}],"
					     "\"Failed\":[{\"Id\":\"3\",\"Code\":\"X\"}]}"), &a));
	for (int i = 0; i < SQS_BATCH_MAX; i++)
		assert_int_equal(a.fate[i], SQS_UNKNOWN);
}

static void what_is_no_answer_says_nothing(void **state _unused_)
{
	static const char *const texts[] = { "", "null", "[]", "<html>", "{\"Successful\":[{\"Id\":\"0\"}",
					     "{\"Successful\":[{\"Id\":\"0\"},]}", "{\"Successful\":[17]}" };
	struct sqs_answer a;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_false(sqs_answer_read(slice_of(texts[i]), &a));
		assert_int_equal(a.fate[0], SQS_UNKNOWN);
	}
	assert_true(sqs_answer_read(slice_of("{\"Successful\":null,\"Failed\":{}}"), &a));
	assert_int_equal(a.fate[0], SQS_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_entry_has_its_own_fate),
		cmocka_unit_test(what_is_not_said_once_is_unknown),
		cmocka_unit_test(what_is_no_answer_says_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
