#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"

static void grows_to_its_ceiling_and_says_when_it_is_full(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b;

	buf_init(&b, 10);
	buf_add_str(&b, "12345");
	buf_printf(&b, "%d", 67890);
	assert_string_equal(buf_str(&b), "1234567890");
	assert_false(b.overflow);
	buf_add_char(&b, 'x');
	assert_true(b.overflow);
	assert_string_equal(buf_str(&b), "1234567890");
}

static void json_escapes_quotes_controls_and_bytes_that_are_not_utf8(void **state _unused_)
{
	static const struct {
		struct slice in;
		const char *out;
	} cases[] = {
		{ SLICE_LITERAL("a\"b\\c"), "\"a\\\"b\\\\c\"" },
		{ SLICE_LITERAL("\n\t"), "\"\\u000a\\u0009\"" },
		{ SLICE_LITERAL("\xc3\xa9"), "\"\xc3\xa9\"" },
		{ SLICE_LITERAL("\xc3"), "\"\\ufffd\"" },
		{ SLICE_LITERAL("\xed\xa0\x80"), "\"\\ufffd\\ufffd\\ufffd\"" },
		{ SLICE_LITERAL(""), "\"\"" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf b;

		buf_init(&b, 100);
		buf_add_json(&b, cases[i].in);
		assert_string_equal(buf_str(&b), cases[i].out);
	}
}

static void array_elements_are_quoted(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b;

	buf_init(&b, 100);
	buf_add_array_element(&b, SLICE_LITERAL("a\"b\\,{}"));
	buf_add_array_element(&b, SLICE_LITERAL(""));
	assert_string_equal(buf_str(&b), "\"a\\\"b\\\\,{}\"\"\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(grows_to_its_ceiling_and_says_when_it_is_full),
		cmocka_unit_test(json_escapes_quotes_controls_and_bytes_that_are_not_utf8),
		cmocka_unit_test(array_elements_are_quoted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
