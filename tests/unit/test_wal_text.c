#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <endian.h>
#include <string.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/mem.h"
#include "pg/array.h"
#include "read/wal_text.h"
#include "relay/field.h"

#define DOMAIN 16390

enum {
	TYPE_JSON = 114,
	TYPE_CIDR = 650,
	TYPE_INET = 869,
	TYPE_BPCHAR = 1042,
	TYPE_VARCHAR = 1043,
	TYPE_DATE = 1082,
	TYPE_TIMESTAMP = 1114,
	TYPE_NUMERIC = 1700,
};

/* A column with that type, which is read as that field; `behind` is what the table says that it is. */
struct column {
	enum field field;
	uint32_t type;
	const char *behind;
};

static enum wal_conversion conversion_of(const struct column *c)
{
	return wal_text_conversion(c->type, c->behind, c->field);
}

static void assert_slice(struct slice s, const char *expected)
{
	assert_non_null(s.ptr);
	if (!slice_is(s, expected))
		fail_msg("\"%.*s\" instead of \"%s\"", (int)s.len, s.ptr, expected);
}

static void assert_converted(const struct column *c, const char *value, const char *expected)
{
	/* Without a NUL, as values are in the log. */
	size_t len = strlen(value);
	_cleanup_(mem_freep) char *copy = mem_alloc(len);
	char small[WAL_TEXT_SMALL];

	memcpy(copy, value, len);
	assert_slice(wal_text_convert(conversion_of(c), (struct slice){ copy, len }, small), expected);
}

static void assert_decoded(const char *value, struct slice expected)
{
	_cleanup_(buf_release) struct buf bytes;
	struct error err;

	buf_init(&bytes, 1024);
	buf_add_str(&bytes, "of another value");
	if (!wal_text_bytes(slice_of(value), &bytes, &err))
		fail_msg("%s", err.message);
	assert_int_equal(bytes.len, expected.len);
	assert_memory_equal(buf_str(&bytes), expected.ptr, expected.len);
}

static void most_types_are_printed_as_queries_give_them(void **state _unused_)
{
	static const struct {
		uint32_t type;
		const char *value;
	} cases[] = {
		{ TYPE_INT2, "-7" },
		{ TYPE_INT4, "2147483647" },
		{ TYPE_INT8, "-9223372036854775808" },
		{ TYPE_UUID, "7f1c0b9e-5f0e-4a43-a2a3-6a0b51f0c001" },
		{ TYPE_TEXT, "t" },
		{ TYPE_TEXT, "blank at the end " },
		{ TYPE_TEXT, "\\x6869" },
		{ TYPE_TEXT, "" },
		{ TYPE_VARCHAR, "caf\xc3\xa9  " },
		{ TYPE_JSON, "{ \"a\" : [1,2] }" },
		{ TYPE_JSONB, "{\"a\": [1, 2]}" },
		{ TYPE_NUMERIC, "123456789012345678901234567890.10" },
		{ TYPE_DATE, "2026-11-15" },
		{ TYPE_TIMESTAMP, "2026-11-15 09:45:27.5" },
		{ TYPE_CIDR, "10.0.0.0/8" },
		{ DOMAIN, "shipped" },          /* or an enumeration */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (enum field f = FIELD_ENTITY; f <= FIELD_EXTRA; f++)
			assert_converted(&(struct column){ f, cases[i].type, "public.state" }, cases[i].value,
					 cases[i].value);
}

static void types_with_a_cast_of_their_own_look_as_it_makes_them(void **state _unused_)
{
	static const struct {
		uint32_t type;
		const char *value, *expected;
	} cases[] = {
		{ TYPE_BOOL, "t", "true" },
		{ TYPE_BOOL, "f", "false" },
		{ TYPE_BPCHAR, "ab   ", "ab" },
		{ TYPE_BPCHAR, " a b ", " a b" },
		{ TYPE_BPCHAR, "ab", "ab" },
		{ TYPE_BPCHAR, "    ", "" },
		{ TYPE_BPCHAR, "a\t ", "a\t" },
		{ TYPE_INET, "10.0.0.1", "10.0.0.1/32" },
		{ TYPE_INET, "10.0.0.1/8", "10.0.0.1/8" },
		{ TYPE_INET, "::1", "::1/128" },
		{ TYPE_INET, "::1/64", "::1/64" },
		{ TYPE_INET, "::ffff:1.2.3.4", "::ffff:1.2.3.4/128" },
		{ TYPE_INET, "1111:2222:3333:4444:5555:6666:7777:8888", "1111:2222:3333:4444:5555:6666:7777:8888/128" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (enum field f = FIELD_ENTITY; f <= FIELD_EXTRA; f++)
			assert_converted(&(struct column){ f, cases[i].type, "?" }, cases[i].value, cases[i].expected);
}

static void a_domain_is_what_is_behind_it(void **state _unused_)
{
	assert_converted(&(struct column){ FIELD_EXTRA, DOMAIN, "boolean" }, "t", "true");
	assert_converted(&(struct column){ FIELD_EXTRA, DOMAIN, "boolean[]" }, "{t}", "{t}");
	assert_converted(&(struct column){ FIELD_ENTITY, DOMAIN, "character(8)" }, "ab      ", "ab");
	assert_converted(&(struct column){ FIELD_ENTITY, DOMAIN, "bpchar" }, "ab  ", "ab");
	assert_converted(&(struct column){ FIELD_ENTITY, DOMAIN, "character varying(8)" }, "ab  ", "ab  ");
	assert_converted(&(struct column){ FIELD_CREATED_AT, DOMAIN, "timestamp with time zone" },
			 "2026-11-15 09:45:27+00", "2026-11-15T09:45:27Z");
	assert_int_equal(conversion_of(&(struct column){ FIELD_PAYLOAD, DOMAIN, "bytea" }), WAL_BYTES);
	assert_converted(&(struct column){ FIELD_EXTRA, DOMAIN, NULL }, "t", "t");
	/* The type of a column that was altered meanwhile is in the log. */
	assert_converted(&(struct column){ FIELD_EXTRA, TYPE_TEXT, "boolean" }, "t", "t");
}

/* What a reader that polls makes of the same time. */
static void assert_time_as_polled(const char *printed, int64_t microseconds)
{
	PGresult *polled = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc field = { .name = (char *)"", .format = 1, .typid = TYPE_TIMESTAMPTZ, .typlen = 8 };
	uint64_t bytes = htobe64((uint64_t)microseconds);
	_cleanup_(mem_freep) char *expected = NULL;
	struct slice value;
	struct batch *b;

	assert_true(PQsetResultAttrs(polled, 1, &field));
	assert_true(PQsetvalue(polled, 0, 0, (char *)&bytes, sizeof(bytes)));
	b = batch_new(polled, 1);
	value = field_text(b, 0, 0);
	expected = mem_strndup(value.ptr, value.len);
	batch_free(b);
	assert_converted(&(struct column){ FIELD_CREATED_AT, TYPE_TIMESTAMPTZ, "timestamp with time zone" }, printed,
			 expected);
}

static void the_time_of_creation_is_written_as_polling_writes_it(void **state _unused_)
{
	static const struct {
		const char *printed;
		int64_t microseconds;
	} cases[] = {
		{ "2000-01-01 00:00:00+00", 0 },
		{ "1999-12-31 23:59:59.999999+00", -1 },
		{ "2000-01-01 00:00:00.12+00", 120000 },
		{ "2000-02-29 01:00:00.000001+00", INT64_C(5101200000001) },
		{ "9999-12-31 23:59:59.999999+00", INT64_C(252455616000000000) - 1 },
		{ "10000-01-01 00:00:00+00", INT64_C(252455616000000000) },
		{ "10000-02-29 00:00:00+00", INT64_C(252460713600000000) },
		{ "12026-01-01 00:00:00.5+00", INT64_C(316390060800500000) },
		{ "294276-12-31 23:59:59.999999+00", INT64_C(9223371331199999999) },
		{ "0001-01-01 00:00:00+00", INT64_C(-63082281600000000) },
		{ "0001-12-31 23:59:59.999999+00 BC", INT64_C(-63082281600000001) },
		{ "0001-01-01 00:00:00+00 BC", INT64_C(-63113904000000000) },
		{ "0005-02-28 12:00:00.000001+00 BC", INT64_C(-63235079999999999) },
		{ "4714-11-24 00:00:00+00 BC", INT64_C(-211813488000000000) },
		{ "infinity", INT64_MAX },
		{ "-infinity", INT64_MIN },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_time_as_polled(cases[i].printed, cases[i].microseconds);
}

static void other_times_stay_as_the_server_prints_them(void **state _unused_)
{
	static const char *const strange[] = {
		"", "2026", "2026-11-15", "2026-11-15 09:45:27", "2026-11-15 09:45:27+02", "12026-11-15 09:45:27",
		"12026-11-15 09:45:27+", "12026-11-15 09:45:27.+", "12026-11-15 09:45+00", "0044-03-15 11:00:00+00 XX",
		"999999-01-01 00:00:00+00", "999999-01-01 00:00:00+00 BC", "294276-999999-01 00:00:00+00",
		"294276-12-999999 00:00:00+00", "294276-12-31 999999:00:00+00", "294276-12-31 00:00:999999+00",
		"99999999-01-01 00:00:00+00", "12026-11-15 09:45:27.1234567+00",
		"2026-11-15 09:45:27.00000000000000000000000000000000000000000000000000+00",
	};
	const struct column time = { FIELD_CREATED_AT, TYPE_TIMESTAMPTZ, "timestamp with time zone" };

	for (size_t i = 0; i < ARRAY_SIZE(strange); i++)
		assert_converted(&time, strange[i], strange[i]);
	for (enum field f = FIELD_ENTITY; f <= FIELD_EXTRA; f++)
		if (f != FIELD_CREATED_AT)
			assert_converted(&(struct column){ f, TYPE_TIMESTAMPTZ, time.behind }, "2026-11-15 09:45:27+00",
					 "2026-11-15 09:45:27+00");
}

static void bytes_are_decoded_in_the_payload_and_nowhere_else(void **state _unused_)
{
	assert_int_equal(conversion_of(&(struct column){ FIELD_PAYLOAD, TYPE_BYTEA, "bytea" }), WAL_BYTES);
	assert_decoded("\\x00ff7FabCDef0a", (struct slice){ "\x00\xff\x7f\xab\xcd\xef\x0a", 7 });
	assert_decoded("\\x6869", SLICE_LITERAL("hi"));
	assert_decoded("\\x", SLICE_LITERAL(""));
	for (enum field f = FIELD_ENTITY; f <= FIELD_EXTRA; f++)
		if (f != FIELD_PAYLOAD)
			assert_converted(&(struct column){ f, TYPE_BYTEA, "bytea" }, "\\x6869", "\\x6869");
}

static void bytes_that_are_no_bytes_are_refused(void **state _unused_)
{
	static const char *const wrong[] = {
		"", "\\", "hi", "\\x6", "\\x6g", "\\xg6", "\\x68 9", "x6869", "\\X6869", "\\x\\x",
	};
	_cleanup_(buf_release) struct buf bytes;

	buf_init(&bytes, 1024);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct error err = { 0 };

		assert_false(wal_text_bytes(slice_of(wrong[i]), &bytes, &err));
		assert_int_equal(err.kind, ERROR_BUG);
	}
}

static void bytes_above_the_ceiling_are_refused(void **state _unused_)
{
	_cleanup_(buf_release) struct buf bytes;
	struct error err = { 0 };

	buf_init(&bytes, 4);
	assert_false(wal_text_bytes(slice_of("\\x0001020304050607"), &bytes, &err));
	assert_int_equal(err.kind, ERROR_BUG);
	assert_true(wal_text_bytes(slice_of("\\x6869"), &bytes, &err));
	assert_slice((struct slice){ bytes.data, bytes.len }, "hi");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(most_types_are_printed_as_queries_give_them),
		cmocka_unit_test(types_with_a_cast_of_their_own_look_as_it_makes_them),
		cmocka_unit_test(a_domain_is_what_is_behind_it),
		cmocka_unit_test(the_time_of_creation_is_written_as_polling_writes_it),
		cmocka_unit_test(other_times_stay_as_the_server_prints_them),
		cmocka_unit_test(bytes_are_decoded_in_the_payload_and_nowhere_else),
		cmocka_unit_test(bytes_that_are_no_bytes_are_refused),
		cmocka_unit_test(bytes_above_the_ceiling_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
