#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "kafka_fixture.h"
#include "sink/kafka_producer.h"

enum { PRODUCE = 0 };                    /* the request's number in the protocol */

static struct producer *open_producer(struct cluster *c, bool one_by_one)
{
	struct producer *p;
	struct error err;

	if (!producer_open(&c->sink, &c->limits, one_by_one, &p, &err))
		fail_msg("%s", err.message);
	return p;
}

static void forget_failures(struct rows *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		free(r->events[i].failure);
		r->events[i].failure = NULL;
	}
}

/* Submits all rows; as a worker does, what is not taken is tried again after a look at the producer. */
static void submit_all(struct producer *p, struct rows *r)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	uint32_t taken = 0;

	while (taken < r->n) {
		struct error err;

		assert_true(clock_ms() < deadline);
		producer_mend(p);
		taken += producer_submit(p, r->pointers + taken, r->n - taken, &err);
		assert_int_equal(err.kind, ERROR_NONE);
		if (taken < r->n)
			poll(NULL, 0, 1);
	}
}

/* --- delivery ------------------------------------------------------------------------------------------------- */

static void reports_reach_the_mailbox_of_their_row_in_order(void **state _unused_)
{
	struct rows mine, yours;
	struct producer *p;
	struct cluster c;
	struct error err;

	cluster_open(&c, 1);
	p = open_producer(&c, false);
	rows_init(&mine, "a1 a2 a3 a4 a5");
	rows_init(&yours, "b1 b2 b3 b4 b5");
	for (uint32_t i = 0; i < mine.n; i++) {
		assert_int_equal(producer_submit(p, &mine.pointers[i], 1, &err), 1);
		assert_int_equal(producer_submit(p, &yours.pointers[i], 1, &err), 1);
	}
	assert_string_equal(outcomes(&mine, 5), "a1 a2 a3 a4 a5");
	assert_string_equal(outcomes(&yours, 5), "b1 b2 b3 b4 b5");
	assert_string_equal(arrived(&c), "a1 b1 a2 b2 a3 b3 a4 b4 a5 b5");
	producer_close(p);
	rows_release(&mine);
	rows_release(&yours);
	cluster_close(&c);
}

static void passing_errors_are_retried_unseen_and_in_order(void **state _unused_)
{
	struct producer *p;
	struct cluster c;
	struct rows r;

	cluster_open(&c, 1);
	set_property(&c, "batch.num.messages", "2");
	/* The mock does not check sequence numbers, so it would take the second request after it failed the first. */
	set_property(&c, "max.in.flight", "1");
	set_property(&c, "retry.backoff.ms", "10");
	set_property(&c, "retry.backoff.max.ms", "20");
	set_property(&c, "reconnect.backoff.ms", "10");
	set_property(&c, "reconnect.backoff.max.ms", "20");
	rd_kafka_mock_push_request_errors(c.mock, PRODUCE, 2, RD_KAFKA_RESP_ERR__TRANSPORT,
					  RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS);
	p = open_producer(&c, false);
	rows_init(&r, "a1 a2 a3 a4 a5 a6 a7 a8");
	submit_all(p, &r);
	assert_string_equal(outcomes(&r, 8), "a1 a2 a3 a4 a5 a6 a7 a8");
	assert_string_equal(arrived(&c), "a1 a2 a3 a4 a5 a6 a7 a8");
	producer_close(p);
	rows_release(&r);
	cluster_close(&c);
}

/* --- refusals ------------------------------------------------------------------------------------------------- */

static void a_refused_batch_comes_back_as_lost_and_its_rows_travel_alone_next_time(void **state _unused_)
{
	struct producer *p;
	struct cluster c;
	struct rows r;

	cluster_open(&c, 1);
	set_property(&c, "linger.ms", "100");           /* one batch */
	rd_kafka_mock_push_request_errors(c.mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
	p = open_producer(&c, false);
	rows_init(&r, "a1 b1 a2");
	submit_all(p, &r);
	assert_string_equal(outcomes(&r, 3), "a1:lost b1:lost a2:lost");
	for (uint32_t i = 0; i < r.n; i++)
		assert_true(r.events[i].alone);
	forget_failures(&r);
	submit_all(p, &r);
	assert_string_equal(outcomes(&r, 3), "a1 b1 a2");
	assert_string_equal(arrived(&c), "a1 b1 a2");
	producer_close(p);
	rows_release(&r);
	cluster_close(&c);
}

static void a_producer_stops_at_a_row_that_it_refuses_and_leaves_it_to_the_caller(void **state _unused_)
{
	static char large[5000];
	struct producer *p;
	struct cluster c;
	struct error err;
	struct rows r;

	cluster_open(&c, 1);
	set_property(&c, "message.max.bytes", "1000");
	p = open_producer(&c, false);
	rows_init(&r, "a1 a2 a3");
	r.events[1].payload = (struct slice){ large, sizeof(large) };
	assert_int_equal(producer_submit(p, r.pointers, 3, &err), 1);
	assert_int_equal(err.kind, ERROR_REJECTED);
	assert_non_null(strstr(err.message, "MSG_SIZE_TOO_LARGE"));
	producer_close(p);
	outcomes(&r, 1);                /* of a1; the other two were never taken */
	assert_null(r.events[1].failure);
	assert_null(r.events[2].failure);
	rows_release(&r);
	cluster_close(&c);
}

static void a_row_that_travels_alone_is_refused_for_good_and_the_next_one_goes(void **state _unused_)
{
	struct rows refused, other;
	struct producer *p;
	struct cluster c;

	cluster_open(&c, 1);
	rd_kafka_mock_push_request_errors(c.mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_INVALID_RECORD);
	p = open_producer(&c, true);
	rows_init(&refused, "a1");
	rows_init(&other, "b1");
	submit_all(p, &refused);
	assert_string_equal(outcomes(&refused, 1), "a1:rejected");
	assert_non_null(strstr(refused.events[0].failure->message, "INVALID_RECORD"));
	assert_false(refused.events[0].alone);
	submit_all(p, &other);
	assert_string_equal(outcomes(&other, 1), "b1");
	producer_close(p);
	rows_release(&refused);
	rows_release(&other);
	cluster_close(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reports_reach_the_mailbox_of_their_row_in_order),
		cmocka_unit_test(passing_errors_are_retried_unseen_and_in_order),
		cmocka_unit_test(a_refused_batch_comes_back_as_lost_and_its_rows_travel_alone_next_time),
		cmocka_unit_test(a_producer_stops_at_a_row_that_it_refuses_and_leaves_it_to_the_caller),
		cmocka_unit_test(a_row_that_travels_alone_is_refused_for_good_and_the_next_one_goes),
	};

	log_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
