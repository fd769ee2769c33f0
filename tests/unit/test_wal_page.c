#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "base/mem.h"
#include "pg/array.h"
#include "pg/exec.h"
#include "read/wal_page.h"
#include "relay/field.h"

#define RELATION 4711
#define TYPE_NUMERIC 1700

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

/* ---- A table, its relation, and rows of it ----------------------------------------------------------------------- */

static struct table_column usual_extra[] = {
	{ .name = (char *)(uintptr_t)"price", .type = (char *)(uintptr_t)"numeric(10,2)" },
	{ .name = (char *)(uintptr_t)"rush", .type = (char *)(uintptr_t)"boolean" },
};

static struct table usual_table(void)
{
	return (struct table){
		.name = text("public.outbox"),
		.columns = {
			[FIELD_ID] = { .name = text("id"), .type = text("bigint") },
			[FIELD_ENTITY] = { .name = text("entity_id"), .type = text("text") },
			[FIELD_PAYLOAD] = { .name = text("payload"), .type = text("jsonb") },
			[FIELD_HEADERS] = { .name = text("headers"), .type = text("jsonb") },
			[FIELD_TOPIC] = { .name = text("topic"), .type = text("text") },
			[FIELD_CREATED_AT] = { .name = text("created_at"), .type = text("timestamp with time zone") },
		},
		.extra = usual_extra,
		.n_extra = ARRAY_SIZE(usual_extra),
	};
}

static const struct pgoutput_column usual_columns[] = {
	{ SLICE_LITERAL("id"), TYPE_INT8 },
	{ SLICE_LITERAL("entity_id"), TYPE_TEXT },
	{ SLICE_LITERAL("topic"), TYPE_TEXT },
	{ SLICE_LITERAL("payload"), TYPE_JSONB },
	{ SLICE_LITERAL("price"), TYPE_NUMERIC },
	{ SLICE_LITERAL("rush"), TYPE_BOOL },
	{ SLICE_LITERAL("headers"), TYPE_JSONB },
	{ SLICE_LITERAL("created_at"), TYPE_TIMESTAMPTZ },
};

/* Large ones, of which a test needs one at a time. */
static struct pgoutput_relation relation;
static struct pgoutput_insert insert;

static void relate(const struct pgoutput_column *columns, uint32_t n)
{
	relation = (struct pgoutput_relation){ .oid = RELATION, .n_columns = n };
	memcpy(relation.columns, columns, n * sizeof(*columns));
}

static void make(struct wal_mapping *m, const struct table *t)
{
	struct error err;

	if (!wal_mapping_make(m, t, &relation, &err))
		fail_msg("%s", err.message);
}

/* A row of so many values; NULL is NULL. */
static void fill(const char *const *values, uint32_t n)
{
	insert.relation = RELATION;
	insert.n_values = n;
	for (uint32_t i = 0; i < n; i++)
		insert.values[i] = slice_of(values[i]);
}

static void add(struct wal_page *p, const struct wal_mapping *m, int32_t part)
{
	struct error err;

	if (!wal_page_add(p, m, &insert, part, &err))
		fail_msg("%s", err.message);
}

static void assert_slice(struct slice s, const char *expected)
{
	if (!expected) {
		assert_null(s.ptr);
		return;
	}
	assert_non_null(s.ptr);
	if (!slice_is(s, expected))
		fail_msg("\"%.*s\" instead of \"%s\"", (int)s.len, s.ptr, expected);
}

static void assert_field(const PGresult *rows, int row, int field, const char *expected)
{
	assert_slice(field_raw(rows, row, field), expected);
}

/* ---- Rows -------------------------------------------------------------------------------------------------------- */

static void fields_are_in_their_places_whatever_the_order_of_columns(void **state _unused_)
{
	struct table t = usual_table();
	_cleanup_(wal_mapping_release) struct wal_mapping m = { 0 };
	_cleanup_(wal_page_release) struct wal_page p;
	_cleanup_(pg_result_clearp) PGresult *rows = NULL;

	relate(usual_columns, ARRAY_SIZE(usual_columns));
	make(&m, &t);
	wal_page_init(&p, &t);
	fill((const char *const[]){ "17", "cust-42", "orders", "{\"a\": 1}", "9.90", "t", "{}",
				    "2026-11-15 09:45:27+00" }, 8);
	add(&p, &m, 7);
	fill((const char *const[]){ "18", "", NULL, NULL, NULL, NULL, NULL, NULL }, 8);
	add(&p, &m, -1);
	assert_int_equal(p.n_rows, 2);
	rows = wal_page_take(&p);

	assert_int_equal(PQresultStatus(rows), PGRES_TUPLES_OK);
	assert_int_equal(PQntuples(rows), 2);
	assert_int_equal(PQnfields(rows), FIELD_EXTRA + 2 + 2);
	assert_field(rows, 0, FIELD_ID, "17");
	assert_field(rows, 0, FIELD_ENTITY, "cust-42");
	assert_field(rows, 0, FIELD_PAYLOAD, "{\"a\": 1}");
	assert_field(rows, 0, FIELD_MESSAGE_ID, NULL);
	assert_field(rows, 0, FIELD_ENTITY_TYPE, NULL);
	assert_field(rows, 0, FIELD_EVENT_TYPE, NULL);
	assert_field(rows, 0, FIELD_HEADERS, "{}");
	assert_field(rows, 0, FIELD_TOPIC, "orders");
	assert_field(rows, 0, FIELD_CREATED_AT, "2026-11-15T09:45:27Z");
	assert_field(rows, 0, FIELD_TRACEPARENT, NULL);
	assert_field(rows, 0, FIELD_EXTRA, "9.90");
	assert_field(rows, 0, FIELD_EXTRA + 1, "true");
	assert_int_equal(field_int4(rows, 0, FIELD_EXTRA + 2), 7);
	assert_field(rows, 0, FIELD_EXTRA + 3, "");
	assert_field(rows, 1, FIELD_ID, "18");
	assert_field(rows, 1, FIELD_ENTITY, "");
	for (int i = FIELD_PAYLOAD; i < FIELD_EXTRA + 2; i++)
		assert_field(rows, 1, i, NULL);
	assert_int_equal(field_int4(rows, 1, FIELD_EXTRA + 2), -1);
	assert_field(rows, 1, FIELD_EXTRA + 3, "");
}

static void a_row_of_nothing_but_nulls_is_a_row(void **state _unused_)
{
	struct table t = usual_table();
	_cleanup_(wal_mapping_release) struct wal_mapping m = { 0 };
	_cleanup_(wal_page_release) struct wal_page p;
	_cleanup_(pg_result_clearp) PGresult *rows = NULL;

	relate(usual_columns, ARRAY_SIZE(usual_columns));
	make(&m, &t);
	wal_page_init(&p, &t);
	fill((const char *const[]){ NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }, 8);
	add(&p, &m, 3);
	rows = wal_page_take(&p);
	for (int i = 0; i < FIELD_EXTRA + 2; i++)
		assert_field(rows, 0, i, NULL);
	assert_int_equal(field_int4(rows, 0, FIELD_EXTRA + 2), 3);
}

static void a_page_counts_rows_and_bytes_and_begins_anew_when_it_was_taken(void **state _unused_)
{
	struct table t = usual_table();
	_cleanup_(wal_mapping_release) struct wal_mapping m = { 0 };
	_cleanup_(wal_page_release) struct wal_page p;
	_cleanup_(pg_result_clearp) PGresult *first = NULL, *second = NULL;

	relate(usual_columns, ARRAY_SIZE(usual_columns));
	make(&m, &t);
	wal_page_init(&p, &t);
	assert_null(wal_page_take(&p));
	for (int i = 0; i < 1000; i++) {
		fill((const char *const[]){ "1", "ab", NULL, "{}", NULL, "f", NULL, NULL }, 8);
		assert_int_equal(p.n_rows, i);
		add(&p, &m, i);
	}
	/* "1", "ab", "{}", "false", and the part. */
	assert_int_equal(p.bytes, 1000 * (1 + 2 + 2 + 5 + 4));
	first = wal_page_take(&p);
	assert_int_equal(p.n_rows, 0);
	assert_int_equal(p.bytes, 0);
	assert_null(p.rows);

	fill((const char *const[]){ "2", "b", NULL, "{}", NULL, NULL, NULL, NULL }, 8);
	add(&p, &m, 5);
	assert_int_equal(p.n_rows, 1);
	assert_int_equal(p.bytes, 1 + 1 + 2 + 4);
	second = wal_page_take(&p);
	assert_int_equal(PQntuples(first), 1000);
	assert_field(first, 999, FIELD_EXTRA + 1, "false");
	assert_int_equal(field_int4(first, 999, FIELD_EXTRA + 2), 999);
	assert_int_equal(PQntuples(second), 1);
	assert_field(second, 0, FIELD_ID, "2");
}

static void a_page_that_nobody_takes_is_freed_with_its_owner(void **state _unused_)
{
	struct table t = usual_table();
	_cleanup_(wal_mapping_release) struct wal_mapping m = { 0 };
	_cleanup_(wal_page_release) struct wal_page p;

	relate(usual_columns, ARRAY_SIZE(usual_columns));
	make(&m, &t);
	wal_page_init(&p, &t);
	fill((const char *const[]){ "2", "b", NULL, "{}", NULL, NULL, NULL, NULL }, 8);
	add(&p, &m, 5);
}

/* ---- Payloads of bytes ------------------------------------------------------------------------------------------- */

/* Columns "payload" and "id". */
static struct table table_of_bytes(void)
{
	relate((const struct pgoutput_column[]){ { SLICE_LITERAL("payload"), TYPE_BYTEA },
						 { SLICE_LITERAL("id"), TYPE_INT8 } }, 2);
	return (struct table){
		.name = text("public.outbox"),
		.columns = {
			[FIELD_ID] = { .name = text("id"), .type = text("bigint") },
			[FIELD_PAYLOAD] = { .name = text("payload"), .type = text("bytea") },
		},
	};
}

static void a_payload_of_bytes_has_their_type(void **state _unused_)
{
	struct table t = table_of_bytes();
	_cleanup_(wal_mapping_release) struct wal_mapping m = { 0 };
	_cleanup_(wal_page_release) struct wal_page p;
	_cleanup_(pg_result_clearp) PGresult *rows = NULL;

	make(&m, &t);
	wal_page_init(&p, &t);
	fill((const char *const[]){ "\\x6869", "1" }, 2);
	add(&p, &m, 0);
	fill((const char *const[]){ "\\x", "2" }, 2);
	add(&p, &m, 0);
	fill((const char *const[]){ NULL, "3" }, 2);
	add(&p, &m, 0);
	rows = wal_page_take(&p);
	assert_int_equal(PQftype(rows, FIELD_PAYLOAD), TYPE_BYTEA);
	assert_int_equal(PQftype(rows, FIELD_ID), TYPE_TEXT);
	assert_field(rows, 0, FIELD_PAYLOAD, "hi");
	assert_field(rows, 1, FIELD_PAYLOAD, "");
	assert_field(rows, 2, FIELD_PAYLOAD, NULL);
}

static void bytes_that_are_no_bytes_add_nothing(void **state _unused_)
{
	struct table t = table_of_bytes();
	_cleanup_(wal_mapping_release) struct wal_mapping m = { 0 };
	_cleanup_(wal_page_release) struct wal_page p;
	_cleanup_(pg_result_clearp) PGresult *rows = NULL;
	struct error err = { 0 };

	make(&m, &t);
	wal_page_init(&p, &t);
	fill((const char *const[]){ "\\x6g", "1" }, 2);
	assert_false(wal_page_add(&p, &m, &insert, 0, &err));
	assert_int_equal(err.kind, ERROR_BUG);
	assert_int_equal(p.n_rows, 0);
	assert_null(p.rows);
	fill((const char *const[]){ "\\x6869", "1" }, 2);
	add(&p, &m, 0);
	rows = wal_page_take(&p);
	assert_int_equal(PQntuples(rows), 1);
	assert_field(rows, 0, FIELD_PAYLOAD, "hi");
}

static void a_large_payload_arrives_whole_and_leaves_no_memory_behind(void **state _unused_)
{
	enum { SIZE = 5 * 1024 * 1024 };
	struct table t = table_of_bytes();
	_cleanup_(wal_mapping_release) struct wal_mapping m = { 0 };
	_cleanup_(wal_page_release) struct wal_page p;
	_cleanup_(mem_freep) char *hex = mem_alloc(2 + 2 * SIZE);
	_cleanup_(pg_result_clearp) PGresult *rows = NULL;
	struct slice value;

	make(&m, &t);
	wal_page_init(&p, &t);
	memcpy(hex, "\\x", 2);
	for (size_t i = 0; i < SIZE; i++)
		memcpy(hex + 2 + 2 * i, &"000102030405060708090a0b0c0d0e0f"[i % 16 * 2], 2);
	fill((const char *const[]){ NULL, "1" }, 2);
	insert.values[0] = (struct slice){ hex, 2 + 2 * SIZE };
	add(&p, &m, 0);
	assert_int_equal(p.bytes, SIZE + 1 + 4);
	rows = wal_page_take(&p);
	assert_null(p.scratch.data);
	value = field_raw(rows, 0, FIELD_PAYLOAD);
	assert_int_equal(value.len, SIZE);
	for (size_t i = 0; i < SIZE; i++)
		if (value.ptr[i] != (char)(i % 16))
			fail_msg("byte %zu is wrong", i);
}

/* ---- Relations change -------------------------------------------------------------------------------------------- */

static void columns_may_be_added_and_dropped_between_two_rows(void **state _unused_)
{
	static const struct pgoutput_column changed[] = {
		{ SLICE_LITERAL("id"), TYPE_INT8 },
		{ SLICE_LITERAL("entity_id"), TYPE_TEXT },
		{ SLICE_LITERAL("payload"), TYPE_JSONB },
		{ SLICE_LITERAL("price"), TYPE_NUMERIC },
		{ SLICE_LITERAL("headers"), TYPE_JSONB },
		{ SLICE_LITERAL("created_at"), TYPE_TIMESTAMPTZ },
		{ SLICE_LITERAL("note"), TYPE_TEXT },
		{ SLICE_LITERAL("topic"), TYPE_BOOL },
		{ SLICE_LITERAL("rush"), TYPE_TEXT },
	};
	struct table t = usual_table();
	_cleanup_(wal_mapping_release) struct wal_mapping before = { 0 }, after = { 0 };
	_cleanup_(wal_page_release) struct wal_page p;
	_cleanup_(pg_result_clearp) PGresult *rows = NULL;
	struct error err;

	relate(usual_columns, ARRAY_SIZE(usual_columns));
	make(&before, &t);
	assert_int_equal(before.types[FIELD_TOPIC], TYPE_TEXT);
	relate(changed, ARRAY_SIZE(changed));
	make(&after, &t);
	assert_int_equal(after.types[FIELD_TOPIC], TYPE_BOOL);

	wal_page_init(&p, &t);
	fill((const char *const[]){ "1", "a", "t", "{}", "1", "t", NULL, NULL }, 8);
	add(&p, &before, 0);
	assert_false(wal_page_add(&p, &after, &insert, 0, &err));
	assert_int_equal(err.kind, ERROR_BUG);
	fill((const char *const[]){ "2", "b", "{}", "2", NULL, NULL, "new", "t", "t" }, 9);
	add(&p, &after, 0);
	assert_false(wal_page_add(&p, &before, &insert, 0, &err));
	insert.relation++;
	assert_false(wal_page_add(&p, &after, &insert, 0, &err));
	assert_int_equal(err.kind, ERROR_BUG);

	rows = wal_page_take(&p);
	assert_int_equal(PQntuples(rows), 2);
	assert_field(rows, 0, FIELD_TOPIC, "t");
	assert_field(rows, 0, FIELD_EXTRA, "1");
	assert_field(rows, 0, FIELD_EXTRA + 1, "true");
	assert_field(rows, 1, FIELD_ID, "2");
	assert_field(rows, 1, FIELD_TOPIC, "true");
	assert_field(rows, 1, FIELD_EXTRA, "2");
	assert_field(rows, 1, FIELD_EXTRA + 1, "t");
}

static void a_column_that_is_gone_is_named(void **state _unused_)
{
	struct table t = usual_table();
	struct wal_mapping m = { .n_columns = 99 };
	struct error err = { 0 };

	for (uint32_t gone = 0; gone < ARRAY_SIZE(usual_columns); gone++) {
		relate(usual_columns, ARRAY_SIZE(usual_columns));
		relation.columns[gone].name = SLICE_LITERAL("renamed");
		assert_false(wal_mapping_make(&m, &t, &relation, &err));
		assert_int_equal(err.kind, ERROR_CONFIG);
		assert_non_null(strstr(err.message, usual_columns[gone].name.ptr));
		assert_non_null(strstr(err.message, "public.outbox"));
		assert_true(err.hint[0] != '\0');
	}
	assert_int_equal(m.n_columns, 99);
	/* Names are compared whole. */
	relate(usual_columns, ARRAY_SIZE(usual_columns));
	relation.columns[0].name = SLICE_LITERAL("i");
	assert_false(wal_mapping_make(&m, &t, &relation, &err));
	relation.columns[0].name = SLICE_LITERAL("ids");
	assert_false(wal_mapping_make(&m, &t, &relation, &err));
}

/* ---- Logical messages -------------------------------------------------------------------------------------------- */

static void rows_and_messages_share_a_page(void **state _unused_)
{
	struct table t = usual_table();
	_cleanup_(wal_mapping_release) struct wal_mapping m = { 0 };
	_cleanup_(wal_page_release) struct wal_page p;
	_cleanup_(pg_result_clearp) PGresult *rows = NULL;
	bool foreign = true;
	struct error err;

	relate(usual_columns, ARRAY_SIZE(usual_columns));
	make(&m, &t);
	wal_page_init(&p, &t);
	fill((const char *const[]){ "1", "a", NULL, "{}", NULL, NULL, NULL, NULL }, 8);
	add(&p, &m, 1);
	assert_false(wal_page_add_message(&p, SLICE_LITERAL("{"), "orders", 1, 2, &foreign, &err));
	assert_int_equal(err.kind, ERROR_REJECTED);
	assert_true(wal_page_add_message(&p, slice_of("{\"entity_id\":\"b\",\"payload\":1}"), "orders", 1, 2,
					 &foreign, &err));
	assert_false(foreign);
	assert_true(wal_page_add_message(&p, slice_of("{\"outbox\":\"invoices\"}"), "orders", 1, 2, &foreign, &err));
	assert_true(foreign);
	add(&p, &m, 3);
	assert_int_equal(p.n_rows, 3);
	assert_int_equal(p.bytes, 2 * (1 + 1 + 2 + 4) + 3 + 1 + 1 + 4);
	rows = wal_page_take(&p);
	assert_field(rows, 0, FIELD_ENTITY, "a");
	assert_field(rows, 1, FIELD_ENTITY, "b");
	assert_field(rows, 1, FIELD_ID, "0/1");
	assert_field(rows, 2, FIELD_ENTITY, "a");
	assert_int_equal(field_int4(rows, 1, FIELD_EXTRA + 2), 2);
	assert_field(rows, 1, FIELD_EXTRA + 3, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_in_their_places_whatever_the_order_of_columns),
		cmocka_unit_test(a_row_of_nothing_but_nulls_is_a_row),
		cmocka_unit_test(a_page_counts_rows_and_bytes_and_begins_anew_when_it_was_taken),
		cmocka_unit_test(a_page_that_nobody_takes_is_freed_with_its_owner),
		cmocka_unit_test(a_payload_of_bytes_has_their_type),
		cmocka_unit_test(bytes_that_are_no_bytes_add_nothing),
		cmocka_unit_test(a_large_payload_arrives_whole_and_leaves_no_memory_behind),
		cmocka_unit_test(columns_may_be_added_and_dropped_between_two_rows),
		cmocka_unit_test(a_column_that_is_gone_is_named),
		cmocka_unit_test(rows_and_messages_share_a_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
