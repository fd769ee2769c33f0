/* What can be a subject of NATS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sink/nats_subject.h"

static void test_subjects(void **state _unused_)
{
	static const struct {
		const char *subject;
		bool allowed;
	} cases[] = {
		{ "outbox.event.order", true }, { "order", true },     { "gr\xc3\xb6\xc3\x9f" "e.a-b_c", true },
		{ "$KV.bucket.key", true },     { "", false },         { "a b", false },
		{ "a\tb", false },              { "a\r\nPUB x 0", false }, { "a.*", false },
		{ "a.>", false },               { ".a", false },       { "a.", false },
		{ "a..b", false },              { ".", false },        { "$JS.API.STREAM.DELETE.x", false },
		{ "$SYS.x", false },            { "_INBOX.x", false }, { "a\x7f", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if ((nats_subject_fault(slice_of(cases[i].subject)) == NULL) != cases[i].allowed)
			fail_msg("'%s' is %s", cases[i].subject, cases[i].allowed ? "refused" : "allowed");
	assert_non_null(nats_subject_fault((struct slice){ "a\0b", 3 }));
}

static void test_length(void **state _unused_)
{
	char *subject = malloc(3501);

	memset(subject, 'n', 3501);
	assert_null(nats_subject_fault((struct slice){ subject, 3500 }));
	assert_non_null(nats_subject_fault((struct slice){ subject, 3501 }));
	free(subject);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_subjects),
		cmocka_unit_test(test_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
