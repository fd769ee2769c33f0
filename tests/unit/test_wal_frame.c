/* On what passed between PostgreSQL 15.18 and a client. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "pg/wal_frame.h"

static const struct slice an_insert = SLICE_LITERAL(
	"w\0\0\0\0\001Q\236\370\0\0\0\0\001Q\236\370\0\003\003R\"\320!\007I\0\0@\0N\0\001t\0\0\0\0017");
static const struct slice a_relation = SLICE_LITERAL(
	"w\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\003\003R\"\320 \367"
	"R\0\0@\0public\0o\0d\0\001\0id\0\0\0\0\027\377\377\377\377");
static const struct slice a_keepalive = SLICE_LITERAL("k\0\0\0\0\001Q\237\250\0\003\003R\"\356\256a\0");
static const struct slice a_question = SLICE_LITERAL("k\0\0\0\0\001Q\237\250\0\003\003R\"\356\256\226\001");

static struct wal_frame decode(struct slice bytes)
{
	struct wal_frame frame;
	struct error err;

	memset(&frame, 0xff, sizeof(frame));
	if (!wal_frame_decode(bytes, &frame, &err))
		fail_msg("%s", err.message);
	return frame;
}

static void refused(struct slice bytes, const char *why)
{
	struct wal_frame frame;
	struct error err = { 0 };

	assert_false(wal_frame_decode(bytes, &frame, &err));
	assert_int_equal(err.kind, ERROR_BUG);
	assert_string_equal(err.message, why);
}

static void data_carries_a_message_of_the_plugin(void **state _unused_)
{
	struct wal_frame frame = decode(an_insert);

	assert_int_equal(frame.kind, WAL_DATA);
	assert_int_equal(frame.start_lsn, 0x1519ef8);
	assert_int_equal(frame.end_lsn, 0x1519ef8);
	assert_ptr_equal(frame.data.ptr, an_insert.ptr + 25);
	assert_int_equal(frame.data.len, 14);
	assert_false(frame.reply_wanted);

	/* The description of a table is no record of the log. */
	frame = decode(a_relation);
	assert_int_equal(frame.kind, WAL_DATA);
	assert_int_equal(frame.start_lsn, 0);
	assert_int_equal(frame.end_lsn, 0);
	assert_int_equal(frame.data.ptr[0], 'R');

	/* An empty message is for the decoder of messages to refuse. */
	frame = decode((struct slice){ an_insert.ptr, 25 });
	assert_int_equal(frame.data.len, 0);
	assert_ptr_equal(frame.data.ptr, an_insert.ptr + 25);
}

static void a_keepalive_may_ask_for_an_answer(void **state _unused_)
{
	struct wal_frame frame = decode(a_keepalive);

	assert_int_equal(frame.kind, WAL_KEEPALIVE);
	assert_int_equal(frame.start_lsn, 0);
	assert_int_equal(frame.end_lsn, 0x1519fa8);
	assert_false(frame.reply_wanted);
	assert_null(frame.data.ptr);

	frame = decode(a_question);
	assert_int_equal(frame.kind, WAL_KEEPALIVE);
	assert_int_equal(frame.end_lsn, 0x1519fa8);
	assert_true(frame.reply_wanted);
}

/* In memory of exactly that size, where the address sanitizer sees whoever reads past its end. */
static void refused_when_cut(struct slice whole, size_t len)
{
	_cleanup_(mem_freep) char *copy = mem_alloc(len);
	struct wal_frame frame;
	struct error err = { 0 };

	memcpy(copy, whole.ptr, len);
	assert_false(wal_frame_decode((struct slice){ copy, len }, &frame, &err));
	assert_int_equal(err.kind, ERROR_BUG);
}

static void what_is_too_short_is_refused(void **state _unused_)
{
	for (size_t len = 1; len < 25; len++)
		refused_when_cut(an_insert, len);
	for (size_t len = 1; len < a_keepalive.len; len++)
		refused_when_cut(a_keepalive, len);
	refused((struct slice){ an_insert.ptr, 24 },
		"could not decode data from the server: 24 bytes, 25 are needed");
	refused((struct slice){ a_keepalive.ptr, 17 },
		"could not decode a keepalive: 17 bytes, 18 are needed");
}

static void what_is_none_is_refused(void **state _unused_)
{
	refused(SLICE_LITERAL("k\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
		"could not decode a keepalive: 19 bytes, 18 are needed");
	refused(SLICE_NULL, "could not decode what the server sent: it is empty");
	refused(SLICE_LITERAL("r"), "could not decode what the server sent: unknown kind 0x72");
	refused(SLICE_LITERAL("\xff\0\0\0"), "could not decode what the server sent: unknown kind 0xff");
}

/* The server took this, and its slot stood at 0/1519F68 then. */
static void status_tells_what_is_confirmed(void **state _unused_)
{
	char out[WAL_STATUS_SIZE + 1];

	memset(out, 'x', sizeof(out));
	wal_status_encode(out, 0x1519f68, 848076238401517);
	assert_memory_equal(out,
			    "r\0\0\0\0\001Q\237h\0\0\0\0\001Q\237h\0\0\0\0\001Q\237h\0\003\003R\"\356\257\355\0x",
			    sizeof(out));
	wal_status_encode(out, UINT64_MAX, -1);
	assert_memory_equal(out,
			    "r\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377"
			    "\377\377\377\377\377\377\377\377\377\377\0x",
			    sizeof(out));
}

static void places_in_the_log_are_written_and_read(void **state _unused_)
{
	static const struct {
		uint64_t lsn;
		const char *text;
	} cases[] = {
		{ 0, "0/0" },
		{ 0x1519f68, "0/1519F68" },
		{ 0x16b374d848, "16/B374D848" },
		{ 0x100000000, "1/0" },
		{ 0x10000000f, "1/F" },
		{ UINT64_MAX, "FFFFFFFF/FFFFFFFF" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char text[WAL_LSN_TEXT];
		uint64_t lsn = 1;

		wal_lsn_write(text, cases[i].lsn);
		assert_string_equal(text, cases[i].text);
		assert_true(wal_lsn_parse(text, &lsn));
		assert_int_equal(lsn, cases[i].lsn);
	}
}

static void places_are_read_in_any_form_that_the_server_reads(void **state _unused_)
{
	static const char *const none[] = {
		"", "/", "1", "1/", "/1", "1/2/3", "1//2", "123456789/0", "0/123456789", "0x1/2", "1/0x2", " 1/2",
		"1/2 ", "+1/2", "1/-2", "g/1", "1/g",
	};
	uint64_t lsn = 7;

	assert_true(wal_lsn_parse("ab/cd", &lsn));
	assert_int_equal(lsn, 0xab000000cd);
	assert_true(wal_lsn_parse("00000016/0374d848", &lsn));
	assert_int_equal(lsn, 0x160374d848);
	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		if (wal_lsn_parse(none[i], &lsn))
			fail_msg("'%s' was taken", none[i]);
	assert_int_equal(lsn, 0x160374d848);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_carries_a_message_of_the_plugin),
		cmocka_unit_test(a_keepalive_may_ask_for_an_answer),
		cmocka_unit_test(what_is_too_short_is_refused),
		cmocka_unit_test(what_is_none_is_refused),
		cmocka_unit_test(status_tells_what_is_confirmed),
		cmocka_unit_test(places_in_the_log_are_written_and_read),
		cmocka_unit_test(places_are_read_in_any_form_that_the_server_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
