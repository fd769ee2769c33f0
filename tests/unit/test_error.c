#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "base/error.h"

static bool is_utf8(const char *text)
{
	size_t left = strlen(text), n;

	for (; left > 0; text += n, left -= n)
		if ((n = utf8_length((const unsigned char *)text, left)) == 0)
			return false;
	return true;
}

static void a_message_is_one_line(void **state _unused_)
{
	struct error err;

	assert_false(error_set(&err, ERROR_REJECTED, "first\nsecond\t%s \n", "third"));
	assert_string_equal(err.message, "first second third");
}

static void a_value_that_was_cut_in_a_character_leaves_a_message_that_a_database_takes(void **state _unused_)
{
	struct error err;

	error_set(&err, ERROR_REJECTED, "row %.*s cannot be routed", 3, "x\xc3\xbc\xc3\xbc");
	assert_string_equal(err.message, "row x\xc3\xbc cannot be routed");
	error_set(&err, ERROR_REJECTED, "row %.*s cannot be routed", 2, "x\xc3\xbc\xc3\xbc");
	assert_string_equal(err.message, "row x? cannot be routed");
}

static void a_message_that_does_not_fit_ends_with_a_whole_character(void **state _unused_)
{
	char text[2 * sizeof(((struct error *)0)->message)];
	struct error err;

	for (size_t i = 0; i + 2 < sizeof(text); i += 2)
		memcpy(text + i, "\xc3\xbc", 3);
	for (int shift = 0; shift < 2; shift++) {
		error_set(&err, ERROR_REJECTED, "%s%s", shift ? "x" : "", text);
		assert_true(is_utf8(err.message));
		error_prefix(&err, "%s", shift ? "yy" : "y");
		assert_true(is_utf8(err.message));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_is_one_line),
		cmocka_unit_test(a_value_that_was_cut_in_a_character_leaves_a_message_that_a_database_takes),
		cmocka_unit_test(a_message_that_does_not_fit_ends_with_a_whole_character),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
