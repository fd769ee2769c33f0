#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/mem.h"
#include "relay/headers.h"
#include "relay/json_scan.h"

static bool parse(struct slice json, struct arena *arena, struct header_list *l, struct error *err)
{
	size_t room = headers_json_bound(json) + 1;

	*l = (struct header_list){ .items = arena_alloc(arena, sizeof(struct header) * room) };
	return headers_from_json(json, arena, l, err);
}

/* "a=1;b;" : b has no value. */
static void print(struct buf *b, const struct header_list *l)
{
	for (uint32_t i = 0; i < l->count; i++) {
		buf_add_slice(b, l->items[i].name);
		if (l->items[i].value.ptr) {
			buf_add_char(b, '=');
			buf_add_slice(b, l->items[i].value);
		}
		buf_add_char(b, ';');
	}
}

static void members_become_headers_in_their_order(void **state _unused_)
{
	static const struct {
		const char *json;
		const char *headers;
	} cases[] = {
		{ "{}", "" },
		{ " { } ", "" },
		{ "null", "" },
		{ " null\n", "" },
		{ "{\"tenant\": \"acme\"}", "tenant=acme;" },
		{ "{\"b\":\"1\",\"a\":\"2\"}", "b=1;a=2;" },
		{ "{\"a\": 1, \"b\": -0.50, \"c\": 1e+5, \"d\": 0}", "a=1;b=-0.50;c=1e+5;d=0;" },
		{ "{\"n\": 123456789012345678901234567890.10}", "n=123456789012345678901234567890.10;" },
		{ "{\"a\": true, \"b\": false, \"c\": null}", "a=true;b=false;c;" },
		{ "{\"a\": \"\"}", "a=;" },
		{ "{\"\": \"x\"}", "=x;" },
		{ "{\"a\": {\"b\": [1, \"x y\", {\"c\": null}]}, \"d\": [ ]}",
		  "a={\"b\":[1,\"x y\",{\"c\":null}]};d=[];" },
		{ "{\"a\": [\"\\\" , \\\\\", 2]}", "a=[\"\\\" , \\\\\",2];" },
		{ "{\"a\": 1, \"a\": 2}", "a=2;" },
		{ "{\"a\\u0062\": 1, \"ab\": 2}", "ab=2;" },
		{ "{\"a\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "a=\"\\/\b\f\n\r\t;" },
		{ "{\"a\": \"\\u0041\\u00e9\\u20AC\\ud83d\\ude00!\"}", "a=A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80!;" },
		{ "{\"a\": \"x:y:z\", \"b\": \"\xc3\xa9\"}", "a=x:y:z;b=\xc3\xa9;" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(arena_release) struct arena arena = { 0 };
		_cleanup_(buf_release) struct buf b;
		struct header_list l;
		struct error err;

		buf_init(&b, 1000);
		assert_true(parse(slice_of(cases[i].json), &arena, &l, &err));
		print(&b, &l);
		assert_string_equal(buf_str(&b), cases[i].headers);
	}
}

static void what_is_not_an_object_is_refused_with_the_place(void **state _unused_)
{
	static const struct {
		const char *json;
		const char *place;
	} cases[] = {
		{ "", "byte 1: { was expected" },
		{ "[]", "byte 1: { was expected" },
		{ "\"x\"", "byte 1: { was expected" },
		{ "17", "byte 1: { was expected" },
		{ "nul", "byte 1: { was expected" },
		{ "{", "byte 2: a string was expected" },
		{ "{a: 1}", "byte 2: a string was expected" },
		{ "{\"a\"", "byte 5: a colon was expected" },
		{ "{\"a\": ", "byte 7: a digit was expected" },
		{ "{\"a\": 1", "byte 8: a comma was expected" },
		{ "{\"a\": 1,}", "byte 9: a string was expected" },
		{ "{\"a\": 1} x", "byte 10: something follows the object" },
		{ "{\"a\": x}", "byte 7: a digit was expected" },
		{ "{\"a\": tru}", "byte 7: not a JSON value" },
		{ "{\"a\": 01}", "byte 8: a comma was expected" },
		{ "{\"a\": 1.}", "byte 9: a digit was expected" },
		{ "{\"a\": 1e}", "byte 9: a digit was expected" },
		{ "{\"a\": -}", "byte 8: a digit was expected" },
		{ "{\"a\": +1}", "byte 7: a digit was expected" },
		{ "{\"a\": \"x", "byte 9: a string is not closed" },
		{ "{\"a\": \"x\\", "byte 10: an unknown escape" },
		{ "{\"a\": \"\\x\"}", "byte 9: an unknown escape" },
		{ "{\"a\": \"\n\"}", "byte 8: a control character in a string" },
		{ "{\"a\": \"\\u12g4\"}", "byte 10: \\u without four hexadecimal digits" },
		{ "{\"a\": \"\\u00", "byte 10: \\u without four hexadecimal digits" },
		{ "{\"a\": \"\\u0000\"}", "byte 10: the character \\u0000" },
		{ "{\"a\": \"\\ude00\"}", "byte 10: half of a surrogate pair" },
		{ "{\"a\": \"\\ud83dx\"}", "byte 14: half of a surrogate pair" },
		{ "{\"a\": \"\\ud83d\\u0041\"}", "byte 14: half of a surrogate pair" },
		{ "{\"a\": [1 2]}", "byte 10: a comma was expected" },
		{ "{\"a\": {\"b\" 1}}", "byte 12: a colon was expected" },
		{ "{\"a\": [}", "byte 8: a digit was expected" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mem_freep) char *expected =
			mem_printf("not a JSON object that can be used (%s)", cases[i].place);
		_cleanup_(arena_release) struct arena arena = { 0 };
		struct header_list l;
		struct error err;

		assert_false(parse(slice_of(cases[i].json), &arena, &l, &err));
		assert_int_equal(err.kind, ERROR_REJECTED);
		assert_string_equal(err.message, expected);
	}
}

static void a_byte_of_zero_ends_nothing(void **state _unused_)
{
	static const char json[] = "{\"a\": 1}\0";
	_cleanup_(arena_release) struct arena arena = { 0 };
	struct header_list l;
	struct error err;

	assert_false(parse((struct slice){ json, sizeof(json) - 1 }, &arena, &l, &err));
}

static bool parse_repeated(const char *before, const char *item, int n, const char *after, struct header_list *ret)
{
	_cleanup_(arena_release) struct arena arena = { 0 };
	_cleanup_(buf_release) struct buf b;
	struct error err;

	buf_init(&b, 1 << 20);
	buf_add_str(&b, before);
	for (int i = 0; i < n; i++)
		buf_printf(&b, item, i);
	buf_add_str(&b, after);
	return parse((struct slice){ b.data, b.len }, &arena, ret, &err);
}

static void depth_and_number_of_headers_have_a_ceiling(void **state _unused_)
{
	struct header_list l;

	assert_true(parse_repeated("{\"z\":0", ",\"%d\":1", HEADERS_JSON_MAX - 1, "}", &l));
	assert_int_equal(l.count, HEADERS_JSON_MAX);
	assert_false(parse_repeated("{\"z\":0", ",\"%d\":1", HEADERS_JSON_MAX, "}", &l));
	assert_false(parse_repeated("{\"z\":", "[", JSON_SCAN_DEPTH_MAX + 1, "", &l));
	assert_false(parse_repeated("{\"z\":", "[", 100000, "", &l));
}

static void text_without_escapes_is_not_copied(void **state _unused_)
{
	static const char json[] = "{\"a\": \"x\", \"b\": 12.50}";
	_cleanup_(arena_release) struct arena arena = { 0 };
	struct header_list l;
	struct error err;

	assert_true(parse(slice_of(json), &arena, &l, &err));
	assert_ptr_equal(l.items[0].name.ptr, json + 2);
	assert_ptr_equal(l.items[0].value.ptr, json + 7);
	assert_ptr_equal(l.items[1].value.ptr, strstr(json, "12.50"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_become_headers_in_their_order),
		cmocka_unit_test(what_is_not_an_object_is_refused_with_the_place),
		cmocka_unit_test(a_byte_of_zero_ends_nothing),
		cmocka_unit_test(depth_and_number_of_headers_have_a_ceiling),
		cmocka_unit_test(text_without_escapes_is_not_copied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
