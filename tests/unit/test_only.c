#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/macros.h"
#include "sink/only.h"

#define TEXT(s) ((char[]){ s })

static struct header headers[] = {
	{ SLICE_LITERAL("tenant"), SLICE_LITERAL("acme") },
	{ SLICE_LITERAL("tenant"), SLICE_LITERAL("globex") },
	{ SLICE_LITERAL("empty"), { NULL, 0 } },
};

static const struct event row = {
	.event_type = SLICE_LITERAL("order.new"),
	.topic = SLICE_LITERAL("shop.orders"),
	.headers = headers,
	.n_headers = ARRAY_SIZE(headers),
};

static bool takes(const char *event_type, const char *topic, const char *header, const char *value)
{
	struct config_pair pair = { .key = (char *)(uintptr_t)header, .value = (char *)(uintptr_t)value };
	struct only_config only = {
		.event_type = (char *)(uintptr_t)event_type,
		.topic = (char *)(uintptr_t)topic,
		.headers = { &pair, header != NULL },
	};

	return only_takes(&only, &row);
}

static void a_branch_without_conditions_takes_all(void **state _unused_)
{
	assert_true(takes("", "", NULL, NULL));
}

static void all_conditions_must_hold(void **state _unused_)
{
	assert_true(takes("order.*", "shop.*", "tenant", "acme"));
	assert_false(takes("invoice.*", "shop.*", "tenant", "acme"));
	assert_false(takes("order.*", "other.*", "tenant", "acme"));
	assert_false(takes("order.*", "shop.*", "tenant", "initech"));
}

static void a_header_that_is_not_there_fits_nothing(void **state _unused_)
{
	assert_false(takes("", "", "region", "*"));
	assert_true(takes("", "", "tenant", "*"));
	assert_true(takes("", "", "empty", "*"));
	assert_false(takes("", "", "empty", "?*"));
}

static void any_of_two_values_will_do(void **state _unused_)
{
	assert_true(takes("", "", "tenant", "globex"));
}

static void a_row_without_a_type_is_no_type_in_particular(void **state _unused_)
{
	struct only_config only = { .event_type = TEXT("order.*"), .topic = TEXT("") };
	struct event nameless = { .topic = SLICE_LITERAL("t") };

	assert_false(only_takes(&only, &nameless));
	only.event_type = TEXT("*");
	assert_true(only_takes(&only, &nameless));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_branch_without_conditions_takes_all),
		cmocka_unit_test(all_conditions_must_hold),
		cmocka_unit_test(a_header_that_is_not_there_fits_nothing),
		cmocka_unit_test(any_of_two_values_will_do),
		cmocka_unit_test(a_row_without_a_type_is_no_type_in_particular),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
