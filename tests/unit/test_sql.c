/* Statements made for a table: names are replaced, and parts about scheduled rows are there only where there are such. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"
#include "read/pass.h"
#include "read/sql.h"
#include "read/take.h"
#include "read/walk.h"

static struct table_column column(const char *name, const char *type)
{
	return (struct table_column){ (char *)name, (char *)name, (char *)type, false };
}

static struct table table_with(const char *scheduled)
{
	return (struct table){
		.name = (char *)"public.outbox",
		.oid = 17,
		.columns = { [FIELD_ID] = column("id", "bigint"), [FIELD_ENTITY] = column("who", "text"),
			     [FIELD_PAYLOAD] = column("payload", "json") },
		.order = column("id", "bigint"),
		.scheduled = scheduled ? column(scheduled, "timestamp with time zone") : (struct table_column){ 0 },
		.partial = { [PARTIAL_ENTITY] = true },
		.select_list = (char *)"o.id, o.who, o.payload",
	};
}

static char *made(const char *sql, const char *scheduled)
{
	const struct table t = table_with(scheduled);
	const struct outbox_config settings = { .shards.count = 4 };

	return sql_for_table(sql, &t, &settings, true, 3);
}

static void assert_made(const char *sql, const char *scheduled, const char *expected)
{
	_cleanup_(mem_freep) char *text = made(sql, scheduled);

	assert_string_equal(text, expected);
}

static void names_are_replaced_and_empty_arrays_are_not(void **state _unused_)
{
	assert_made("SELECT {key} FROM {table} o WHERE {outbox} = 3 AND '{}'", NULL,
		    "SELECT who FROM public.outbox o WHERE 3 = 3 AND '{}'");
}

static void parts_about_schedules_depend_on_the_table(void **state _unused_)
{
	static const char sql[] = "a{if_scheduled} b {scheduled}{else} c{end} d{else} e{end}";

	assert_made(sql, "due_at", "a b due_at d");
	assert_made(sql, NULL, "a c d e");
}

static void a_row_without_a_time_may_go_and_one_whose_time_has_come(void **state _unused_)
{
	assert_made("{at_once}", "due_at", "true AND o.due_at IS NULL");
	/* No index for that: the test must not lead to another one. */
	assert_made("{at_once_in_order}", "due_at", "true AND CASE WHEN o.due_at IS NULL THEN true ELSE false END");
	assert_made("{due}", "due_at", "true AND o.due_at <= pg_catalog.statement_timestamp()");
	assert_made("{ready}", "due_at", "true AND (o.due_at <= pg_catalog.statement_timestamp()) IS NOT FALSE");
	assert_made("{at_once}", NULL, "true");
	assert_made("{ready}", NULL, "true");
}

/* Every statement that says anything about schedules. */
static const struct statement statements[] = {
	{ "", "", WALK_CANDIDATES "locked(e, n) AS (SELECT c.e, c.n FROM candidate c WHERE NOT " WALK_IS_HELD_BACK "), " WALK_TAKEN_BY_WALK("locked") },
	{ "", "", WALK_SQL_READ },
	{ "", "", WALK_SQL_READ_LARGE },
	{ "", "", TAKE_SQL(TAKE_FROM_HAND) },
	{ "", "", TAKE_SQL_LARGE(TAKE_FROM_LOWEST, "$2") },
	{ "", "", PASS_SQL_PAGE("o.{key} IS NOT NULL AND {at_once_in_order}", "true", "o.{order}", "true", "o.{scheduled}", "$5") },
};

static void a_table_without_the_column_pays_nothing(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(statements); i++) {
		_cleanup_(mem_freep) char *with = made(statements[i].sql, "due_at");
		_cleanup_(mem_freep) char *without = made(statements[i].sql, NULL);

		assert_non_null(strstr(with, "due_at IS NULL"));
		assert_non_null(strstr(with, "due_at <= "));
		assert_null(strstr(without, "statement_timestamp"));
		assert_null(strstr(without, "due"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_replaced_and_empty_arrays_are_not),
		cmocka_unit_test(parts_about_schedules_depend_on_the_table),
		cmocka_unit_test(a_row_without_a_time_may_go_and_one_whose_time_has_come),
		cmocka_unit_test(a_table_without_the_column_pays_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
