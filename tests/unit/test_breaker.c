#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <time.h>

#include "base/macros.h"
#include "sink/breaker.h"

static struct error reason(const char *text)
{
	struct error err;

	error_set(&err, ERROR_TRANSPORT, "%s", text);
	return err;
}

static void a_new_breaker_is_closed(void **state _unused_)
{
	struct breaker b;
	struct error why;
	int64_t since;

	breaker_init(&b);
	assert_false(breaker_is_open(&b));
	assert_false(breaker_look(&b, &since, &why));
	assert_false(breaker_close(&b));
	breaker_release(&b);
}

static void it_says_since_when_and_why_it_is_open(void **state _unused_)
{
	struct error away = reason("nobody answers"), why = { 0 };
	int64_t before = (int64_t)time(NULL) * 1000, since = 0;
	struct breaker b;

	breaker_init(&b);
	assert_true(breaker_open(&b, &away));
	assert_true(breaker_is_open(&b));
	assert_true(breaker_look(&b, &since, &why));
	assert_in_range(since, before, before + 10 * 1000);
	assert_string_equal(why.message, "nobody answers");
	assert_true(breaker_close(&b));
	assert_false(breaker_look(&b, &since, &why));
	breaker_release(&b);
}

static void a_later_reason_takes_the_place_of_the_first_and_the_time_stays(void **state _unused_)
{
	struct error first = reason("no route"), second = reason("refused"), why = { 0 };
	int64_t since = 0, later = 0;
	struct breaker b;

	breaker_init(&b);
	breaker_open(&b, &first);
	breaker_look(&b, &since, &why);
	b.since_ms = since - 5000;
	assert_false(breaker_open(&b, &second));
	assert_true(breaker_look(&b, &later, &why));
	assert_int_equal(later, since - 5000);
	assert_string_equal(why.message, "refused");
	/* Another outage has a time of its own. */
	breaker_close(&b);
	assert_true(breaker_open(&b, &first));
	breaker_look(&b, &later, &why);
	assert_true(later >= since);
	breaker_release(&b);
}

enum { THREADS = 4, TURNS = 2000 };

struct contest {
	struct breaker breaker;
	_Atomic int opened, closed;
};

static void *contend(void *arg)
{
	struct error away = reason("away");
	struct contest *c = arg;

	for (int i = 0; i < TURNS; i++) {
		c->opened += breaker_open(&c->breaker, &away);
		c->closed += breaker_close(&c->breaker);
	}
	return NULL;
}

static void of_many_threads_one_opens_it_and_one_closes_it(void **state _unused_)
{
	pthread_t threads[THREADS];
	struct contest c = { 0 };

	breaker_init(&c.breaker);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, contend, &c), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_true(c.opened > 0);
	assert_int_equal(c.opened - c.closed, breaker_is_open(&c.breaker));
	breaker_release(&c.breaker);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_breaker_is_closed),
		cmocka_unit_test(it_says_since_when_and_why_it_is_open),
		cmocka_unit_test(a_later_reason_takes_the_place_of_the_first_and_the_time_stays),
		cmocka_unit_test(of_many_threads_one_opens_it_and_one_closes_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
