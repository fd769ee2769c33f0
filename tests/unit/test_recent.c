#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "base/macros.h"
#include "read/recent.h"

static struct slice name(char text[16], unsigned i)
{
	return (struct slice){ text, (size_t)snprintf(text, 16, "%u", i) };
}

static void news_is_news_only_to_who_is_older(void **state _unused_)
{
	struct recent r = { 0 };
	struct slice row = slice_of("7");

	assert_false(recent_since(&r, RECENT_ROW, row, 0));
	recent_note(&r, RECENT_ROW, row, 5);
	assert_true(recent_since(&r, RECENT_ROW, row, 4));
	assert_false(recent_since(&r, RECENT_ROW, row, 5));
	assert_false(recent_since(&r, RECENT_ENTITY, row, 4));
	assert_false(recent_since(&r, RECENT_ROW, slice_of("8"), 4));
	recent_note(&r, RECENT_ROW, row, 9);
	assert_true(recent_since(&r, RECENT_ROW, row, 8));
	recent_release(&r);
}

static void what_is_still_needed_survives_growth(void **state _unused_)
{
	struct recent r = { 0 };
	char text[16];

	for (unsigned i = 1; i < 10000; i++) {
		recent_forget(&r, i > 500 ? i - 500 : 0);
		recent_note(&r, RECENT_ROW, name(text, i), i);
		for (unsigned k = i > 500 ? i - 500 : 1; k <= i; k += 97)
			assert_true(recent_since(&r, RECENT_ROW, name(text, k), k - 1));
	}
	recent_release(&r);
}

static void what_nobody_needs_takes_no_room(void **state _unused_)
{
	struct recent r = { 0 };
	char text[16];

	for (unsigned i = 0; i < 1000000; i++) {
		recent_forget(&r, i > 1000 ? i - 1000 : 0);
		recent_note(&r, RECENT_ROW, name(text, i), i);
	}
	assert_true(r.room <= 16384);
	recent_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(news_is_news_only_to_who_is_older),
		cmocka_unit_test(what_is_still_needed_survives_growth),
		cmocka_unit_test(what_nobody_needs_takes_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
