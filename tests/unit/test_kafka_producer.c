#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "kafka_fixture.h"
#include "sink/kafka_producer.h"

enum {
	PRODUCE = 0,                             /* the request's number in the protocol */
	SOON_MS = 5000,
};

static struct producer *open_producer(struct cluster *c, bool one_by_one)
{
	struct producer *p;
	struct error err;

	if (!producer_open(&c->sink, &c->limits, &c->breaker, one_by_one, &p, &err))
		fail_msg("%s", err.message);
	return p;
}

/* One worker: its rows, and how far the producer knows that it has read its mailbox. Those that wait for a first row are
 * given up when brokers do not answer soon. */
static uint32_t submit(struct producer *p, struct rows *r, uint32_t from, uint32_t n, struct error *err)
{
	struct outcomes outcomes = { .box = &r->box };
	struct producer_user user;
	struct error none;
	uint32_t taken;

	producer_user_open(&user, p, &outcomes);
	taken = producer_submit(p, &user, r->pointers + from, n, err);
	for (int64_t deadline = clock_ms() + SOON_MS; user.first && clock_ms() < deadline; poll(NULL, 0, 1))
		producer_submit(p, &user, NULL, 0, &none);
	producer_user_close(&user, p);
	return taken;
}

/* From here on the broker knows the producer, and rows go back to back. */
static void deliver_first(struct producer *p)
{
	struct error err;
	struct rows r;

	rows_init(&r, "z1");
	assert_int_equal(submit(p, &r, 0, 1, &err), 1);
	assert_string_equal(outcomes(&r, 1), "z1");
	rows_release(&r);
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
		producer_mend(p, clock_ms());
		taken += submit(p, r, taken, r->n - taken, &err);
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
		assert_int_equal(submit(p, &mine, i, 1, &err), 1);
		assert_int_equal(submit(p, &yours, i, 1, &err), 1);
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
	p = open_producer(&c, false);
	deliver_first(p);
	rd_kafka_mock_push_request_errors(c.mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
	rows_init(&r, "a1 b1 a2");
	submit_all(p, &r);
	assert_string_equal(outcomes(&r, 3), "a1:lost b1:lost a2:lost");
	for (uint32_t i = 0; i < r.n; i++)
		assert_true(r.events[i].alone);
	forget_failures(&r);
	submit_all(p, &r);
	assert_string_equal(outcomes(&r, 3), "a1 b1 a2");
	assert_string_equal(arrived(&c), "z1 a1 b1 a2");
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
	deliver_first(p);
	rows_init(&r, "a1 a2 a3");
	r.events[1].payload = (struct slice){ large, sizeof(large) };
	assert_int_equal(submit(p, &r, 0, 3, &err), 1);
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

/* --- recalls -------------------------------------------------------------------------------------------------- */

static void patient_cluster(struct cluster *c)
{
	cluster_open(c, 1);
	set_property(c, "reconnect.backoff.ms", "10");
	set_property(c, "reconnect.backoff.max.ms", "20");
}

/* As workers do; true when nothing is left to mend. */
static bool mend_for(struct producer *p, int64_t ms)
{
	int64_t deadline = clock_ms() + ms;

	while (producer_mends(p) && clock_ms() < deadline) {
		producer_mend(p, clock_ms());
		poll(NULL, 0, 1);
	}
	return !producer_mends(p);
}

static void a_recall_drops_what_waits_for_brokers_that_are_away(void **state _unused_)
{
	struct rows dropped, other;
	struct producer *p;
	struct cluster c;
	int64_t before;

	patient_cluster(&c);
	rd_kafka_mock_broker_set_down(c.mock, 1);
	p = open_producer(&c, false);
	rows_init(&dropped, "a1 a2 b1 a3");
	rows_init(&other, "a1 a2");
	submit_all(p, &dropped);
	before = clock_ms();
	producer_recall(p);
	assert_true(clock_ms() - before < 200);
	assert_true(mend_for(p, PATIENCE_MS));
	outcomes(&dropped, 4);
	for (uint32_t i = 0; i < dropped.n; i++)
		assert_int_equal(dropped.events[i].failure->kind, ERROR_LOST);
	rd_kafka_mock_broker_set_up(c.mock, 1);
	submit_all(p, &other);
	assert_string_equal(outcomes(&other, 2), "a1 a2");
	assert_string_equal(arrived(&c), "a1 a2");
	producer_close(p);
	rows_release(&dropped);
	rows_release(&other);
	cluster_close(&c);
}

/* Of a slow broker's rows, two are on the wire and the rest is queued behind them. */
static void submit_to_slow_broker(struct cluster *c, struct producer *p, struct rows *first, struct rows *r, int rtt_ms)
{
	struct error err;

	submit_all(p, first);
	outcomes(first, first->n);
	rd_kafka_mock_broker_set_rtt(c->mock, 1, rtt_ms);
	assert_int_equal(submit(p, r, 0, 2, &err), 2);
	poll(NULL, 0, 50);
	assert_int_equal(submit(p, r, 2, r->n - 2, &err), r->n - 2);
	poll(NULL, 0, 20);
}

static void a_recall_waits_for_answers_to_what_is_on_the_wire(void **state _unused_)
{
	struct rows first, r;
	struct producer *p;
	struct cluster c;

	patient_cluster(&c);
	set_property(&c, "max.in.flight", "1");
	p = open_producer(&c, false);
	rows_init(&first, "z1");
	rows_init(&r, "a1 b1 a2 b2 a3 a4");
	submit_to_slow_broker(&c, p, &first, &r, 300);
	producer_recall(p);
	assert_true(mend_for(p, PATIENCE_MS));
	outcomes(&r, 6);
	for (uint32_t i = 0; i < r.n; i++)
		assert_true(i < 2 ? !r.events[i].failure : r.events[i].failure->kind == ERROR_LOST);
	rd_kafka_mock_broker_set_rtt(c.mock, 1, 0);
	assert_string_equal(arrived(&c), "z1 a1 b1");
	producer_close(p);
	rows_release(&first);
	rows_release(&r);
	cluster_close(&c);
}

static void a_recall_does_not_wait_long_for_a_broker_that_is_stuck(void **state _unused_)
{
	struct rows first, r, other;
	struct producer *p;
	struct cluster c;
	struct error err;
	int64_t before;

	patient_cluster(&c);
	p = open_producer(&c, false);
	rows_init(&first, "z1");
	rows_init(&r, "a1 a2 a3");
	rows_init(&other, "b1 b2");
	submit_to_slow_broker(&c, p, &first, &r, 60 * 1000);
	before = clock_ms();
	producer_recall(p);
	producer_mend(p, clock_ms());
	/* Not now, and nobody waits to hear that. */
	assert_int_equal(submit(p, &other, 0, 2, &err), 0);
	assert_true(clock_ms() - before < 200);
	assert_true(mend_for(p, 3000));
	assert_string_equal(outcomes(&r, 3), "a1:lost a2:lost a3:lost");
	rd_kafka_mock_broker_set_rtt(c.mock, 1, 0);
	submit_all(p, &other);
	assert_string_equal(outcomes(&other, 2), "b1 b2");
	producer_close(p);
	rows_release(&first);
	rows_release(&r);
	rows_release(&other);
	cluster_close(&c);
}

enum { INIT_PRODUCER_ID = 22 };          /* each client sends one */

static size_t clients_seen(struct cluster *c)
{
	rd_kafka_mock_request_t **requests;
	size_t n, clients = 0;

	requests = rd_kafka_mock_get_requests(c->mock, &n);
	for (size_t i = 0; i < n; i++)
		clients += rd_kafka_mock_request_api_key(requests[i]) == INIT_PRODUCER_ID;
	rd_kafka_mock_request_destroy_array(requests, n);
	return clients;
}

static void recalls_that_come_together_are_one_and_without_rows_none(void **state _unused_)
{
	struct rows first, r, other;
	struct producer *p;
	struct cluster c;

	patient_cluster(&c);
	set_property(&c, "max.in.flight", "1");
	rd_kafka_mock_start_request_tracking(c.mock);
	p = open_producer(&c, false);
	rows_init(&first, "z1");
	rows_init(&r, "a1 b1 a2");
	rows_init(&other, "a3");
	submit_to_slow_broker(&c, p, &first, &r, 100);
	for (int i = 0; i < 4; i++)
		producer_recall(p);
	assert_true(mend_for(p, PATIENCE_MS));
	outcomes(&r, 3);
	for (int i = 0; i < 4; i++)
		producer_recall(p);
	assert_false(producer_mends(p));
	submit_all(p, &other);
	outcomes(&other, 1);
	for (int i = 0; i < 4; i++)
		producer_recall(p);
	assert_false(producer_mends(p));
	assert_int_equal(clients_seen(&c), 2);
	producer_close(p);
	rows_release(&first);
	rows_release(&r);
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
		cmocka_unit_test(a_recall_drops_what_waits_for_brokers_that_are_away),
		cmocka_unit_test(a_recall_waits_for_answers_to_what_is_on_the_wire),
		cmocka_unit_test(a_recall_does_not_wait_long_for_a_broker_that_is_stuck),
		cmocka_unit_test(recalls_that_come_together_are_one_and_without_rows_none),
	};

	log_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
