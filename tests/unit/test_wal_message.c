#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/mem.h"
#include "read/wal_message.h"

#define MESSAGE_LSN 0x16b374d848

/* What templates name besides: nothing else of the table matters to a message. */
static struct table_column extra[] = {
	{ .name = (char *)(uintptr_t)"price" },
	{ .name = (char *)(uintptr_t)"rush" },
};
static const struct table table = { .extra = extra, .n_extra = ARRAY_SIZE(extra) };

struct sent {
	struct wal_message message;
	struct error err;
	bool ok, foreign;
};

static void sent_release(struct sent *s)
{
	wal_message_release(&s->message);
}

static void send_bytes(struct sent *s, struct slice json)
{
	*s = (struct sent){ 0 };
	s->ok = wal_message_read(&s->message, &table, json, "orders", MESSAGE_LSN, &s->foreign, &s->err);
}

static void send(struct sent *s, const char *json)
{
	send_bytes(s, slice_of(json));
}

static void assert_slice(struct slice s, const char *expected)
{
	if (!expected) {
		assert_null(s.ptr);
		return;
	}
	assert_non_null(s.ptr);
	if (!slice_is(s, expected))
		fail_msg("\"%.*s\" instead of \"%s\"", (int)s.len, s.ptr, expected);
}

static void assert_field(const struct sent *s, int field, const char *expected)
{
	assert_slice(s->message.fields[field], expected);
}

static void assert_taken(const char *json, int field, const char *expected)
{
	_cleanup_(sent_release) struct sent s;

	send(&s, json);
	if (!s.ok)
		fail_msg("%s", s.err.message);
	assert_false(s.foreign);
	assert_field(&s, field, expected);
}

static void assert_refused(const char *json, const char *why)
{
	_cleanup_(mem_freep) char *expected = mem_printf("logical message 16/B374D848: %s", why);
	_cleanup_(sent_release) struct sent s;

	send(&s, json);
	assert_false(s.ok);
	assert_int_equal(s.err.kind, ERROR_REJECTED);
	assert_string_equal(s.err.message, expected);
}

static void members_are_fields(void **state _unused_)
{
	_cleanup_(sent_release) struct sent s;

	send(&s, " {\"outbox\": \"orders\", \"message_id\": \"m-1\", \"entity_type\": \"Order\",\n"
		 "\"entity_id\": \"cust-42\", \"event_type\": \"OrderPlaced\", \"topic\": \"t\","
		 " \"headers\": {\"tenant\":\"acme\" },\t\"traceparent\": \"00-1\","
		 "\"created_at\": \"2026-11-15T09:45:27.5+00:00\", \"payload\": { \"total\" : 9.90 }, \"price\": 9.90,"
		 " \"rush\": true} ");
	if (!s.ok)
		fail_msg("%s", s.err.message);
	assert_false(s.foreign);
	assert_field(&s, FIELD_ID, "16/B374D848");
	assert_field(&s, FIELD_ENTITY, "cust-42");
	assert_field(&s, FIELD_PAYLOAD, "{ \"total\" : 9.90 }");
	assert_field(&s, FIELD_MESSAGE_ID, "m-1");
	assert_field(&s, FIELD_ENTITY_TYPE, "Order");
	assert_field(&s, FIELD_EVENT_TYPE, "OrderPlaced");
	assert_field(&s, FIELD_HEADERS, "{\"tenant\":\"acme\" }");
	assert_field(&s, FIELD_TOPIC, "t");
	assert_field(&s, FIELD_CREATED_AT, "2026-11-15T09:45:27.5Z");
	assert_field(&s, FIELD_TRACEPARENT, "00-1");
	assert_field(&s, FIELD_EXTRA, "9.90");
	assert_field(&s, FIELD_EXTRA + 1, "true");
}

static void two_members_are_enough(void **state _unused_)
{
	_cleanup_(sent_release) struct sent s;

	send(&s, "{\"entity_id\":42,\"payload\":null}");
	assert_true(s.ok);
	for (int i = 0; i < WAL_MESSAGE_FIELDS; i++)
		assert_field(&s, i, i == FIELD_ID ? "16/B374D848" : i == FIELD_ENTITY ? "42" :
				    i == FIELD_PAYLOAD ? "null" : NULL);
}

static void a_payload_is_taken_byte_for_byte(void **state _unused_)
{
	static const char *const payloads[] = {
		"{}", "[]", "\"\"", "\"a\\u0041\\n\"", "-0.50e+3", "true", "false", "null", "[ 1 ,\n2 ]",
		"{\"a\":1,\"a\":2}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(payloads); i++) {
		_cleanup_(mem_freep) char *json = mem_printf("{\"payload\" : %s , \"entity_id\":\"\"}", payloads[i]);

		assert_taken(json, FIELD_PAYLOAD, payloads[i]);
		assert_taken(json, FIELD_ENTITY, "");
	}
}

static void a_payload_of_bytes_comes_in_base64(void **state _unused_)
{
	static const struct {
		const char *base64, *bytes;
	} good[] = {
		{ "", "" }, { "Zg==", "f" }, { "Zm8=", "fo" }, { "Zm9v", "foo" }, { "Zm9vYg==", "foob" },
		{ "Zm9v\\nYmFy\\n", "foobar" }, { "Zm9v\\u0059mFy", "foobar" }, { "+/+/", "\xfb\xff\xbf" },
	};
	static const char *const bad[] = {
		"\"Z\"", "\"Zg\"", "\"Zg=\"", "\"Zg===\"", "\"Z===\"", "\"====\"", "\"=\"", "\"Zg==Zg==\"", "\"Zm9-\"",
		"\"Zm9 v\"", "17", "null", "{}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		_cleanup_(mem_freep) char *json =
			mem_printf("{\"entity_id\":1,\"payload_base64\":\"%s\"}", good[i].base64);

		assert_taken(json, FIELD_PAYLOAD, good[i].bytes);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_(mem_freep) char *json = mem_printf("{\"entity_id\":1,\"payload_base64\":%s}", bad[i]);

		assert_refused(json, "member payload_base64 is not base64");
	}
}

static void a_large_message_arrives_whole(void **state _unused_)
{
	static const char before[] = "{\"entity_id\":1,\"payload\":\"", behind[] = "\"}";
	enum { SIZE = 5 * 1024 * 1024 };
	_cleanup_(sent_release) struct sent s;
	_cleanup_(buf_release) struct buf b;
	struct slice payload;

	buf_init(&b, 2 * SIZE);
	buf_add_str(&b, before);
	for (size_t i = 0; i < SIZE / 2; i++)
		buf_add_str(&b, "\xc3\xa9");
	buf_add_str(&b, behind);
	send_bytes(&s, (struct slice){ b.data, b.len });
	assert_true(s.ok);
	payload = s.message.fields[FIELD_PAYLOAD];
	assert_int_equal(payload.len, SIZE + 2);
	assert_memory_equal(payload.ptr, b.data + strlen(before) - 1, SIZE + 2);
}

#define WITH(member) "{\"entity_id\":1,\"payload\":{}," member "}"

static void members_are_text_without_escapes(void **state _unused_)
{
	assert_taken(WITH("\"topic\":\"a\\u0062\\\"\\n\\ud83d\\ude00\""), FIELD_TOPIC, "ab\"\n\xf0\x9f\x98\x80");
	assert_taken(WITH("\"top\\u0069c\":\"x\""), FIELD_TOPIC, "x");
	assert_taken(WITH("\"topic\":\"\""), FIELD_TOPIC, "");
	assert_taken(WITH("\"topic\":-1.50"), FIELD_TOPIC, "-1.50");
	assert_taken(WITH("\"topic\":null"), FIELD_TOPIC, NULL);
	assert_taken(WITH("\"headers\":null"), FIELD_HEADERS, NULL);
	assert_taken(WITH("\"headers\":{}"), FIELD_HEADERS, "{}");
	assert_taken(WITH("\"created_at\":null"), FIELD_CREATED_AT, NULL);
	assert_taken(WITH("\"created_at\":\"2026-11-15T09:45:27Z\""), FIELD_CREATED_AT, "2026-11-15T09:45:27Z");
	assert_taken(WITH("\"created_at\":\"2026-11-15T09:45:27+02:00\""), FIELD_CREATED_AT,
		     "2026-11-15T09:45:27+02:00");
	assert_taken(WITH("\"created_at\":\"2026-11-15 09:45:27+00\""), FIELD_CREATED_AT, "2026-11-15T09:45:27Z");
	assert_taken(WITH("\"price\":\"9.90\""), FIELD_EXTRA, "9.90");
	assert_taken(WITH("\"price\":null"), FIELD_EXTRA, NULL);
	assert_taken(WITH("\"price\":[1, 2]"), FIELD_EXTRA, "[1, 2]");
	assert_taken(WITH("\"outbox\":\"ord\\u0065rs\""), FIELD_ENTITY, "1");
	assert_taken(WITH("\"outbox\":null"), FIELD_ENTITY, "1");
}

static void members_that_are_not_what_they_should_be_are_refused(void **state _unused_)
{
	assert_refused("{}", "member entity_id is missing");
	assert_refused("{\"payload\":1}", "member entity_id is missing");
	assert_refused("{\"entity_id\":null,\"payload\":1}", "member entity_id is missing");
	assert_refused("{\"entity_id\":1}", "member payload is missing, and payload_base64 too");
	assert_refused("{\"entity_id\":true,\"payload\":1}", "member entity_id is neither text nor a number");
	assert_refused("{\"entity_id\":{},\"payload\":1}", "member entity_id is neither text nor a number");
	assert_refused(WITH("\"topic\":[]"), "member topic is neither text nor a number");
	assert_refused(WITH("\"topic\":false"), "member topic is neither text nor a number");
	assert_refused(WITH("\"outbox\":[]"), "member outbox is neither text nor a number");
	assert_refused(WITH("\"headers\":[]"), "member headers is not an object");
	assert_refused(WITH("\"headers\":\"{}\""), "member headers is not an object");
	assert_refused(WITH("\"created_at\":\"now\""), "member created_at is not a time such as 2026-11-15T09:45:27Z");
	assert_refused(WITH("\"created_at\":17"), "member created_at is not a time such as 2026-11-15T09:45:27Z");
	assert_refused(WITH("\"topci\":\"x\""), "member topci is unknown");
	assert_refused(WITH("\"id\":1"), "member id is unknown");
	assert_refused(WITH("\"\":1"), "member  is unknown");
	assert_refused(WITH("\"entity_id\":2"), "member entity_id is there twice");
	assert_refused(WITH("\"payload_base64\":\"\""), "member payload_base64 is there twice");
	/* The first one is told. */
	assert_refused("{\"a\":1,\"b\":2}", "member a is unknown");
}

static void what_is_no_object_is_refused_with_the_place(void **state _unused_)
{
	static const struct {
		const char *json, *place;
	} cases[] = {
		{ "", "byte 1: { was expected" },
		{ "heartbeat", "byte 1: { was expected" },
		{ "[]", "byte 1: { was expected" },
		{ "null", "byte 1: { was expected" },
		{ "{", "byte 2: a string was expected" },
		{ "{\"payload\"", "byte 11: a colon was expected" },
		{ "{\"payload\":", "byte 12: a digit was expected" },
		{ "{\"payload\":1", "byte 13: a comma was expected" },
		{ "{\"payload\":1,}", "byte 14: a string was expected" },
		{ "{\"payload\":1}}", "byte 14: something follows the object" },
		{ "{\"payload\":{\"a\":tru}}", "byte 17: not a JSON value" },
		{ "{\"topic\":\"\\u0000\"}", "byte 13: the character \\u0000" },
		{ "{\"topic\":\"\x01\"}", "byte 11: a control character in a string" },
		{ "{\"topic\":\"\xff\"}", "byte 11: not UTF-8" },
		{ "{\"topic\":\"\xc3", "byte 11: not UTF-8" },
		{ "{\"topic\":\"\xed\xa0\x80\"}", "byte 11: not UTF-8" },
		{ "{\"topic\":\"\xc0\xaf\"}", "byte 11: not UTF-8" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mem_freep) char *why = mem_printf("not a JSON object that can be used (%s)", cases[i].place);

		assert_refused(cases[i].json, why);
	}
}

static void every_beginning_of_a_message_is_refused(void **state _unused_)
{
	static const char whole[] = "{\"entity_id\":\"\\ud83d\\ude00\xc3\xa9\",\"payload\":[1.5e3,null,{\"a\":\"b\"}],"
				    "\"headers\":{}}";

	for (size_t len = 0; len < sizeof(whole); len++) {
		_cleanup_(mem_freep) char *copy = mem_strndup(whole, len);
		_cleanup_(sent_release) struct sent s;

		send_bytes(&s, (struct slice){ copy, len });
		assert_int_equal(s.ok, len == sizeof(whole) - 1);
	}
}

static void a_byte_of_zero_ends_nothing(void **state _unused_)
{
	static const char json[] = "{\"entity_id\":1,\"payload\":1}\0";
	_cleanup_(sent_release) struct sent s;

	send_bytes(&s, (struct slice){ json, sizeof(json) - 1 });
	assert_false(s.ok);
}

static void a_message_for_another_outbox_is_left_alone(void **state _unused_)
{
	static const char *const others[] = {
		WITH("\"outbox\":\"invoices\""), WITH("\"outbox\":\"\""), WITH("\"outbox\":\"Orders\""),
		/* Whatever else is wrong with it is not ours to judge: templates there may name other columns. */
		"{\"colour\":1,\"outbox\":\"invoices\"}", "{\"outbox\":\"invoices\"}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		_cleanup_(sent_release) struct sent s;

		send(&s, others[i]);
		assert_true(s.ok);
		assert_true(s.foreign);
		}
	assert_refused("{\"outbox\":\"others\"", "not a JSON object that can be used (byte 19: a comma was expected)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_are_fields),
		cmocka_unit_test(two_members_are_enough),
		cmocka_unit_test(a_payload_is_taken_byte_for_byte),
		cmocka_unit_test(a_payload_of_bytes_comes_in_base64),
		cmocka_unit_test(a_large_message_arrives_whole),
		cmocka_unit_test(members_are_text_without_escapes),
		cmocka_unit_test(members_that_are_not_what_they_should_be_are_refused),
		cmocka_unit_test(what_is_no_object_is_refused_with_the_place),
		cmocka_unit_test(every_beginning_of_a_message_is_refused),
		cmocka_unit_test(a_byte_of_zero_ends_nothing),
		cmocka_unit_test(a_message_for_another_outbox_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
