#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "base/mem.h"
#include "cli/propose.h"

#define proposed(...)                                                                       \
	proposed_array((const char *const[]){ "postrider", __VA_ARGS__ },                   \
		       ARRAY_SIZE(((const char *const[]){ "postrider", __VA_ARGS__ })))

static char *proposed_array(const char *const *words, size_t n)
{
	char *found = NULL;
	size_t len;
	FILE *out = open_memstream(&found, &len);

	propose(out, (int)n, words);
	fclose(out);
	return found;
}

#define check(expected, ...)                                          \
	do {                                                          \
		_cleanup_(mem_freep) char *found = proposed(__VA_ARGS__); \
		assert_string_equal(found, expected);                 \
	} while (0)

static void only_what_begins_as_typed_is_proposed(_unused_ void **state)
{
	check("status\tshow nodes, workers and what waits\n", "sta");
	check("", "statuses");
	check("list\n", "dead", "l");
}

static void values_follow_their_flags(_unused_ void **state)
{
	check("archive\ntable\n", "replay", "--from", "");
	check("--from=table\n", "replay", "--from=t");
	check("", "replay", "--since", "");
	check("rejected\n", "dead", "list", "--kind", "rej");
	check(":files\n", "-c", "");
	check(":files\n", "run", "--config=/etc/po");
}

static void a_flag_that_has_its_value_leaves_the_place_to_operands(_unused_ void **state)
{
	check("show\n", "entity", "--reason", "x", "sh");
	check("show\n", "entity", "--reason=x", "sh");
	check("", "entity", "--reason", "sh");
}

static void operands_end(_unused_ void **state)
{
	check("", "dead", "list", "");
	check("", "help", "run", "");
	check("", "status", "");
}

static void flags_end_behind_two_dashes(_unused_ void **state)
{
	check("--json\tone JSON object instead of text\n", "check", "--js");
	check("", "check", "--", "--js");
}

static void settings_come_a_step_at_a_time(_unused_ void **state)
{
	check("log.\n", "--set", "lo");
	check("log.level=\terror, warn, info or debug; default info\n", "--set", "log.l");
	check("log.level=debug\n", "--set", "log.level=d");
	check("--set=log.format=json\n", "--set=log.format=j");
	check("outboxes.\n", "--set", "outb");
	check("outboxes.outbox.route.\n", "--set", "outboxes.outbox.rou");
	check("outboxes.outbox.sinks.\n", "--set", "outboxes.outbox.sinks.0.type=stdout", "--set", "outboxes.outbox.si");
	check("outboxes.outbox.sinks.0.path=\ttext; default -, standard output\n", "--set",
	      "outboxes.outbox.sinks.0.type=stdout", "--set", "outboxes.outbox.sinks.0.pa");
}

static void nonsense_is_answered_with_nothing(_unused_ void **state)
{
	check("", "nonsense", "");
	check("", "run", "--nonsense", "");
	check("", "run", "--nonsense=");
	check("", "run", "-=");
	check("", "--set", "nonsense=");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_what_begins_as_typed_is_proposed),
		cmocka_unit_test(values_follow_their_flags),
		cmocka_unit_test(a_flag_that_has_its_value_leaves_the_place_to_operands),
		cmocka_unit_test(operands_end),
		cmocka_unit_test(flags_end_behind_two_dashes),
		cmocka_unit_test(settings_come_a_step_at_a_time),
		cmocka_unit_test(nonsense_is_answered_with_nothing),
	};

	unsetenv("POSTRIDER_CONFIG");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
