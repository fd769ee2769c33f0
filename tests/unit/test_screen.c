#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "cli/screen.h"

#define HOME "\033[H"
#define NEXT "\033[K\r\n"
#define REST "\033[J"

static void check(const char *text, size_t rows, size_t columns, const char *expected)
{
	_cleanup_(buf_release) struct buf out = { .ceiling = 10000 };

	screen_render(&out, text, rows, columns);
	assert_string_equal(buf_str(&out), expected);
}

static void headings_are_bold(_unused_ void **state)
{
	check("top\n  row\n", 24, 80, HOME "\033[1mtop\033[m" NEXT "  row" NEXT REST);
}

static void lines_are_cut_at_the_last_column(_unused_ void **state)
{
	check("  12345678\n", 24, 8, HOME "  123456\r\n" REST);
	check("  123456\n", 24, 8, HOME "  123456\r\n" REST);
	check("  12345\n", 24, 8, HOME "  12345" NEXT REST);
	check("  äöü…\n", 24, 5, HOME "  äöü\r\n" REST);
}

static void what_does_not_fit_is_counted(_unused_ void **state)
{
	check("  a\n  b\n  c\n  d\n", 3, 80, HOME "  a" NEXT "  b" NEXT "  … 2 more lines\033[K");
	check("  a\n  b\n  c\n", 3, 80, HOME "  a" NEXT "  b" NEXT "  c\033[K");
	check("  a\n  b\n", 1, 80, HOME "  … 2 more lines\033[K");
}

static void nothing_in_a_text_moves_the_cursor(_unused_ void **state)
{
	check("  a\033[2Jb\r\tc\177\302\233d\377\n", 24, 80, HOME "  a?[2Jb??c??d?" NEXT REST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(headings_are_bold),
		cmocka_unit_test(lines_are_cut_at_the_last_column),
		cmocka_unit_test(what_does_not_fit_is_counted),
		cmocka_unit_test(nothing_in_a_text_moves_the_cursor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
