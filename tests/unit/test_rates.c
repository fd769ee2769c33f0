#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "cli/rates.h"
#include "keep/overview.h"

struct worker {
	const char *node, *outbox, *number, *settled;
};

static void set(PGresult *res, int row, int column, const char *value)
{
	char copy[64];

	snprintf(copy, sizeof(copy), "%s", value);
	assert_true(PQsetvalue(res, row, column, copy, (int)strlen(copy)));
}

/* A sample as an overview would have it. */
static void sample(struct rates *r, int64_t at_ms, const struct worker *workers, int n)
{
	PGresAttDesc columns[WORKER_ERROR + 1] = { 0 };
	PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	char name[] = "x";

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		columns[i].name = name;
	assert_true(PQsetResultAttrs(res, (int)ARRAY_SIZE(columns), columns));
	for (int i = 0; i < n; i++) {
		set(res, i, WORKER_NODE, workers[i].node);
		set(res, i, WORKER_OUTBOX, workers[i].outbox);
		set(res, i, WORKER_NUMBER, workers[i].number);
		set(res, i, WORKER_SETTLED, workers[i].settled);
	}
	rates_add(r, at_ms, res);
	PQclear(res);
}

#define SAMPLE(r, at_ms, ...) \
	sample(r, at_ms, (const struct worker[]){ __VA_ARGS__ }, (int)ARRAY_SIZE(((const struct worker[]){ __VA_ARGS__ })))

static void one_sample_says_nothing(_unused_ void **state)
{
	struct rates r = { 0 };

	SAMPLE(&r, 1000, { "1", "orders", "0", "500" });
	assert_int_equal(rates_of(&r, WORKER_OUTBOX, "orders"), -1);
	rates_release(&r);
}

static void workers_are_summed_by_outbox_and_by_node(_unused_ void **state)
{
	struct rates r = { 0 };

	SAMPLE(&r, 1000, { "1", "orders", "0", "100" }, { "1", "bills", "0", "7" }, { "2", "orders", "0", "1000" });
	SAMPLE(&r, 3000, { "1", "orders", "0", "300" }, { "1", "bills", "0", "7" }, { "2", "orders", "0", "1800" });
	assert_int_equal(rates_of(&r, WORKER_OUTBOX, "orders"), 500);
	assert_int_equal(rates_of(&r, WORKER_OUTBOX, "bills"), 0);
	assert_int_equal(rates_of(&r, WORKER_NODE, "1"), 100);
	assert_int_equal(rates_of(&r, WORKER_NODE, "2"), 400);
	assert_int_equal(rates_of(&r, WORKER_OUTBOX, "unknown"), 0);
	rates_release(&r);
}

static void who_comes_begins_at_nothing_and_who_goes_is_forgotten(_unused_ void **state)
{
	struct rates r = { 0 };

	SAMPLE(&r, 1000, { "1", "orders", "0", "100000" });
	SAMPLE(&r, 2000, { "2", "orders", "0", "50" });
	assert_int_equal(rates_of(&r, WORKER_OUTBOX, "orders"), 50);
	rates_release(&r);
}

static void who_begins_anew_does_not_count_backwards(_unused_ void **state)
{
	struct rates r = { 0 };

	SAMPLE(&r, 1000, { "1", "orders", "0", "1000" });
	SAMPLE(&r, 2000, { "1", "orders", "0", "30" });
	assert_int_equal(rates_of(&r, WORKER_OUTBOX, "orders"), 30);
	rates_release(&r);
}

static void only_the_last_samples_count(_unused_ void **state)
{
	struct rates r = { 0 };

	for (int i = 0; i < 2 * RATES_SAMPLES; i++) {
		char settled[16];

		/* Busy at first, idle later. */
		snprintf(settled, sizeof(settled), "%d", i < RATES_SAMPLES ? i * 100 : RATES_SAMPLES * 100);
		SAMPLE(&r, i * 1000, { "1", "orders", "0", settled });
	}
	assert_int_equal(rates_of(&r, WORKER_OUTBOX, "orders"), 0);
	rates_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_sample_says_nothing),
		cmocka_unit_test(workers_are_summed_by_outbox_and_by_node),
		cmocka_unit_test(who_comes_begins_at_nothing_and_who_goes_is_forgotten),
		cmocka_unit_test(who_begins_anew_does_not_count_backwards),
		cmocka_unit_test(only_the_last_samples_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
