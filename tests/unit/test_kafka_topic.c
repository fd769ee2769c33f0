/* What a topic of Kafka may be called. */
#include "sink/kafka_topic.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "base/macros.h"

static void test_names(void **state _unused_)
{
	static const struct {
		const char *name;
		bool allowed;
	} cases[] = {
		{ "outbox.event.order", true }, { "A_b-3", true },      { "...", true },        { ".", false },
		{ "..", false },                { "not a topic", false }, { "gr\xc3\xb6\xc3\x9f" "e", false },
		{ "a/b", false },               { "a\nb", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(kafka_topic_fault(slice_of(cases[i].name)) == NULL, cases[i].allowed);
	assert_non_null(kafka_topic_fault((struct slice){ "a\0b", 3 }));
}

static void test_length(void **state _unused_)
{
	char name[250];

	memset(name, 'n', sizeof(name));
	assert_null(kafka_topic_fault((struct slice){ name, 249 }));
	assert_non_null(kafka_topic_fault((struct slice){ name, 250 }));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
