#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "pg/array.h"
#include "read/horizon.h"

enum { FIRST = 7 };     /* some number in a reader's table */

static PGresult *result(uint32_t type)
{
	PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc field = { .name = (char *)"x", .format = 1, .typid = type, .typlen = -1 };

	assert_non_null(res);
	assert_int_equal(PQsetResultAttrs(res, 1, &field), 1);
	return res;
}

/* The highest row is visible; -1: there is none. */
static void highest(struct horizon *h, int64_t id)
{
	PGresult *res = result(TYPE_INT8);
	uint64_t bytes = htobe64((uint64_t)id);

	if (id >= 0)
		assert_int_equal(PQsetvalue(res, 0, 0, (char *)&bytes, sizeof(bytes)), 1);
	assert_true(horizon_take(h, FIRST + (h->known ? HORIZON_HIGHER : HORIZON_HIGHEST), res));
	PQclear(res);
}

/* These write to the table now: "3/17 4/2". */
static void writers(struct horizon *h, const char *names)
{
	PGresult *res = result(TYPE_TEXT);
	int row = 0;

	for (const char *p = names; *p; p += strspn(p, " ")) {
		size_t len = strcspn(p, " ");

		assert_int_equal(PQsetvalue(res, row++, 0, (char *)p, (int)len), 1);
		p += len;
	}
	assert_true(horizon_take(h, FIRST + HORIZON_WRITERS, res));
	PQclear(res);
}

/* What horizon_send would do, without a server. */
static void look(struct horizon *h, int64_t id, const char *names)
{
	h->fresh = !h->has_candidate;
	if (h->fresh)
		highest(h, id);
	writers(h, names);
}

static int64_t at(const struct horizon *h)
{
	uint64_t bytes;

	if (!h->known)
		return -1;
	assert_int_equal(h->at.len, sizeof(bytes));
	memcpy(&bytes, h->at.data, sizeof(bytes));
	return (int64_t)be64toh(bytes);
}

static void when_nobody_writes_the_highest_row_is_the_horizon(void **state _unused_)
{
	struct horizon h;

	horizon_init(&h, FIRST);
	look(&h, 7, "");
	assert_int_equal(at(&h), 7);
	look(&h, 9, "");
	assert_int_equal(at(&h), 9);
	horizon_release(&h);
}

static void it_waits_for_those_who_were_writing_and_for_nobody_else(void **state _unused_)
{
	struct horizon h;

	horizon_init(&h, FIRST);
	look(&h, 7, "3/17 4/2");
	assert_int_equal(at(&h), -1);
	look(&h, 0, "4/2 5/1");
	assert_int_equal(at(&h), -1);
	look(&h, 0, "5/1 3/18");        /* both have ended; these came later and draw higher numbers */
	assert_int_equal(at(&h), 7);
	horizon_release(&h);
}

static void a_long_transaction_holds_it_where_it_is(void **state _unused_)
{
	struct horizon h;

	horizon_init(&h, FIRST);
	look(&h, 7, "");
	for (int i = 0; i < 100; i++) {
		look(&h, 100 + i, "3/17");
		assert_int_equal(at(&h), 7);
	}
	look(&h, 0, "");
	assert_int_equal(at(&h), 100);  /* what was highest when the wait began */
	horizon_release(&h);
}

static void a_transaction_of_the_same_session_is_another_writer(void **state _unused_)
{
	struct horizon h;

	horizon_init(&h, FIRST);
	look(&h, 7, "3/17");
	look(&h, 0, "3/18");
	assert_int_equal(at(&h), 7);
	horizon_release(&h);
}

static void without_rows_there_is_none_and_none_is_lost(void **state _unused_)
{
	struct horizon h;

	horizon_init(&h, FIRST);
	look(&h, -1, "3/17");
	look(&h, -1, "");
	assert_int_equal(at(&h), -1);
	look(&h, 5, "");
	assert_int_equal(at(&h), 5);
	look(&h, -1, "");               /* nothing above it */
	assert_int_equal(at(&h), 5);
	horizon_release(&h);
}

static void other_results_are_not_its_own(void **state _unused_)
{
	struct horizon h;
	PGresult *res = result(TYPE_TEXT);

	horizon_init(&h, FIRST);
	assert_false(horizon_take(&h, FIRST - 1, res));
	assert_false(horizon_take(&h, FIRST + HORIZON_STATEMENTS_COUNT, res));
	PQclear(res);
	horizon_release(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(when_nobody_writes_the_highest_row_is_the_horizon),
		cmocka_unit_test(it_waits_for_those_who_were_writing_and_for_nobody_else),
		cmocka_unit_test(a_long_transaction_holds_it_where_it_is),
		cmocka_unit_test(a_transaction_of_the_same_session_is_another_writer),
		cmocka_unit_test(without_rows_there_is_none_and_none_is_lost),
		cmocka_unit_test(other_results_are_not_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
