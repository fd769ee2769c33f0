#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "base/backoff.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/mem.h"
#include "kafka_fixture.h"
#include "sink/sink.h"

extern const struct sink_driver sink_kafka;

enum { PRODUCE = 0 };                    /* the request's number in the protocol */

struct opened {
	struct cluster cluster;
	struct sink_target *target;
	struct sink *sink;
	struct rows rows;
};

static void pump(void *sink)
{
	sink_kafka.pump(sink, clock_ms());
}

static void open_sink(struct opened *o, const char *rows)
{
	struct error err;

	rows_init(&o->rows, rows);
	if (!sink_kafka.target_open(&o->cluster.sink, &o->target, &err) ||
	    !sink_kafka.open(o->target, &(struct sink_env){ .outcomes = &o->rows.box, .last = true }, &o->sink, &err))
		fail_msg("%s", err.message);
	o->rows.pump = pump;
	o->rows.arg = o->sink;
}

static void close_sink(struct opened *o)
{
	sink_kafka.close(o->sink);
	sink_kafka.target_close(o->target);
	rows_release(&o->rows);
	cluster_close(&o->cluster);
}

/* Another worker at the same target. */
static struct sink *open_second(struct opened *o, struct rows *r)
{
	struct sink *sink;
	struct error err;

	if (!sink_kafka.open(o->target, &(struct sink_env){ .outcomes = &r->box, .last = true }, &sink, &err))
		fail_msg("%s", err.message);
	r->pump = pump;
	r->arg = sink;
	return sink;
}

static void be_impatient(struct cluster *c)
{
	set_property(c, "reconnect.backoff.ms", "10");
	set_property(c, "reconnect.backoff.max.ms", "20");
}

static void nothing_more_is_taken_while_a_refusal_lies_unread_in_the_mailbox(void **state _unused_)
{
	static char large[5000];
	struct opened o;

	cluster_open(&o.cluster, 1);
	set_property(&o.cluster, "message.max.bytes", "1000");
	open_sink(&o, "z1 a1 a2 a3");
	o.rows.events[2].payload = (struct slice){ large, sizeof(large) };
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 1), 1);
	assert_string_equal(outcomes(&o.rows, 1), "z1");
	/* Not in the same call, and not in the next one: a worker that filled its chunk submits again before it looks
	 * at outcomes. */
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers + 1, 3), 2);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers + 3, 1), 0);
	outcomes(&o.rows, 2);
	assert_null(o.rows.events[1].failure);
	assert_int_equal(o.rows.events[2].failure->kind, ERROR_REJECTED);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers + 3, 1), 1);
	assert_string_equal(outcomes(&o.rows, 1), "a3");
	assert_string_equal(arrived(&o.cluster), "z1 a1 a3");
	close_sink(&o);
}

static void rows_that_must_go_alone_and_others_are_taken_in_one_call(void **state _unused_)
{
	struct opened o;

	cluster_open(&o.cluster, 1);
	open_sink(&o, "a1 b1 c1 d1");
	o.rows.events[1].alone = o.rows.events[2].alone = true;
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 4), 4);
	outcomes(&o.rows, 4);
	for (uint32_t i = 0; i < o.rows.n; i++)
		assert_null(o.rows.events[i].failure);
	close_sink(&o);
}

/* --- the first row of a partition ------------------------------------------------------------------------------ */

static void behind_a_refused_first_row_nothing_is_sent(void **state _unused_)
{
	struct opened o;

	cluster_open(&o.cluster, 1);
	set_property(&o.cluster, "batch.num.messages", "1");
	/* The mock, like a broker that does not know the producer yet, would accept the second request. */
	rd_kafka_mock_push_request_errors(o.cluster.mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
	open_sink(&o, "a1 a2 b1 a3");
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 4), 4);
	assert_string_equal(outcomes(&o.rows, 4), "a1:lost a2:lost b1:lost a3:lost");
	assert_true(o.rows.events[0].alone);
	assert_false(o.rows.events[1].alone);
	assert_string_equal(arrived(&o.cluster), "");
	close_sink(&o);
}

static void rows_of_other_partitions_do_not_wait_for_one_whose_first_row_is_on_its_way(void **state _unused_)
{
	struct opened o;

	cluster_open(&o.cluster, 12);
	open_sink(&o, "a1 a2 b1 b2 c1 c2 d1 d2 e1 e2 f1 f2");
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 12), 12);
	outcomes(&o.rows, 12);
	for (uint32_t i = 0; i < o.rows.n; i++)
		assert_null(o.rows.events[i].failure);
	close_sink(&o);
}

static void a_worker_is_woken_when_another_ones_first_row_has_arrived(void **state _unused_)
{
	struct rows theirs;
	struct sink *second;
	struct opened o;

	cluster_open(&o.cluster, 1);
	open_sink(&o, "a1");
	rows_init(&theirs, "b1 b2");
	second = open_second(&o, &theirs);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 1), 1);
	assert_int_equal(sink_kafka.submit(second, theirs.pointers, 2), 2);
	assert_int_equal(poll(&(struct pollfd){ .fd = theirs.box.fd, .events = POLLIN }, 1, PATIENCE_MS), 1);
	assert_string_equal(outcomes(&theirs, 2), "b1 b2");
	assert_string_equal(outcomes(&o.rows, 1), "a1");
	assert_string_equal(arrived(&o.cluster), "a1 b1 b2");
	sink_kafka.close(second);
	rows_release(&theirs);
	close_sink(&o);
}

static void rows_that_wait_come_back_when_the_claim_is_gone_and_when_the_sink_closes(void **state _unused_)
{
	struct opened o;

	cluster_open(&o.cluster, 1);
	be_impatient(&o.cluster);
	rd_kafka_mock_broker_set_down(o.cluster.mock, 1);
	open_sink(&o, "a1 a2 a3 a4");
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 2), 2);
	sink_kafka.recall(o.sink);
	assert_string_equal(outcomes(&o.rows, 2), "a2:lost a1:lost");
	for (uint32_t taken = 0; taken < 2; poll(NULL, 0, 1)) {
		sink_kafka.pump(o.sink, clock_ms());
		taken += sink_kafka.submit(o.sink, o.rows.pointers + 2 + taken, 2 - taken);
	}
	o.rows.pump = NULL;
	sink_kafka.close(o.sink);
	assert_string_equal(outcomes(&o.rows, 1), "a4:lost");
	sink_kafka.target_close(o.target);
	assert_string_equal(outcomes(&o.rows, 1), "a3:lost");
	rows_release(&o.rows);
	cluster_close(&o.cluster);
}

/* --- brokers that are away -------------------------------------------------------------------------------------- */

static void wait_for_breaker(struct opened *o, bool open)
{
	struct breaker *breaker = sink_kafka.breaker(o->target);
	int64_t deadline = clock_ms() + PATIENCE_MS;

	for (; breaker_is_open(breaker) != open; poll(NULL, 0, 10)) {
		assert_true(clock_ms() < deadline);
		sink_kafka.pump(o->sink, clock_ms());
	}
}

static void while_brokers_are_away_no_row_is_refused_and_a_delivery_ends_that(void **state _unused_)
{
	static char large[5000];
	struct opened o;

	cluster_open(&o.cluster, 1);
	be_impatient(&o.cluster);
	set_property(&o.cluster, "message.max.bytes", "1000");
	rd_kafka_mock_broker_set_down(o.cluster.mock, 1);
	open_sink(&o, "a1 b1");
	o.rows.events[0].payload = (struct slice){ large, sizeof(large) };
	wait_for_breaker(&o, true);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 1), 0);
	rd_kafka_mock_broker_set_up(o.cluster.mock, 1);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers + 1, 1), 1);
	assert_string_equal(outcomes(&o.rows, 1), "b1");
	wait_for_breaker(&o, false);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 1), 1);
	assert_string_equal(outcomes(&o.rows, 1), "a1:rejected");
	close_sink(&o);
}

/* --- the end -------------------------------------------------------------------------------------------------- */

static void closing_gives_everything_back_while_the_brokers_are_away(void **state _unused_)
{
	int64_t before;
	struct opened o;

	cluster_open(&o.cluster, 1);
	rd_kafka_mock_broker_set_down(o.cluster.mock, 1);
	open_sink(&o, "a1 a2 b1 c1");
	o.rows.pump = NULL;
	o.rows.events[3].alone = true;
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 4), 4);
	before = clock_ms();
	sink_kafka.close(o.sink);
	sink_kafka.target_close(o.target);
	assert_true(clock_ms() - before < 2000);
	outcomes(&o.rows, 4);
	for (uint32_t i = 0; i < o.rows.n; i++)
		assert_int_equal(o.rows.events[i].failure->kind, ERROR_LOST);
	rows_release(&o.rows);
	cluster_close(&o.cluster);
}

static void closing_gives_back_what_is_on_its_way_to_a_slow_broker(void **state _unused_)
{
	int64_t before;
	struct opened o;

	cluster_open(&o.cluster, 1);
	open_sink(&o, "a1 a2 a3");
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 1), 1);
	assert_string_equal(outcomes(&o.rows, 1), "a1");
	rd_kafka_mock_broker_set_rtt(o.cluster.mock, 1, 60 * 1000);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers + 1, 2), 2);
	poll(NULL, 0, 50);
	o.rows.pump = NULL;
	before = clock_ms();
	sink_kafka.close(o.sink);
	sink_kafka.target_close(o.target);
	assert_true(clock_ms() - before < 2000);
	assert_string_equal(outcomes(&o.rows, 2), "a2:lost a3:lost");
	rows_release(&o.rows);
	cluster_close(&o.cluster);
}

/* --- recalls -------------------------------------------------------------------------------------------------- */

/* Until its rows are taken, all of them. */
static void submit_all(struct sink *sink, struct rows *r)
{
	int64_t deadline = clock_ms() + PATIENCE_MS;
	uint32_t taken = 0;

	while (taken < r->n) {
		assert_true(clock_ms() < deadline);
		sink_kafka.pump(sink, clock_ms());
		taken += sink_kafka.submit(sink, r->pointers + taken, r->n - taken);
		poll(NULL, 0, 1);
	}
}

static void after_a_recall_no_row_overtakes_one_whose_loss_its_worker_has_not_read(void **state _unused_)
{
	struct rows theirs;
	struct sink *second;
	struct opened o;

	cluster_open(&o.cluster, 1);
	be_impatient(&o.cluster);
	rd_kafka_mock_broker_set_down(o.cluster.mock, 1);
	open_sink(&o, "a1 a2");
	rows_init(&theirs, "b1 b2 b3");
	second = open_second(&o, &theirs);
	assert_int_equal(sink_kafka.submit(second, theirs.pointers, 1), 1);
	sink_kafka.recall(o.sink);
	/* The first worker goes on as soon as there is a new producer … */
	submit_all(o.sink, &o.rows);
	/* … but for the second one b2 must wait, because b1 lies lost in its mailbox. */
	rd_kafka_mock_broker_set_up(o.cluster.mock, 1);
	assert_int_equal(sink_kafka.submit(second, theirs.pointers + 1, 2), 0);
	assert_string_equal(outcomes(&theirs, 1), "b1:lost");
	assert_string_equal(outcomes(&o.rows, 2), "a1 a2");
	free(theirs.events[0].failure);
	theirs.events[0].failure = NULL;
	assert_int_equal(sink_kafka.submit(second, theirs.pointers, 3), 3);
	assert_string_equal(outcomes(&theirs, 3), "b1 b2 b3");
	assert_string_equal(arrived(&o.cluster), "a1 a2 b1 b2 b3");
	sink_kafka.close(second);
	rows_release(&theirs);
	close_sink(&o);
}

static void a_worker_that_waits_for_a_new_producer_looks_again_soon(void **state _unused_)
{
	int64_t deadline;
	struct opened o;
	short events;

	cluster_open(&o.cluster, 1);
	rd_kafka_mock_broker_set_down(o.cluster.mock, 1);
	open_sink(&o, "a1 a2");
	assert_int_equal(sink_kafka.pollfd(o.sink, &events, &deadline), -1);
	assert_true(deadline == CLOCK_NEVER);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers, 1), 1);
	sink_kafka.recall(o.sink);
	assert_int_equal(sink_kafka.submit(o.sink, o.rows.pointers + 1, 1), 0);
	assert_int_equal(sink_kafka.pollfd(o.sink, &events, &deadline), -1);
	assert_true(deadline <= clock_ms() + 100);
	outcomes(&o.rows, 1);
	close_sink(&o);
}

/* --- a storm of recalls: workers that each keep their entities in order, as windows do ---------------------------- */

enum { WORKERS = 4, LANES = 3, LANE_ROWS = 400, RECALLS = 1 };

struct storm_row {
	struct event event;
	char key[8], name[16];          /* "w1e2", "w1e2/17" */
};

struct storm_lane {
	struct storm_row rows[LANE_ROWS];
	uint32_t next, out;             /* the next to submit; how many are without an outcome */
	uint32_t failed;                /* the first that failed; LANE_ROWS when none */
};

struct storm_worker {
	pthread_t thread;
	struct mailbox box;
	struct sink *sink;
	struct storm_lane lanes[LANES];
	uint64_t seed;
	uint32_t recalls;
};

static void lane_init(struct storm_lane *l, struct mailbox *box, int worker, int lane)
{
	l->failed = LANE_ROWS;
	for (int i = 0; i < LANE_ROWS; i++) {
		struct storm_row *r = &l->rows[i];

		snprintf(r->key, sizeof(r->key), "w%de%d", worker, lane);
		snprintf(r->name, sizeof(r->name), "%s/%d", r->key, i);
		r->event.entity = r->event.key = (struct slice){ r->key, strlen(r->key) };
		r->event.id = r->event.payload = (struct slice){ r->name, strlen(r->name) };
		r->event.topic = SLICE_LITERAL("orders");
		r->event.outcomes = box;
	}
}

static struct storm_lane *lane_of(struct storm_worker *w, const struct event *ev)
{
	return &w->lanes[ev->key.ptr[3] - '0'];
}

/* Returns how many were delivered. */
static uint32_t take_storm_outcomes(struct storm_worker *w)
{
	uint32_t delivered = 0;
	struct event *next;

	for (struct event *ev = mailbox_take(&w->box); ev; ev = next) {
		struct storm_lane *l = lane_of(w, ev);
		uint32_t place = (uint32_t)((struct storm_row *)ev - l->rows);

		next = ev->next;
		l->out--;
		if (ev->failure)
			l->failed = MIN(l->failed, place);
		else
			delivered++;
		free(ev->failure);
		ev->failure = NULL;
	}
	for (int i = 0; i < LANES; i++) {
		struct storm_lane *l = &w->lanes[i];

		/* All outcomes are in: again from the failed row on, whatever was acknowledged behind it. */
		if (l->failed == LANE_ROWS || l->out > 0)
			continue;
		l->next = l->failed;
		l->failed = LANE_ROWS;
	}
	return delivered;
}

static void submit_some(struct storm_worker *w)
{
	struct storm_lane *l = &w->lanes[random_next(&w->seed) % LANES];
	uint32_t n = 0, want = 1 + random_next(&w->seed) % 8, taken;
	struct event *events[8];

	while (l->failed == LANE_ROWS && n < want && l->next + n < LANE_ROWS) {
		events[n] = &l->rows[l->next + n].event;
		n++;
	}
	taken = n > 0 ? sink_kafka.submit(w->sink, events, n) : 0;
	l->next += taken;
	l->out += taken;
}

static bool is_finished(const struct storm_worker *w)
{
	for (int i = 0; i < LANES; i++)
		if (w->lanes[i].out > 0 || w->lanes[i].next < LANE_ROWS || w->lanes[i].failed < LANE_ROWS)
			return false;
	return true;
}

static void *storm_main(void *arg)
{
	struct storm_worker *w = arg;

	while (!is_finished(w)) {
		struct pollfd p = { .fd = w->box.fd, .events = POLLIN };
		uint32_t delivered = take_storm_outcomes(w);

		sink_kafka.pump(w->sink, clock_ms());
		submit_some(w);
		if (delivered > 0 && w->recalls < RECALLS && random_next(&w->seed) % 8 == 0) {
			sink_kafka.recall(w->sink);
			w->recalls++;
		}
		if (random_next(&w->seed) % 3 == 0)
			poll(&p, 1, 1);
	}
	return NULL;
}

/* Each row is there, and the first time only after all those before it. */
static void assert_log_in_order(struct cluster *c)
{
	rd_kafka_topic_partition_list_t *partitions = rd_kafka_topic_partition_list_new(1);
	int64_t deadline = clock_ms() + PATIENCE_MS;
	int seen[WORKERS][LANES] = { 0 };
	rd_kafka_t *rk = open_consumer(c);
	bool end = false;

	rd_kafka_topic_partition_list_add(partitions, "orders", 0)->offset = 0;
	assert_int_equal(rd_kafka_assign(rk, partitions), 0);
	rd_kafka_topic_partition_list_destroy(partitions);
	while (!end) {
		rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, 100);
		char name[16] = "";
		int worker, lane, place;

		assert_true(clock_ms() < deadline);
		if (!m)
			continue;
		end = m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
		if (!m->err) {
			memcpy(name, m->payload, MIN(m->len, sizeof(name) - 1));
			assert_int_equal(sscanf(name, "w%de%d/%d", &worker, &lane, &place), 3);
			if (place > seen[worker][lane])
				fail_msg("%s arrived before row %d", name, seen[worker][lane]);
			seen[worker][lane] = MAX(seen[worker][lane], place + 1);
		}
		rd_kafka_message_destroy(m);
	}
	rd_kafka_destroy(rk);
	for (int w = 0; w < WORKERS; w++)
		for (int l = 0; l < LANES; l++)
			assert_int_equal(seen[w][l], LANE_ROWS);
}

/* The broker is now slow, now away. */
static void trouble_broker(struct opened *o, uint64_t *seed)
{
	rd_kafka_mock_broker_set_rtt(o->cluster.mock, 1, (int)(random_next(seed) % 5));
	if (random_next(seed) % 100 == 0) {
		rd_kafka_mock_broker_set_down(o->cluster.mock, 1);
		poll(NULL, 0, (int)(random_next(seed) % 20));
		rd_kafka_mock_broker_set_up(o->cluster.mock, 1);
	}
	poll(NULL, 0, (int)(random_next(seed) % 20));
}

static bool all_finished(struct storm_worker workers[], bool joined[])
{
	bool all = true;

	for (int i = 0; i < WORKERS; i++) {
		joined[i] = joined[i] || pthread_tryjoin_np(workers[i].thread, NULL) == 0;
		all = all && joined[i];
	}
	return all;
}

static void recalls_of_many_workers_leave_every_entity_in_order(void **state _unused_)
{
	const char *given = getenv("POSTRIDER_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
	struct storm_worker *workers = mem_new_array(struct storm_worker, WORKERS);
	bool joined[WORKERS] = { 0 };
	struct opened o;

	cluster_open(&o.cluster, 1);
	be_impatient(&o.cluster);
	set_property(&o.cluster, "batch.num.messages", "5");
	open_sink(&o, "");
	for (int i = 0; i < WORKERS; i++) {
		struct storm_worker *w = &workers[i];
		struct error err;

		*w = (struct storm_worker){ .seed = seed * WORKERS + (uint64_t)i };
		mailbox_init(&w->box);
		for (int l = 0; l < LANES; l++)
			lane_init(&w->lanes[l], &w->box, i, l);
		assert_true(sink_kafka.open(o.target, &(struct sink_env){ .outcomes = &w->box }, &w->sink, &err));
		assert_int_equal(pthread_create(&w->thread, NULL, storm_main, w), 0);
	}
	while (!all_finished(workers, joined))
		trouble_broker(&o, &seed);
	rd_kafka_mock_broker_set_rtt(o.cluster.mock, 1, 0);
	assert_log_in_order(&o.cluster);
	for (int i = 0; i < WORKERS; i++) {
		sink_kafka.close(workers[i].sink);
		mailbox_release(&workers[i].box);
	}
	close_sink(&o);
	free(workers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_more_is_taken_while_a_refusal_lies_unread_in_the_mailbox),
		cmocka_unit_test(rows_that_must_go_alone_and_others_are_taken_in_one_call),
		cmocka_unit_test(behind_a_refused_first_row_nothing_is_sent),
		cmocka_unit_test(rows_of_other_partitions_do_not_wait_for_one_whose_first_row_is_on_its_way),
		cmocka_unit_test(a_worker_is_woken_when_another_ones_first_row_has_arrived),
		cmocka_unit_test(rows_that_wait_come_back_when_the_claim_is_gone_and_when_the_sink_closes),
		cmocka_unit_test(while_brokers_are_away_no_row_is_refused_and_a_delivery_ends_that),
		cmocka_unit_test(closing_gives_everything_back_while_the_brokers_are_away),
		cmocka_unit_test(closing_gives_back_what_is_on_its_way_to_a_slow_broker),
		cmocka_unit_test(after_a_recall_no_row_overtakes_one_whose_loss_its_worker_has_not_read),
		cmocka_unit_test(a_worker_that_waits_for_a_new_producer_looks_again_soon),
		cmocka_unit_test(recalls_of_many_workers_leave_every_entity_in_order),
	};

	log_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
