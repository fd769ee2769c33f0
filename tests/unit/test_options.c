#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "cli/options.h"

#define parse(cli, ...) parse_array((char *const[]){ (char[]){ "postrider" }, __VA_ARGS__, NULL }, cli)
#define WORD(s) ((char[]){ s })

static bool parse_array(char *const *argv, struct cli *cli)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	return cli_parse(argc, argv, cli);
}

static void flags_may_stand_before_and_after_the_command(_unused_ void **state)
{
	_cleanup_(cli_release) struct cli cli = { 0 };

	assert_true(parse(&cli, WORD("-c"), WORD("a.yaml"), WORD("--set"), WORD("node=x"), WORD("check"),
			  WORD("--json"), WORD("--set=log.level=debug")));
	assert_ptr_equal(cli.command, &command_check);
	assert_string_equal(cli.config_flag, "a.yaml");
	assert_int_equal(cli.n_sets, 2);
	assert_string_equal(cli.sets[1], "log.level=debug");
	assert_non_null(cli_value(&cli, "json"));
}

static void values_may_be_attached(_unused_ void **state)
{
	_cleanup_(cli_release) struct cli cli = { 0 };

	assert_true(parse(&cli, WORD("init"), WORD("-ca.yaml"), WORD("--existing=public.t"), WORD("--role"),
			  WORD("r")));
	assert_string_equal(cli.config_flag, "a.yaml");
	assert_string_equal(cli_value(&cli, "existing"), "public.t");
	assert_string_equal(cli_value(&cli, "role"), "r");
	assert_null(cli_value(&cli, "print-sql"));
}

static void flags_may_be_repeated(_unused_ void **state)
{
	_cleanup_(cli_release) struct cli cli = { 0 };
	size_t at = 0;

	assert_true(parse(&cli, WORD("replay"), WORD("--entity=a"), WORD("--type"), WORD("t"), WORD("--entity"), WORD("b"),
			  WORD("--all")));
	assert_string_equal(cli_next_value(&cli, "entity", &at), "a");
	assert_string_equal(cli_next_value(&cli, "entity", &at), "b");
	assert_null(cli_next_value(&cli, "entity", &at));
	at = 0;
	assert_null(cli_next_value(&cli, "since", &at));
	assert_string_equal(cli_value(&cli, "entity"), "b");
}

static void help_and_version_need_no_command(_unused_ void **state)
{
	_cleanup_(cli_release) struct cli help = { 0 }, version = { 0 };

	assert_true(parse(&help, WORD("-h")));
	assert_true(help.help);
	assert_true(parse(&version, WORD("--version")));
	assert_true(version.version);
}

static void wrong_command_lines_are_refused(_unused_ void **state)
{
	struct cli cli = { 0 };

	assert_false(parse(&cli, WORD("chek")));
	assert_false(parse(&cli, WORD("check"), WORD("--jsn")));
	assert_false(parse(&cli, WORD("check"), WORD("-x")));
	assert_false(parse(&cli, WORD("check"), WORD("--json=1")));
	assert_false(parse(&cli, WORD("check"), WORD("more")));
	assert_false(parse(&cli, WORD("init"), WORD("--role")));
	assert_false(parse(&cli, WORD("--json"), WORD("check")));
}

static void mistyped_commands_have_a_neighbour(_unused_ void **state)
{
	assert_string_equal(command_nearest("chek"), "check");
	assert_string_equal(command_nearest("int"), "init");
	assert_null(command_nearest("frobnicate"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags_may_stand_before_and_after_the_command),
		cmocka_unit_test(values_may_be_attached),
		cmocka_unit_test(flags_may_be_repeated),
		cmocka_unit_test(help_and_version_need_no_command),
		cmocka_unit_test(wrong_command_lines_are_refused),
		cmocka_unit_test(mistyped_commands_have_a_neighbour),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
