#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "sink/rabbitmq_message.h"

static char filler[140000];

static struct slice long_text(size_t len)
{
	memset(filler, 'x', sizeof(filler));
	return (struct slice){ filler, len };
}

static void expect_bytes(amqp_bytes_t bytes, const char *expected)
{
	assert_true(slice_is((struct slice){ bytes.bytes, bytes.len }, expected));
}

static void properties_say_what_the_row_says(void **state _unused_)
{
	struct rabbitmq_message m = { 0 };
	struct header headers[] = { { SLICE_LITERAL("tenant"), SLICE_LITERAL("acme") }, { SLICE_LITERAL("empty"), SLICE_NULL } };
	struct event ev = { .message_id = SLICE_LITERAL("m-1"),
			    .event_type = SLICE_LITERAL("paid"),
			    .key = SLICE_LITERAL("17"),
			    .headers = headers,
			    .n_headers = ARRAY_SIZE(headers) };
	struct error err;

	assert_true(rabbitmq_message_build(&m, &ev, "application/json", 131072, &err));
	expect_bytes(m.properties.message_id, "m-1");
	expect_bytes(m.properties.type, "paid");
	expect_bytes(m.properties.content_type, "application/json");
	assert_int_equal(m.properties.delivery_mode, 2);
	assert_int_equal(m.properties.headers.num_entries, 3);
	expect_bytes(m.properties.headers.entries[0].key, "tenant");
	assert_int_equal(m.properties.headers.entries[0].value.kind, AMQP_FIELD_KIND_UTF8);
	assert_int_equal(m.properties.headers.entries[1].value.kind, AMQP_FIELD_KIND_VOID);
	expect_bytes(m.properties.headers.entries[2].key, "key");
	expect_bytes(m.properties.headers.entries[2].value.value.bytes, "17");
	rabbitmq_message_release(&m);
}

static void headers_of_the_row_win(void **state _unused_)
{
	struct rabbitmq_message m = { 0 };
	struct header headers[] = { { SLICE_LITERAL("Content-Type"), SLICE_LITERAL("text/csv") },
				    { SLICE_LITERAL("key"), SLICE_LITERAL("mine") } };
	struct event ev = { .message_id = SLICE_LITERAL("m"), .key = SLICE_LITERAL("17"), .headers = headers, .n_headers = 2 };
	struct error err;

	assert_true(rabbitmq_message_build(&m, &ev, "application/json", 131072, &err));
	expect_bytes(m.properties.content_type, "text/csv");
	assert_int_equal(m.properties.headers.num_entries, 2);
	expect_bytes(m.properties.headers.entries[1].value.value.bytes, "mine");
	assert_false(m.properties._flags & AMQP_BASIC_TYPE_FLAG);
	rabbitmq_message_release(&m);
}

static void what_amqp_has_no_room_for_is_refused(void **state _unused_)
{
	struct rabbitmq_message m = { 0 };
	struct header header = { SLICE_LITERAL("h"), SLICE_LITERAL("v") };
	struct event good = { .message_id = SLICE_LITERAL("m"), .headers = &header, .n_headers = 1 }, ev;
	struct error err;

	ev = good;
	ev.message_id = long_text(256);
	assert_false(rabbitmq_message_build(&m, &ev, "", 131072, &err));
	assert_int_equal(err.kind, ERROR_REJECTED);
	assert_null(strstr(err.message, "xxx"));
	ev.message_id = long_text(255);
	assert_true(rabbitmq_message_build(&m, &ev, "", 131072, &err));
	ev = good;
	ev.event_type = long_text(256);
	assert_false(rabbitmq_message_build(&m, &ev, "", 131072, &err));
	ev = good;
	header.name = long_text(256);
	assert_false(rabbitmq_message_build(&m, &ev, "", 131072, &err));
	header = (struct header){ SLICE_LITERAL("h"), long_text(131072) };
	assert_false(rabbitmq_message_build(&m, &ev, "", 131072, &err));
	assert_int_equal(err.kind, ERROR_REJECTED);
	rabbitmq_message_release(&m);
}

/* The library fails only when half of a message is out, so what we let through it must encode. */
static void what_passes_fits_into_a_frame(void **state _unused_)
{
	static char frame[4096];
	struct rabbitmq_message m = { 0 };
	struct header headers[] = { { SLICE_LITERAL("h"), SLICE_NULL }, { SLICE_LITERAL("content-type"), SLICE_LITERAL("text/csv") } };
	struct event ev = { .message_id = SLICE_LITERAL("m-1"), .event_type = SLICE_LITERAL("paid"), .headers = headers, .n_headers = 2 };
	struct error err;
	size_t largest = 0;

	for (size_t len = 3500; len < 4500; len++) {
		headers[0].value = long_text(len);
		if (!rabbitmq_message_build(&m, &ev, "", sizeof(frame), &err))
			break;
		largest = len;
		/* As in a frame: 7 bytes and 12 before it, one behind. */
		assert_true(amqp_encode_properties(AMQP_BASIC_CLASS, &m.properties,
						   (amqp_bytes_t){ sizeof(frame) - 20, frame }) > 0);
	}
	assert_in_range(largest, 3900, 4096);
	rabbitmq_message_release(&m);
}

static void a_routing_key_has_255_bytes_at_most(void **state _unused_)
{
	assert_null(rabbitmq_topic_fault(long_text(255)));
	assert_non_null(rabbitmq_topic_fault(long_text(256)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(properties_say_what_the_row_says),
		cmocka_unit_test(headers_of_the_row_win),
		cmocka_unit_test(what_amqp_has_no_room_for_is_refused),
		cmocka_unit_test(what_passes_fits_into_a_frame),
		cmocka_unit_test(a_routing_key_has_255_bytes_at_most),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
