/* What JetStream answers, as servers 2.9 and 2.15 write it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "sink/nats_answer.h"

static void an_acknowledgement_names_the_stream(void **state _unused_)
{
	struct nats_answer a;

	assert_true(nats_answer_read(slice_of("{\"stream\":\"ORDERS\", \"seq\":17}"), &a));
	assert_false(a.refused);
	assert_string_equal(a.stream, "ORDERS");
	assert_true(nats_answer_read(slice_of("{\"stream\":\"A\\u0042\",\"domain\":\"hub\",\"seq\":3,\"duplicate\":true}"), &a));
	assert_false(a.refused);
	assert_string_equal(a.stream, "AB");
}

static void a_refusal_says_why(void **state _unused_)
{
	struct nats_answer a;

	assert_true(nats_answer_read(slice_of("{\"error\":{\"code\":503,\"err_code\":10077,"
					      "\"description\":\"maximum messages exceeded\"},\"stream\":\"S\",\"seq\":0}"), &a));
	assert_true(a.refused);
	assert_int_equal(a.code, 10077);
	assert_int_equal(a.class, 503);
	assert_string_equal(a.description, "maximum messages exceeded");
}

static void names_of_streams(void **state _unused_)
{
	struct nats_answer a;

	assert_true(nats_answer_read(slice_of("{\"type\":\"io.nats.jetstream.api.v1.stream_names_response\",\"total\":2,"
					      "\"offset\":0,\"limit\":1024,\"streams\":[\"A\",\"B\"]}"), &a));
	assert_string_equal(a.stream, "A");
	assert_true(nats_answer_read(slice_of("{\"total\":0,\"streams\":null}"), &a));
	assert_string_equal(a.stream, "");
	assert_true(nats_answer_read(slice_of("{\"total\":0,\"streams\":[ ]}"), &a));
	assert_string_equal(a.stream, "");
}

/* A code inside another object is not that of the error. */
static void only_members_in_their_place_count(void **state _unused_)
{
	struct nats_answer a;

	assert_true(nats_answer_read(slice_of("{\"err_code\":1,\"config\":{\"error\":{\"err_code\":2},\"stream\":\"x\"}}"), &a));
	assert_false(a.refused);
	assert_int_equal(a.code, 0);
	assert_string_equal(a.stream, "");
}

static void anything_else_is_no_answer(void **state _unused_)
{
	static const char *const texts[] = { "", "+OK", "[]", "{", "{\"stream\"", "{\"stream\":", "{\"stream\":\"S\"", "{\"error\":3}" };
	struct nats_answer a;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (nats_answer_read(slice_of(texts[i]), &a))
			fail_msg("'%s' was taken for an answer", texts[i]);
	assert_false(nats_answer_read(SLICE_NULL, &a));
}

static void long_texts_are_cut(void **state _unused_)
{
	struct nats_answer a;
	char json[1200];

	memset(json, 'd', sizeof(json));
	memcpy(json, "{\"stream\":\"", 11);
	memcpy(json + 1100, "\"}", 3);
	assert_true(nats_answer_read(slice_of(json), &a));
	assert_int_equal(strlen(a.stream), sizeof(a.stream) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_acknowledgement_names_the_stream),
		cmocka_unit_test(a_refusal_says_why),
		cmocka_unit_test(names_of_streams),
		cmocka_unit_test(only_members_in_their_place_count),
		cmocka_unit_test(anything_else_is_no_answer),
		cmocka_unit_test(long_texts_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
