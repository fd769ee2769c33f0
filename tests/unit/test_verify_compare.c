#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/backoff.h"
#include "base/buf.h"
#include "base/macros.h"
#include "verify_fixture.h"

static const struct verify_rules strict = { 0 };

static void add_case(const struct history *h, const struct verify_case *c, struct buf *out)
{
	struct slice id = c->row == WORDS_NONE ? (struct slice){ c->id, c->id_len } : words_get(&h->ledger.ids, c->row);

	buf_printf(out, " %.*s", (int)id.len, id.ptr ? id.ptr : "");
	if (!id.ptr)
		buf_add_char(out, '-');
	if (c->behind != WORDS_NONE) {
		buf_add_char(out, '<');
		buf_add_slice(out, words_get(&h->ledger.ids, c->behind));
	}
}

/* All that was found, as "lost a1 a2; out_of_order a3<a4". */
static const char *found(struct history *h)
{
	struct buf out;

	buf_init(&out, sizeof(h->line) - 1);
	for (enum verify_kind k = 0; k < VERIFY_KINDS; k++) {
		const struct verify_found *f = &h->comparison.found[k];

		if (f->count == 0)
			continue;
		buf_printf(&out, "%s%s", out.len ? "; " : "", verify_kind_name(k));
		for (uint32_t i = 0; i < f->n_cases; i++)
			add_case(h, &f->cases[i], &out);
	}
	strcpy(h->line, buf_str(&out));
	buf_release(&out);
	return h->line;
}

static void each_kind_of_violation_is_found(void **state _unused_)
{
	static const struct {
		const char *rows, *records, *expected;
		bool clean;
	} cases[] = {
		/* nothing wrong */
		{ "", "", "", true },
		{ "a1 a2 b1", "a1 a2 b1", "", true },
		{ "a1 b1 a2 b2", "b1 a1 b2 a2", "", true },
		{ "a1 a2 b1", "b1@1 a1@0 a2@0", "", true },

		/* lost, and not published yet */
		{ "a1 a2 a3", "a1 a3", "lost a2", false },
		{ "a1 a2", "", "lost a1 a2", false },
		{ "a1 a2? a3?", "a1 a2", "", true },
		{ "a1? a2", "", "lost a2", false },
		{ "-1 -2", "-1", "lost -2", false },

		/* in the topic and not in the table */
		{ "a1", "a1 x", "unknown x", false },
		{ "", "-", "unknown -", false },
		{ "a1", "A1", "lost a1; unknown A1", false },

		/* order by first occurrences */
		{ "a1 a2", "a2 a1", "out_of_order a1<a2", false },
		{ "a1 a2 a3", "a3 a1 a2", "out_of_order a1<a3 a2<a3", false },
		{ "a1 a2 a3 a4", "a1 a3 a2 a4", "out_of_order a2<a3", false },
		{ "a1 a2 b1 b2", "b2 a1 b1 a2", "out_of_order b1<b2", false },
		{ "a1 a2", "a1 a2 a1", "duplicates a1", true },
		{ "a1 a2 a3", "a1 a2 a1 a2 a3", "duplicates a1 a2", true },
		{ "a1 a2", "a2 a2 a1", "out_of_order a1<a2; duplicates a2", false },
		/* what no order tells apart has none, nor has a row without an entity */
		{ "a1=p a1=q a2=r", "q p r", "", true },
		{ "a1=p a2=q a2=r", "r p q", "out_of_order p<r", false },
		{ "-1 -2", "-2 -1", "", true },
		/* a gap is a loss and nothing else */
		{ "a1 a2 a3", "a3", "lost a1 a2", false },
		/* a row that is not settled yet has its place all the same */
		{ "a1 a2?", "a2 a1", "out_of_order a1<a2", false },

		/* partitions */
		{ "a1 a2", "a1@0 a2@1", "scattered a2", false },
		{ "a1 a2 a3 a4", "a1@0 a2@1 a3@2 a4@0", "scattered a2", false },
		{ "a1 a2", "a2@0 a1@1", "scattered a1", false },
		{ "a1 a2 a3", "a3@1 a1@0 a2@1", "out_of_order a2<a3; scattered a1", false },
		{ "a1 b1", "a1@0 a1@1 b1@0", "scattered a1; duplicates a1", false },
		/* a duplicate has no place in the order of another partition */
		{ "a1 a2 a3", "a3@0 a3@1 a1@1 a2@1", "scattered a3; duplicates a3", false },

		/* topics */
		{ "a1 a2/audit a3", "a1 a2/audit@4 a3", "", true },
		{ "a1 a2/audit", "a1 a2", "lost a2; misplaced a2", false },
		{ "a1 a2/audit", "a1 a2/audit a2", "misplaced a2", false },
		{ "a2 a1/audit", "a2 a1/audit", "", true },

		/* rows that the route refuses */
		{ "a1 !a2", "a1", "unroutable a2", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct history h;

		history_init(&h, cases[i].rows, cases[i].records, 100);
		if (strcmp(found(&h), cases[i].expected) != 0)
			fail_msg("%s | %s: %s, not %s", cases[i].rows, cases[i].records, h.line, cases[i].expected);
		if (compare_is_clean(&h.comparison, &strict) != cases[i].clean)
			fail_msg("%s | %s: clean or not", cases[i].rows, cases[i].records);
		history_release(&h);
	}
}

static void only_the_first_cases_are_kept_and_all_are_counted(void **state _unused_)
{
	struct history h;

	history_init(&h, "a1 a2 a3 a4", "x y z", 2);
	assert_string_equal(found(&h), "lost a1 a2; unknown x y");
	assert_int_equal(h.comparison.found[VERIFY_LOST].count, 4);
	assert_int_equal(h.comparison.found[VERIFY_UNKNOWN].count, 3);
	history_release(&h);
	history_init(&h, "a1", "x", 0);
	assert_string_equal(found(&h), "lost; unknown");
	history_release(&h);
}

static void the_rules_say_what_is_judged(void **state _unused_)
{
	static const struct {
		const char *rows, *records;
		struct verify_rules rules;
		bool clean;
	} cases[] = {
		{ "a1 a2", "a2 a1", { .unordered = true }, true },
		{ "a1 a2", "a1@0 a2@1", { .unordered = true }, true },
		{ "a1 a2", "a1", { .unordered = true }, false },
		{ "a1", "a1 x", { .unordered = true }, false },
		{ "a1", "a1 x", { .partial = true }, true },
		{ "a1 a2", "a2 a1", { .partial = true }, false },
		{ "a1", "", { .partial = true, .unordered = true }, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct history h;

		history_init(&h, cases[i].rows, cases[i].records, 5);
		if (compare_is_clean(&h.comparison, &cases[i].rules) != cases[i].clean)
			fail_msg("%s | %s", cases[i].rows, cases[i].records);
		history_release(&h);
	}
}

static void what_was_counted(void **state _unused_)
{
	struct history h;

	history_init(&h, "a1 a2 a3? a4? a4", "a1 a1 x a4", 5);
	assert_int_equal(h.comparison.records, 4);
	assert_int_equal(h.comparison.rows_seen, 2);
	assert_int_equal(h.comparison.pending, 1);
	assert_int_equal(h.ledger.repeated, 1);
	history_release(&h);
}

static void a_row_may_become_pending_later(void **state _unused_)
{
	struct ledger l;

	ledger_init(&l);
	ledger_set_pending(&l, SLICE_LITERAL("a1"));
	assert_true(ledger_add(&l, &(struct ledger_entry){ .id = SLICE_LITERAL("a1"), .topic = SLICE_LITERAL("t") }));
	assert_false(l.rows[0].pending);
	ledger_set_pending(&l, SLICE_LITERAL("a1"));
	ledger_set_pending(&l, SLICE_LITERAL("a2"));
	assert_true(l.rows[0].pending);
	ledger_release(&l);
}

static void there_can_be_too_many_topics(void **state _unused_)
{
	struct ledger l;
	char id[16];

	ledger_init(&l);
	for (int i = 0; i <= LEDGER_TOPICS_MAX; i++) {
		snprintf(id, sizeof(id), "%d", i);
		assert_int_equal(ledger_add(&l, &(struct ledger_entry){ .id = slice_of(id), .topic = slice_of(id) }),
				 i < LEDGER_TOPICS_MAX);
	}
	ledger_release(&l);
}

/* The id of an unknown record is copied, cut, and may be any bytes. */
static void a_long_and_binary_id_is_kept_in_part(void **state _unused_)
{
	char id[1000];
	struct ledger l;
	struct comparison c;

	memset(id, 0, sizeof(id));
	ledger_init(&l);
	compare_init(&c, &l, 1);
	compare_take(&c, &(struct verify_record){ .id = { id, sizeof(id) } });
	memset(id, 'x', sizeof(id));
	assert_int_equal(c.found[VERIFY_UNKNOWN].cases[0].id_len, 200);
	assert_int_equal(c.found[VERIFY_UNKNOWN].cases[0].id[199], 0);
	compare_release(&c);
	ledger_release(&l);
}

/* ---- Random histories -------------------------------------------------------------------------------------------- */

enum { RANDOM_ENTITIES = 4, RANDOM_ROWS = 8 };

/* Counts the same by looking at everything again and again. Rows are numbered entity * RANDOM_ROWS + rank. */
static void count_plainly(const int *log, int n, uint64_t counts[VERIFY_KINDS])
{
	int first[RANDOM_ENTITIES * RANDOM_ROWS];

	for (int row = 0; row < RANDOM_ENTITIES * RANDOM_ROWS; row++) {
		first[row] = -1;
		for (int i = n - 1; i >= 0; i--)
			if (log[i] == row)
				first[row] = i;
		counts[VERIFY_LOST] += first[row] < 0;
	}
	for (int i = 0; i < n; i++)
		counts[VERIFY_DUPLICATE] += first[log[i]] != i;
	for (int row = 0; row < RANDOM_ENTITIES * RANDOM_ROWS; row++) {
		bool overtaken = false;

		for (int later = row + 1; later / RANDOM_ROWS == row / RANDOM_ROWS; later++)
			overtaken = overtaken || (first[later] >= 0 && first[later] < first[row]);
		counts[VERIFY_DISORDER] += overtaken;
	}
}

static void random_histories_are_counted_as_by_hand(void **state _unused_)
{
	uint64_t seed = 1;

	for (int round = 0; round < 2000; round++) {
		uint64_t counts[VERIFY_KINDS] = { 0 };
		int log[80], n = (int)(random_next(&seed) % ARRAY_SIZE(log));
		char rows[1024] = "", records[1024] = "";
		struct history h;

		for (int i = 0; i < RANDOM_ENTITIES * RANDOM_ROWS; i++)
			snprintf(rows + strlen(rows), sizeof(rows) - strlen(rows), "%c%d ", 'a' + i / RANDOM_ROWS,
				 i % RANDOM_ROWS);
		for (int i = 0; i < n; i++) {
			log[i] = (int)(random_next(&seed) % (RANDOM_ENTITIES * RANDOM_ROWS));
			snprintf(records + strlen(records), sizeof(records) - strlen(records), "%c%d@%d ",
				 'a' + log[i] / RANDOM_ROWS, log[i] % RANDOM_ROWS, log[i] / RANDOM_ROWS % 3);
		}
		count_plainly(log, n, counts);
		history_init(&h, rows, records, 3);
		for (enum verify_kind k = 0; k < VERIFY_KINDS; k++)
			if (h.comparison.found[k].count != counts[k])
				fail_msg("round %d, %s: %llu, not %llu: %s", round, verify_kind_name(k),
					 (unsigned long long)h.comparison.found[k].count,
					 (unsigned long long)counts[k], records);
		history_release(&h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_of_violation_is_found),
		cmocka_unit_test(only_the_first_cases_are_kept_and_all_are_counted),
		cmocka_unit_test(the_rules_say_what_is_judged),
		cmocka_unit_test(what_was_counted),
		cmocka_unit_test(a_row_may_become_pending_later),
		cmocka_unit_test(there_can_be_too_many_topics),
		cmocka_unit_test(a_long_and_binary_id_is_kept_in_part),
		cmocka_unit_test(random_histories_are_counted_as_by_hand),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
