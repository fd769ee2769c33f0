#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "base/mem.h"
#include "config/roff.h"

static void check_text(const char *text, const char *expected)
{
	_cleanup_(mem_freep) char *found = NULL;
	size_t len;
	FILE *out = open_memstream(&found, &len);

	roff_text(out, text);
	fclose(out);
	assert_string_equal(found, expected);
}

static void nothing_in_a_text_is_taken_for_a_command(_unused_ void **state)
{
	check_text(".TH is a macro", "\\&.TH is a macro\n");
	check_text("a .b 'c", "a \\&.b \\&'c\n");
	check_text("C:\\n", "C:\\en\n");
	check_text("`.hidden`", "\\fB\\&.hidden\\fR\n");
}

static void hyphens_of_flags_and_code_can_be_copied(_unused_ void **state)
{
	check_text("at-least-once, unless --dry-run or (-c)", "at-least-once, unless \\-\\-dry\\-run or (\\-c)\n");
	check_text("`a-b` a-b", "\\fBa\\-b\\fR a-b\n");
}

static void other_characters_are_named(_unused_ void **state)
{
	check_text("`…_file`", "\\fB\\[u2026]_file\\fR\n");
}

static void marks_and_links_become_words(_unused_ void **state)
{
	check_text("**Values.** See [the file](a.yaml).", "\\fBValues.\\fR See the file.\n");
	check_text("a ` b", "a ` b\n");
	check_text("[{\"id\"}] (x)", "[{\"id\"}] (x)\n");
}

static void blank_lines_part_paragraphs(_unused_ void **state)
{
	check_text("one\ntwo\n\nthree\n", "one two\n.PP\nthree\n");
}

static void lists_and_code_are_blocks(_unused_ void **state)
{
	check_text("1. first\n   goes on\n2. second", ".IP 1. 4\nfirst goes on\n.IP 2. 4\nsecond\n");
	check_text("list   all\n       of them\ndrop   one", ".TP 10\n\\fBlist\\fR\nall of them\n.TP 10\n\\fBdrop\\fR\none\n");
	check_text("so:\n\n```sh\nrun \\\n.x -y\n```\n", "so:\n.PP\n.RS 4\n.nf\nrun \\e\n\\&.x \\-y\n.fi\n.RE\n");
}

static void a_line_that_is_broken_begins_no_command(_unused_ void **state)
{
	_cleanup_(mem_freep) char *found = NULL;
	char text[401] = "";
	size_t len;
	FILE *out = open_memstream(&found, &len);

	for (size_t i = 0; i < 400; i += 4)
		memcpy(text + i, " .ab", 5);
	roff_text(out, text + 1);
	fclose(out);
	assert_non_null(strchr(found, '\n'));
	assert_null(strstr(found, "\n."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_in_a_text_is_taken_for_a_command),
		cmocka_unit_test(hyphens_of_flags_and_code_can_be_copied),
		cmocka_unit_test(other_characters_are_named),
		cmocka_unit_test(marks_and_links_become_words),
		cmocka_unit_test(blank_lines_part_paragraphs),
		cmocka_unit_test(lists_and_code_are_blocks),
		cmocka_unit_test(a_line_that_is_broken_begins_no_command),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
