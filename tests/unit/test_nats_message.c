/* An event as a message of NATS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "sink/nats_message.h"

static struct event row(struct header *headers, uint32_t n)
{
	return (struct event){
		.topic = slice_of("shop.order"), .key = slice_of("17"), .message_id = slice_of("id-1"),
		.payload = { "a\0b", 3 }, .headers = headers, .n_headers = n,
	};
}

static const char *value(natsMsg *msg, const char *name)
{
	const char *v = NULL;

	natsMsgHeader_Get(msg, name, &v);
	return v;
}

static void it_has_all_of_the_event(void **state _unused_)
{
	struct header headers[] = { { slice_of("tenant"), slice_of("Z\xc3\xbcrich") }, { slice_of("empty"), SLICE_NULL } };
	_cleanup_(buf_release) struct buf scratch = { .ceiling = 1000 };
	struct event ev = row(headers, 2);
	struct error err;
	natsMsg *msg;

	assert_true(nats_message_build(&ev, "_INBOX.x.m.1", "ORDERS", &scratch, &msg, &err));
	assert_string_equal(natsMsg_GetSubject(msg), "shop.order");
	assert_string_equal(natsMsg_GetReply(msg), "_INBOX.x.m.1");
	assert_int_equal(natsMsg_GetDataLength(msg), 3);
	assert_memory_equal(natsMsg_GetData(msg), "a\0b", 3);
	assert_string_equal(value(msg, "tenant"), "Z\xc3\xbcrich");
	assert_string_equal(value(msg, "empty"), "");
	assert_string_equal(value(msg, "Nats-Msg-Id"), "id-1");
	assert_string_equal(value(msg, "Postrider-Key"), "17");
	assert_string_equal(value(msg, "Nats-Expected-Stream"), "ORDERS");
	natsMsg_Destroy(msg);
}

static void without_key_stream_and_payload(void **state _unused_)
{
	_cleanup_(buf_release) struct buf scratch = { .ceiling = 1000 };
	struct event ev = row(NULL, 0);
	struct error err;
	natsMsg *msg;

	ev.key = ev.payload = SLICE_NULL;
	assert_true(nats_message_build(&ev, "r", "", &scratch, &msg, &err));
	assert_int_equal(natsMsg_GetDataLength(msg), 0);
	assert_null(value(msg, "Postrider-Key"));
	assert_null(value(msg, "Nats-Expected-Stream"));
	natsMsg_Destroy(msg);
}

/* A row that sets these would be taken for another one, or stored elsewhere. */
static void a_row_cannot_set_what_is_ours(void **state _unused_)
{
	struct header headers[] = {
		{ slice_of("Nats-Msg-Id"), slice_of("x") }, { slice_of("Nats-Expected-Stream"), slice_of("x") },
		{ slice_of("Postrider-Key"), slice_of("x") },
	};
	_cleanup_(buf_release) struct buf scratch = { .ceiling = 1000 };
	struct event ev = row(headers, 3);
	struct error err;
	natsMsg *msg;

	assert_true(nats_message_build(&ev, "r", "", &scratch, &msg, &err));
	assert_string_equal(value(msg, "Nats-Msg-Id"), "id-1");
	assert_string_equal(value(msg, "Postrider-Key"), "17");
	assert_null(value(msg, "Nats-Expected-Stream"));
	natsMsg_Destroy(msg);
}

static void what_no_header_can_hold_is_rejected(void **state _unused_)
{
	static const struct header headers[] = {
		{ { "a b", 3 }, { "x", 1 } },   { { "a:b", 3 }, { "x", 1 } },      { { "", 0 }, { "x", 1 } },
		{ { "a\0b", 3 }, { "x", 1 } },  { { "a", 1 }, { "x\r\nNats-Msg-Id: y", 17 } }, { { "a", 1 }, { "x\0y", 3 } },
	};
	_cleanup_(buf_release) struct buf scratch = { .ceiling = 1000 };

	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		struct header h = headers[i];
		struct event ev = row(&h, 1);
		struct error err = { 0 };
		natsMsg *msg;

		assert_false(nats_message_build(&ev, "r", "", &scratch, &msg, &err));
		assert_int_equal(err.kind, ERROR_REJECTED);
	}
}

static int open_library(void **state _unused_)
{
	return nats_Open(-1) == NATS_OK ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_has_all_of_the_event),
		cmocka_unit_test(without_key_stream_and_payload),
		cmocka_unit_test(a_row_cannot_set_what_is_ours),
		cmocka_unit_test(what_no_header_can_hold_is_rejected),
	};

	return cmocka_run_group_tests(tests, open_library, NULL);
}
