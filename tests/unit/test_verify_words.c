#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/backoff.h"
#include "base/macros.h"
#include "verify/words.h"

static uint32_t added(struct words *w, struct slice s, bool expect_new)
{
	bool is_new;
	uint32_t number = words_add(w, s, &is_new);

	assert_int_equal(is_new, expect_new);
	return number;
}

static void strings_are_numbered_in_the_order_in_which_they_came(void **state _unused_)
{
	struct words w;

	words_init(&w);
	assert_int_equal(words_find(&w, SLICE_LITERAL("a")), WORDS_NONE);
	assert_int_equal(added(&w, SLICE_LITERAL("a"), true), 0);
	assert_int_equal(added(&w, SLICE_LITERAL("b"), true), 1);
	assert_int_equal(added(&w, SLICE_LITERAL("a"), false), 0);
	assert_int_equal(words_find(&w, SLICE_LITERAL("b")), 1);
	assert_int_equal(words_find(&w, SLICE_LITERAL("c")), WORDS_NONE);
	assert_int_equal(w.count, 2);
	words_release(&w);
}

/* Ids come from outside: any bytes, and of any length. */
static void any_bytes_are_a_string(void **state _unused_)
{
	static const char zeros[300];
	const struct slice strings[] = {
		{ "", 0 }, { zeros, 1 }, { zeros, 2 }, { zeros, 7 }, { zeros, 8 }, { zeros, 9 }, { zeros, 300 },
		{ "\xff\xfe", 2 }, { "abcdefgh", 8 }, { "abcdefgh\0", 9 }, { "\0abcdefgh", 9 },
	};
	struct words w;

	words_init(&w);
	for (uint32_t i = 0; i < ARRAY_SIZE(strings); i++)
		assert_int_equal(added(&w, strings[i], true), i);
	for (uint32_t i = 0; i < ARRAY_SIZE(strings); i++) {
		assert_int_equal(added(&w, strings[i], false), i);
		assert_int_equal(words_find(&w, strings[i]), i);
		assert_true(slice_equal(words_get(&w, i), strings[i]));
	}
	words_release(&w);
}

static void many_strings_are_all_found_again(void **state _unused_)
{
	enum { MANY = 200000 };
	char text[32];
	struct words w;

	words_init(&w);
	for (uint32_t i = 0; i < MANY; i++) {
		snprintf(text, sizeof(text), "row-%u", i);
		assert_int_equal(added(&w, slice_of(text), true), i);
	}
	for (uint32_t i = 0; i < 2 * MANY; i++) {
		snprintf(text, sizeof(text), "row-%u", i);
		assert_int_equal(words_find(&w, slice_of(text)), i < MANY ? i : WORDS_NONE);
	}
	words_release(&w);
}

/* Against a plain list. */
static void random_strings_of_few_letters_keep_their_numbers(void **state _unused_)
{
	char known[400][12];
	uint32_t n = 0;
	uint64_t seed = 7;
	struct words w;

	words_init(&w);
	for (int step = 0; step < 20000 && n < ARRAY_SIZE(known); step++) {
		char text[12] = "";
		size_t len = random_next(&seed) % sizeof(text);
		uint32_t at = 0;

		for (size_t i = 0; i < len; i++)
			text[i] = (char)('a' + random_next(&seed) % 2);
		while (at < n && strcmp(known[at], text) != 0)
			at++;
		if (at == n)
			memcpy(known[n++], text, sizeof(text));
		assert_int_equal(added(&w, slice_of(text), at == n - 1 && w.count < n), at);
	}
	assert_int_equal(w.count, n);
	words_release(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_are_numbered_in_the_order_in_which_they_came),
		cmocka_unit_test(any_bytes_are_a_string),
		cmocka_unit_test(many_strings_are_all_found_again),
		cmocka_unit_test(random_strings_of_few_letters_keep_their_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
