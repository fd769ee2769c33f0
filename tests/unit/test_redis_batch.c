/* What goes to Redis, and what its replies mean for each event: no server is needed for that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sink/redis_batch.h"
#include "sink/redis_entry.h"
#include "sink/redis_link.h"
#include "sink/tcp_connect.h"

enum { EVENTS = 3 };

static const struct error away = { ERROR_TRANSPORT, "away", "" };

struct fixture {
	struct event events[EVENTS];
	struct event *pointers[EVENTS];
	struct mailbox box;
	struct outcomes outcomes;
	struct redis_batch batch;
	redisReader *reader;
};

/* Events "a", "b", "a" of stream s. */
static int set_up(void **state)
{
	static const char *const entities[EVENTS] = { "a", "b", "a" };
	struct fixture *f = calloc(1, sizeof(*f));

	for (int i = 0; i < EVENTS; i++) {
		f->events[i] = (struct event){ .message_id = SLICE_LITERAL("m"), .entity = slice_of(entities[i]),
					       .topic = SLICE_LITERAL("s"), .payload = SLICE_LITERAL("p") };
		f->pointers[i] = &f->events[i];
	}
	mailbox_init(&f->box);
	f->outcomes.box = &f->box;
	f->reader = redisReaderCreate();
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < EVENTS; i++)
		free(f->events[i].failure);
	redisReaderFree(f->reader);
	mailbox_release(&f->box);
	free(f);
	return 0;
}

static void begin(struct fixture *f)
{
	assert_int_equal(redis_batch_begin(&f->batch, f->pointers, EVENTS), EVENTS);
}

static void answer(struct fixture *f, const char *text)
{
	void *reply = NULL;

	redisReaderFeed(f->reader, text, strlen(text));
	while (redisReaderGetReply(f->reader, &reply) == REDIS_OK && reply) {
		redis_batch_take(&f->batch, reply);
		freeReplyObject(reply);
	}
}

/* NONE stands for delivered. */
static void expect(struct fixture *f, enum error_kind first, enum error_kind second, enum error_kind third)
{
	enum error_kind expected[EVENTS] = { first, second, third };
	uint32_t n = 0;

	redis_batch_conclude(&f->batch, &f->outcomes);
	for (struct event *ev = mailbox_take(&f->box); ev; ev = ev->next)
		n++;
	assert_int_equal(n, EVENTS);
	assert_int_equal(f->batch.count, 0);
	for (int i = 0; i < EVENTS; i++)
		assert_int_equal(f->events[i].failure ? f->events[i].failure->kind : ERROR_NONE, expected[i]);
}

#define QUEUED "+QUEUED\r\n"
#define STORED "$3\r\n1-1\r\n"
#define NOT_A_STREAM "-WRONGTYPE no stream\r\n"
#define ABORTED "-EXECABORT Transaction discarded because of previous errors.\r\n"

static void test_an_executed_batch_is_delivered(void **state)
{
	struct fixture *f = *state;
	struct error why;

	begin(f);
	answer(f, "+OK\r\n" QUEUED QUEUED QUEUED);
	assert_false(redis_batch_is_answered(&f->batch));
	answer(f, "*3\r\n" STORED STORED STORED);
	assert_true(redis_batch_is_answered(&f->batch));
	assert_true(redis_batch_is_stored(&f->batch));
	assert_false(redis_batch_has_trouble(&f->batch, &why));
	expect(f, ERROR_NONE, ERROR_NONE, ERROR_NONE);
}

static void test_what_fails_when_it_runs_fails_by_itself(void **state)
{
	struct fixture *f = *state;
	struct error why;

	begin(f);
	answer(f, "+OK\r\n" QUEUED QUEUED QUEUED "*3\r\n" NOT_A_STREAM STORED NOT_A_STREAM);
	assert_false(redis_batch_has_trouble(&f->batch, &why));
	assert_true(redis_batch_is_stored(&f->batch));
	expect(f, ERROR_REJECTED, ERROR_NONE, ERROR_LOST);
}

static void test_one_that_may_not_be_queued_discards_all_and_is_the_only_one_blamed(void **state)
{
	struct fixture *f = *state;
	struct error why;

	begin(f);
	answer(f, "+OK\r\n-NOPERM no\r\n" QUEUED QUEUED ABORTED);
	assert_true(redis_batch_is_answered(&f->batch));
	assert_false(redis_batch_has_trouble(&f->batch, &why));
	assert_false(redis_batch_is_stored(&f->batch));
	expect(f, ERROR_AUTH, ERROR_LOST, ERROR_LOST);
}

/* The first XADD came while the server was loading, the others a moment after. */
static void test_a_server_that_becomes_ready_in_the_middle_stores_nothing(void **state)
{
	struct fixture *f = *state;
	struct error why;

	begin(f);
	answer(f, "+OK\r\n-LOADING wait\r\n" QUEUED QUEUED ABORTED);
	assert_true(redis_batch_has_trouble(&f->batch, &why));
	assert_int_equal(why.kind, ERROR_TRANSPORT);
	expect(f, ERROR_TRANSPORT, ERROR_LOST, ERROR_LOST);
}

static void test_an_exec_that_is_refused_says_why(void **state)
{
	struct fixture *f = *state;
	struct error why;

	begin(f);
	answer(f, "+OK\r\n" QUEUED QUEUED QUEUED "-EXECABORT Transaction discarded because of: OOM full\r\n");
	assert_true(redis_batch_has_trouble(&f->batch, &why));
	assert_int_equal(why.kind, ERROR_THROTTLED);
	expect(f, ERROR_THROTTLED, ERROR_THROTTLED, ERROR_THROTTLED);
}

static void test_without_multi_nothing_counts(void **state)
{
	struct fixture *f = *state;
	struct error why;

	begin(f);
	answer(f, "-NOPERM no multi\r\n" STORED STORED STORED "-ERR EXEC without MULTI\r\n");
	assert_true(redis_batch_has_trouble(&f->batch, &why));
	expect(f, ERROR_AUTH, ERROR_AUTH, ERROR_AUTH);
}

static void test_a_connection_that_ends_is_an_outage(void **state)
{
	struct fixture *f = *state;
	struct error why;

	begin(f);
	answer(f, "+OK\r\n" QUEUED);
	redis_batch_void(&f->batch, &away);
	assert_true(redis_batch_has_trouble(&f->batch, &why));
	expect(f, ERROR_TRANSPORT, ERROR_TRANSPORT, ERROR_TRANSPORT);
}

/* The server refuses the second one as too large, and hangs up: the first has no EXEC, and the third was not read. */
static void test_a_row_that_ends_the_connection_is_refused_and_is_no_outage(void **state)
{
	struct fixture *f = *state;
	struct error why;

	begin(f);
	answer(f, "+OK\r\n" QUEUED "-ERR Protocol error: invalid bulk length\r\n");
	redis_batch_void(&f->batch, &away);
	assert_false(redis_batch_has_trouble(&f->batch, &why));
	expect(f, ERROR_TRANSPORT, ERROR_REJECTED, ERROR_TRANSPORT);
	assert_true(f->events[1].alone);
	assert_false(f->events[0].alone || f->events[2].alone);
}

static void test_a_row_that_was_refused_before_goes_alone(void **state)
{
	struct fixture *f = *state;

	f->events[1].alone = true;
	assert_int_equal(redis_batch_begin(&f->batch, f->pointers, EVENTS), 1);
	assert_int_equal(redis_batch_begin(&f->batch, f->pointers + 1, EVENTS - 1), 1);
}

static void test_a_batch_has_a_size(void **state)
{
	struct fixture *f = *state;

	f->events[0].payload.len = REDIS_BATCH_BYTES;
	assert_int_equal(redis_batch_begin(&f->batch, f->pointers, EVENTS), 1);
	f->events[0].payload.len = REDIS_ENTRY_MAX_BYTES;
	assert_int_equal(redis_batch_begin(&f->batch, f->pointers, EVENTS), 0);
}

static void expect_text(const struct event *ev, int64_t max_len, const char *text, size_t len)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 4096 };

	buf_add_xadd(&b, ev, max_len);
	assert_int_equal(b.len, len);
	assert_memory_equal(b.data, text, len);
}
#define EXPECT_TEXT(ev, max_len, text) expect_text(ev, max_len, text, sizeof(text) - 1)

static void test_the_fields_of_an_entry(void **state)
{
	struct header headers[] = { { SLICE_LITERAL("tenant"), SLICE_LITERAL("x") }, { SLICE_LITERAL("void"), SLICE_NULL } };
	struct event ev = { .topic = SLICE_LITERAL("s"), .message_id = SLICE_LITERAL("m1"), .key = SLICE_LITERAL("k"),
			    .payload = SLICE_LITERAL("\0\r\n"), .headers = headers, .n_headers = 2 };

	(void)state;
	EXPECT_TEXT(&ev, 0,
		    "*13\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$2\r\nid\r\n$2\r\nm1\r\n$3\r\nkey\r\n$1\r\nk\r\n"
		    "$8\r\nh:tenant\r\n$1\r\nx\r\n$6\r\nh:void\r\n$0\r\n\r\n$7\r\npayload\r\n$3\r\n\0\r\n\r\n");
	ev.n_headers = 0;
	ev.key = ev.payload = SLICE_NULL;
	EXPECT_TEXT(&ev, 500, "*8\r\n$4\r\nXADD\r\n$1\r\ns\r\n$6\r\nMAXLEN\r\n$1\r\n~\r\n$3\r\n500\r\n$1\r\n*\r\n"
			      "$2\r\nid\r\n$2\r\nm1\r\n");
}

static void test_addresses(void **state)
{
	static const struct {
		const char *text, *host;        /* NULL: refused */
		bool loopback;
	} cases[] = {
		{ "localhost:6379", "localhost", true }, { "127.0.0.9:1", "127.0.0.9", true }, { "[::1]:6379", "::1", true },
		{ "redis.example.com:6379", "redis.example.com", false }, { "127.example.com:1", "127.example.com", false },
		{ "10.0.0.1:65535", "10.0.0.1", false },
		{ "localhost", NULL, false }, { ":6379", NULL, false }, { "a:0", NULL, false }, { "a:65536", NULL, false },
		{ "::1:6379", NULL, false }, { "a:12x", NULL, false }, { "", NULL, false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct tcp_address a;
		struct error err;

		assert_int_equal(tcp_address_parse(cases[i].text, &a, &err), cases[i].host != NULL);
		if (!cases[i].host)
			continue;
		assert_string_equal(a.host, cases[i].host);
		assert_int_equal(tcp_address_is_loopback(&a), cases[i].loopback);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(test_an_executed_batch_is_delivered),
		TEST(test_what_fails_when_it_runs_fails_by_itself),
		TEST(test_one_that_may_not_be_queued_discards_all_and_is_the_only_one_blamed),
		TEST(test_a_server_that_becomes_ready_in_the_middle_stores_nothing),
		TEST(test_an_exec_that_is_refused_says_why),
		TEST(test_without_multi_nothing_counts),
		TEST(test_a_connection_that_ends_is_an_outage),
		TEST(test_a_row_that_ends_the_connection_is_refused_and_is_no_outage),
		TEST(test_a_row_that_was_refused_before_goes_alone),
		TEST(test_a_batch_has_a_size),
		TEST(test_the_fields_of_an_entry),
		TEST(test_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
