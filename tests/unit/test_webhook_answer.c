#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "sink/webhook_answer.h"

/* 2026-11-16 03:00:00 UTC */
#define NOW ((time_t)1794798000)

static void retry_after_is_seconds_or_a_date(void **state _unused_)
{
	static const struct {
		const char *value;
		int64_t ms;
	} cases[] = {
		{ "0", 0 },
		{ "120", 120000 },
		{ "Mon, 16 Nov 2026 03:00:30 GMT", 30000 },
		{ "Monday, 16-Nov-26 03:00:30 GMT", 30000 },
		{ "Mon Nov 16 03:00:30 2026", 30000 },
		{ "Mon, 16 Nov 2026 02:59:30 GMT", 0 },
		{ "99999999999999999999999999999999999999", (int64_t)365 * 24 * 3600 * 1000 },
		{ "Fri, 31 Dec 9999 23:59:59 GMT", (int64_t)365 * 24 * 3600 * 1000 },
		{ "", -1 },
		{ "-5", -1 },
		{ "soon", -1 },
		{ "1.5", -1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (webhook_retry_after_ms(slice_of(cases[i].value), NOW) != cases[i].ms)
			fail_msg("\"%s\" is %lld ms", cases[i].value,
				 (long long)webhook_retry_after_ms(slice_of(cases[i].value), NOW));
	assert_int_equal(webhook_retry_after_ms(SLICE_NULL, NOW), -1);
}

static struct webhook_meaning meaning(int status, const char *retry_after, bool by_topic)
{
	struct http_answer answer = { .status = status, .retry_after = slice_of(retry_after) };

	return webhook_answer_meaning(&answer, "https://user@hooks.example.com/secret?key=secret", by_topic, NOW);
}

static void each_status_has_its_meaning(void **state _unused_)
{
	static const struct {
		int status;
		enum error_kind kind;
		enum webhook_concern concern;
	} cases[] = {
		{ 200, ERROR_NONE, WEBHOOK_ROW },
		{ 202, ERROR_NONE, WEBHOOK_ROW },
		{ 204, ERROR_NONE, WEBHOOK_ROW },
		{ 299, ERROR_NONE, WEBHOOK_ROW },
		{ 300, ERROR_CONFIG, WEBHOOK_ENDPOINT },
		{ 301, ERROR_CONFIG, WEBHOOK_ENDPOINT },
		{ 308, ERROR_CONFIG, WEBHOOK_ENDPOINT },
		{ 400, ERROR_REJECTED, WEBHOOK_ROW },
		{ 401, ERROR_AUTH, WEBHOOK_ENDPOINT },
		{ 403, ERROR_AUTH, WEBHOOK_ENDPOINT },
		{ 404, ERROR_CONFIG, WEBHOOK_ENDPOINT },
		{ 405, ERROR_CONFIG, WEBHOOK_ENDPOINT },
		{ 408, ERROR_TRANSPORT, WEBHOOK_ENDPOINT },
		{ 409, ERROR_REJECTED, WEBHOOK_ROW },
		{ 410, ERROR_CONFIG, WEBHOOK_GONE },
		{ 413, ERROR_REJECTED, WEBHOOK_ROW },
		{ 422, ERROR_REJECTED, WEBHOOK_ROW },
		{ 429, ERROR_THROTTLED, WEBHOOK_ENDPOINT },
		{ 431, ERROR_REJECTED, WEBHOOK_ROW },
		{ 500, ERROR_TRANSPORT, WEBHOOK_ENDPOINT },
		{ 502, ERROR_TRANSPORT, WEBHOOK_ENDPOINT },
		{ 503, ERROR_TRANSPORT, WEBHOOK_ENDPOINT },
		{ 504, ERROR_TRANSPORT, WEBHOOK_ENDPOINT },
		{ 101, ERROR_TRANSPORT, WEBHOOK_ENDPOINT },
		{ 700, ERROR_TRANSPORT, WEBHOOK_ENDPOINT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct webhook_meaning m = meaning(cases[i].status, NULL, false);

		if (m.why.kind != cases[i].kind || m.concern != cases[i].concern || m.told_ms != -1)
			fail_msg("%d: %s, concern %d", cases[i].status, error_kind_name(m.why.kind), (int)m.concern);
		assert_null(strstr(m.why.message, "secret"));
	}
}

static void a_time_that_we_are_told_is_kept_and_shown(void **state _unused_)
{
	static const int statuses[] = { 429, 503 };

	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		struct webhook_meaning m = meaning(statuses[i], "90", false);

		assert_int_equal(m.why.kind, ERROR_THROTTLED);
		assert_int_equal(m.told_ms, 90000);
		assert_non_null(strstr(m.why.message, "https://hooks.example.com answered"));
		assert_non_null(strstr(m.why.message, "wait for 90 s"));
	}
	assert_int_equal(meaning(500, "90", false).told_ms, -1);
	assert_int_equal(meaning(503, "nonsense", false).why.kind, ERROR_TRANSPORT);
}

static void what_is_missing_for_one_topic_concerns_its_rows(void **state _unused_)
{
	assert_int_equal(meaning(404, NULL, true).concern, WEBHOOK_ROW);
	assert_int_equal(meaning(404, NULL, true).why.kind, ERROR_CONFIG);
	assert_int_equal(meaning(403, NULL, true).concern, WEBHOOK_ROW);
	assert_int_equal(meaning(410, NULL, true).concern, WEBHOOK_ROW);
	assert_int_equal(meaning(503, NULL, true).concern, WEBHOOK_ENDPOINT);
}

static void no_answer_is_told_as_it_is(void **state _unused_)
{
	struct http_answer answer = { 0 };
	struct webhook_meaning m;

	error_set(&answer.why, ERROR_AUTH, "no answer");
	m = webhook_answer_meaning(&answer, "https://hooks.example.com/", true, NOW);
	assert_int_equal(m.why.kind, ERROR_AUTH);
	assert_int_equal(m.concern, WEBHOOK_ENDPOINT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(retry_after_is_seconds_or_a_date),
		cmocka_unit_test(each_status_has_its_meaning),
		cmocka_unit_test(a_time_that_we_are_told_is_kept_and_shown),
		cmocka_unit_test(what_is_missing_for_one_topic_concerns_its_rows),
		cmocka_unit_test(no_answer_is_told_as_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
