#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/macros.h"
#include "verify/report.h"
#include "verify_fixture.h"

static const struct verify_topic topics[] = { { 6, 3, 0 }, { 1, 1, 0 } };

static char *written(struct history *h, void (*write)(const struct verify_report *, struct buf *),
		     struct verify_report r)
{
	struct buf out;

	r.outbox = "orders";
	r.table = "public.archive";
	r.comparison = &h->comparison;
	if (!r.topics)
		r.topics = topics;
	buf_init(&out, 1 << 20);
	write(&r, &out);
	assert_false(out.overflow);
	return buf_take(&out);
}

static void the_text_of_a_clean_comparison(void **state _unused_)
{
	struct history h;
	char *text;

	history_init(&h, "a1 a2 b1?", "a1 a2 a2", 5);
	text = written(&h, report_write_text, (struct verify_report){ 0 });
	assert_string_equal(text,
		"outbox orders against public.archive: 3 rows, of which 1 not published yet\n"
		"topic orders: 3 records in 6 partitions\n"
		"\n"
		"  lost                     0  ok       rows without a record\n"
		"  unknown                  0  ok       records whose id no row has\n"
		"  out_of_order             0  ok       rows first seen behind a later row of their entity\n"
		"  scattered                0  ok       entities in more than one partition of a topic\n"
		"  misplaced                0  ok       records in another topic than their row's\n"
		"  unroutable               0  ok       rows that cannot be messages, and were not looked for\n"
		"  duplicates               1  allowed  records that repeat an earlier one\n"
		"\n"
		"duplicates:\n"
		"  id \"a2\", entity \"a\", at orders partition 0 offset 2\n"
		"\n"
		"clean\n");
	free(text);
	history_release(&h);
}

static void the_text_names_what_is_wrong(void **state _unused_)
{
	static const char *const expected[] = {
		"  lost                     2  FAIL ", "  unknown                  2  FAIL ", "\nNOT clean\n",
		"\nlost, the first 1 of 2:\n  id \"a3\", entity \"a\", expected in orders\n",
		"\nunknown, the first 1 of 2:\n  id \"x\\u001b\", at orders partition 2 offset 2\n",
		"\nout_of_order:\n  id \"a1\", entity \"a\", at orders partition 0 offset 1, behind \"a2\"\n",
		"\nunroutable:\n  id \"z\"\n",
	};
	struct history h;
	char *text;

	history_init(&h, "a1 a2 a3 b1 !z", "a2 a1 x\x1b@2 -", 1);
	text = written(&h, report_write_text, (struct verify_report){ 0 });
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
		if (!strstr(text, expected[i]))
			fail_msg("%s is not in %s", expected[i], text);
	free(text);
	history_release(&h);
}

static void notes_say_what_the_result_does_not(void **state _unused_)
{
	static const struct verify_topic shortened[] = { { 2, 0, 17 } };
	struct history h;
	char *text;

	history_init(&h, "a1? a1", "", 1);
	text = written(&h, report_write_text, (struct verify_report){ .outbox_itself = true, .topics = shortened });
	assert_non_null(strstr(text, "note: this table is the outbox itself"));
	assert_non_null(strstr(text, "first 17 records"));
	assert_non_null(strstr(text, "note: 1 rows have the id"));
	assert_null(strstr(text, "no row to look for"));
	free(text);
	history_release(&h);
	history_init(&h, "", "", 1);
	text = written(&h, report_write_text, (struct verify_report){ 0 });
	assert_non_null(strstr(text, "note: there was no row to look for"));
	free(text);
	history_release(&h);
}

static void a_topic_that_does_not_exist_has_any_name(void **state _unused_)
{
	static const struct verify_topic missing[] = { { 6, 1, 0 }, { 0, 0, 0 } };
	struct history h;
	char *text;

	history_init(&h, "a1 a2/no\ttopic", "a1", 1);
	text = written(&h, report_write_text, (struct verify_report){ .topics = missing });
	assert_non_null(strstr(text, "topic orders: 1 record in 6 partitions\n"
				     "topic \"no\\u0009topic\": does not exist\n"));
	assert_non_null(strstr(text, "expected in \"no\\u0009topic\"\n"));
	free(text);
	history_release(&h);
}

static json_t *parsed(struct history *h, struct verify_rules rules)
{
	char *text = written(h, report_write_json, (struct verify_report){ .rules = rules });
	json_error_t error;
	json_t *json = json_loads(text, 0, &error);

	if (!json)
		fail_msg("%s: %s", error.text, text);
	free(text);
	return json;
}

static void the_json_has_the_same(void **state _unused_)
{
	struct history h;
	json_t *json, *first;

	history_init(&h, "a1 a2 b1 c1/audit d1?", "a2@3 a1@3 x\"\xff@1 - c1/audit", 5);
	json = parsed(&h, (struct verify_rules){ 0 });
	assert_true(json_is_false(json_object_get(json, "clean")));
	assert_int_equal(json_integer_value(json_object_get(json, "rows")), 5);
	assert_int_equal(json_integer_value(json_object_get(json, "pending")), 1);
	assert_int_equal(json_array_size(json_object_get(json, "topics")), 2);
	for (enum verify_kind k = 0; k < VERIFY_KINDS; k++) {
		json_t *kind = json_object_get(json, verify_kind_name(k));
		uint64_t count = h.comparison.found[k].count;

		assert_int_equal(json_integer_value(json_object_get(kind, "count")), count);
		assert_int_equal(json_is_true(json_object_get(kind, "violation")), count > 0 && k != VERIFY_DUPLICATE);
		assert_int_equal(json_array_size(json_object_get(kind, "first")), count);
	}
	first = json_array_get(json_object_get(json_object_get(json, "out_of_order"), "first"), 0);
	assert_string_equal(json_string_value(json_object_get(first, "id")), "a1");
	assert_string_equal(json_string_value(json_object_get(first, "behind")), "a2");
	assert_string_equal(json_string_value(json_object_get(first, "topic")), "orders");
	assert_int_equal(json_integer_value(json_object_get(first, "partition")), 3);
	assert_int_equal(json_integer_value(json_object_get(first, "offset")), 1);
	first = json_array_get(json_object_get(json_object_get(json, "unknown"), "first"), 0);
	assert_string_equal(json_string_value(json_object_get(first, "id")), "x\"\xef\xbf\xbd");
	first = json_array_get(json_object_get(json_object_get(json, "unknown"), "first"), 1);
	assert_true(json_is_null(json_object_get(first, "id")));
	json_decref(json);
	history_release(&h);
}

static void what_is_not_judged_is_no_violation(void **state _unused_)
{
	struct history h;
	json_t *json;

	history_init(&h, "a1 a2", "a2 a1 x", 5);
	json = parsed(&h, (struct verify_rules){ .unordered = true, .partial = true });
	assert_true(json_is_true(json_object_get(json, "clean")));
	assert_true(json_is_false(json_object_get(json_object_get(json, "unknown"), "violation")));
	assert_true(json_is_false(json_object_get(json_object_get(json, "out_of_order"), "violation")));
	assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "unknown"), "count")), 1);
	json_decref(json);
	history_release(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_text_of_a_clean_comparison),
		cmocka_unit_test(the_text_names_what_is_wrong),
		cmocka_unit_test(notes_say_what_the_result_does_not),
		cmocka_unit_test(a_topic_that_does_not_exist_has_any_name),
		cmocka_unit_test(the_json_has_the_same),
		cmocka_unit_test(what_is_not_judged_is_no_violation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
