#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/macros.h"
#include "relay/template.h"

/* Values are numbered by the letter that names begin with; names with an x are unknown. */
static bool resolve(void *context _unused_, const char *name, uint32_t *ret, struct error *err)
{
	if (name[0] == 'x')
		return error_set(err, ERROR_CONFIG, "there is no %s", name);
	*ret = (uint32_t)(unsigned char)name[0] % 4;
	return true;
}

static const struct slice values[4] = {
	['a' % 4] = { "Order", 5 },
	['b' % 4] = { "17", 2 },
	['c' % 4] = { "", 0 },
	['d' % 4] = { NULL, 0 },
};

static struct template *compile(const char *text)
{
	struct template *t = NULL;
	struct error err;

	assert_true(template_compile(text, resolve, NULL, &t, &err));
	return t;
}

static void holes_are_filled_and_doubled_braces_are_braces(void **state _unused_)
{
	static const struct {
		const char *text;
		const char *expanded;
	} cases[] = {
		{ "", "" },
		{ "orders", "orders" },
		{ "{a}", "Order" },
		{ "outbox.event.{a}", "outbox.event.Order" },
		{ "{a}{b}", "Order17" },
		{ "{a}-{b}-{a}", "Order-17-Order" },
		{ "{c}", "" },
		{ "{c}{c}", "" },
		{ "<{c}>", "<>" },
		{ "{{", "{" },
		{ "}}", "}" },
		{ "{{a}}", "{a}" },
		{ "{{{a}}}", "{Order}" },
		{ "{{{{{b}", "{{17" },
		{ "a{{b}}c{b}", "a{b}c17" },
		{ "{aggregate_type}", "Order" },
		{ "{a-b$9}", "Order" },
		{ "{a\xc3\xa9}/\xc3\xa9", "Order/\xc3\xa9" },
		{ "{a23456789012345678901234567890123456789012345678901234567890123}", "Order" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(template_freep) struct template *t = compile(cases[i].text);
		_cleanup_(arena_release) struct arena arena = { 0 };
		struct slice s = template_expand(t, values, &arena);

		assert_non_null(s.ptr);
		assert_int_equal(s.len, strlen(cases[i].expanded));
		assert_memory_equal(s.ptr, cases[i].expanded, s.len);
		assert_null(template_missing(t, values));
	}
}

static void a_template_with_a_null_value_is_null_and_says_which(void **state _unused_)
{
	static const char *const cases[] = { "{d}", "{a}.{d}", "x{delta}y", "{d}{d}" };
	static const char *const missing[] = { "d", "d", "delta", "d" };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(template_freep) struct template *t = compile(cases[i]);
		_cleanup_(arena_release) struct arena arena = { 0 };

		assert_null(template_expand(t, values, &arena).ptr);
		assert_string_equal(template_missing(t, values), missing[i]);
	}
}

static void a_lone_hole_and_plain_text_are_not_copied(void **state _unused_)
{
	_cleanup_(template_freep) struct template *hole = compile("{a}");
	_cleanup_(template_freep) struct template *text = compile("orders{{}}");
	_cleanup_(arena_release) struct arena arena = { 0 };

	assert_ptr_equal(template_expand(hole, values, &arena).ptr, values['a' % 4].ptr);
	assert_ptr_equal(template_expand(text, values, &arena).ptr, template_constant(text));
	assert_null(arena.blocks);
}

static void only_a_template_without_holes_is_constant(void **state _unused_)
{
	static const struct {
		const char *text;
		const char *constant;
	} cases[] = {
		{ "", "" }, { "orders", "orders" }, { "{{o}}", "{o}" }, { "{a}", NULL }, { "orders.{a}", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(template_freep) struct template *t = compile(cases[i].text);

		if (cases[i].constant)
			assert_string_equal(template_constant(t), cases[i].constant);
		else
			assert_null(template_constant(t));
	}
}

static void mistakes_are_named_with_their_place(void **state _unused_)
{
	static const struct {
		const char *text;
		const char *message;
	} cases[] = {
		{ "{", "character 1: the brace is never closed" },
		{ "outbox.{a", "character 8: the brace is never closed" },
		{ "{a{b}", "character 1: the brace is never closed" },
		{ "{{{", "character 3: the brace is never closed" },
		{ "}", "character 1: the brace was never opened" },
		{ "{a}.}", "character 5: the brace was never opened" },
		{ "{a}}", "character 4: the brace was never opened" },
		{ "\xc3\xa9\xe2\x82\xac{}", "character 3: there is no name between the braces" },
		{ "{a b}", "character 3: a name consists of letters, digits, _, - and $" },
		{ "{ a}", "character 2: a name consists of letters, digits, _, - and $" },
		{ "{a.b}", "character 3: a name consists of letters, digits, _, - and $" },
		{ "{a\n}", "character 3: a name consists of letters, digits, _, - and $" },
		{ "outbox.{xyz}", "character 9: there is no xyz" },
		{ "{a234567890123456789012345678901234567890123456789012345678901234}",
		  "character 2: the name is longer than the 63 bytes of a column's name" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct template *t = NULL;
		struct error err;

		assert_false(template_compile(cases[i].text, resolve, NULL, &t, &err));
		assert_null(t);
		assert_int_equal(err.kind, ERROR_CONFIG);
		assert_string_equal(err.message, cases[i].message);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(holes_are_filled_and_doubled_braces_are_braces),
		cmocka_unit_test(a_template_with_a_null_value_is_null_and_says_which),
		cmocka_unit_test(a_lone_hole_and_plain_text_are_not_copied),
		cmocka_unit_test(only_a_template_without_holes_is_constant),
		cmocka_unit_test(mistakes_are_named_with_their_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
