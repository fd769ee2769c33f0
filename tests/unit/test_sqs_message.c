/* An event as an entry of a batch, read back by another JSON library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sink/sqs_batch.h"
#include "sink/sqs_message.h"

static json_t *entry_of(const struct event *ev, bool fifo, size_t *ret_bytes)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 16 << 20 };
	json_error_t error;
	size_t bytes = buf_add_sqs_entry(&b, ev, 7, fifo);
	json_t *entry = json_loadb(buf_str(&b), b.len, 0, &error);

	assert_non_null(entry);
	assert_string_equal(json_string_value(json_object_get(entry, "Id")), "7");
	if (ret_bytes)
		*ret_bytes = bytes;
	return entry;
}

static const char *text_of(const json_t *entry, const char *member)
{
	return json_string_value(json_object_get(entry, member));
}

/* NULL: there is none. */
static const char *attribute_of(const json_t *entry, const char *name)
{
	const json_t *attribute = json_object_get(json_object_get(entry, "MessageAttributes"), name);

	if (attribute)
		assert_string_equal(text_of(attribute, "DataType"), "String");
	return attribute ? text_of(attribute, "StringValue") : NULL;
}

static size_t attributes_of(const json_t *entry)
{
	return json_object_size(json_object_get(entry, "MessageAttributes"));
}

static void text_is_the_body_as_it_is(void **state _unused_)
{
	struct event ev = { .message_id = SLICE_LITERAL("m-1"),
			    .key = SLICE_LITERAL("k"),
			    .payload = SLICE_LITERAL("gr\xc3\xbc\xc3\x9f" "e\n\"") };
	size_t bytes;
	json_t *entry = entry_of(&ev, false, &bytes);

	assert_string_equal(text_of(entry, "MessageBody"), "gr\xc3\xbc\xc3\x9f" "e\n\"");
	assert_string_equal(attribute_of(entry, "id"), "m-1");
	assert_string_equal(attribute_of(entry, "postrider-key"), "k");
	assert_null(attribute_of(entry, "postrider-encoding"));
	assert_null(text_of(entry, "MessageGroupId"));
	/* body, then name, type and value of each attribute */
	assert_int_equal(bytes, 9 + (2 + 6 + 3) + (13 + 6 + 1));
	json_decref(entry);
}

static const struct {
	const char *name;
	struct slice payload;
	const char *body, *encoding;
} payloads[] = {
	{ "bytes", { "\xff\xfe\0", 3 }, "//4A", "base64" },
	{ "a control character", { "a\x01", 2 }, "YQE=", "base64" },
	{ "U+FFFF", { "\xef\xbf\xbf", 3 }, "77+/", "base64" },
	{ "nothing", { "", 0 }, "-", "empty" },
	{ "NULL", { NULL, 0 }, "-", "null" },
};

static void what_is_no_text_is_encoded_and_says_so(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(payloads); i++) {
		struct event ev = { .message_id = SLICE_LITERAL("m"), .payload = payloads[i].payload };
		json_t *entry = entry_of(&ev, false, NULL);

		print_message("%s\n", payloads[i].name);
		assert_string_equal(text_of(entry, "MessageBody"), payloads[i].body);
		assert_string_equal(attribute_of(entry, "postrider-encoding"), payloads[i].encoding);
		json_decref(entry);
	}
}

static void ten_attributes_go_by_themselves(void **state _unused_)
{
	struct header headers[9];
	struct event ev = { .message_id = SLICE_LITERAL("m"), .payload = SLICE_LITERAL("{}"), .headers = headers, .n_headers = 9 };
	char names[9][4];
	json_t *entry;

	for (int i = 0; i < 9; i++) {
		snprintf(names[i], sizeof(names[i]), "h%d", i);
		headers[i] = (struct header){ slice_of(names[i]), SLICE_LITERAL("v") };
	}
	entry = entry_of(&ev, false, NULL);
	assert_int_equal(attributes_of(entry), 10);
	assert_null(attribute_of(entry, "postrider-headers"));
	assert_string_equal(attribute_of(entry, "h8"), "v");
	json_decref(entry);

	ev.key = SLICE_LITERAL("one more");
	entry = entry_of(&ev, false, NULL);
	assert_int_equal(attributes_of(entry), 10);
	assert_string_equal(attribute_of(entry, "h6"), "v");
	assert_string_equal(attribute_of(entry, "postrider-headers"), "{\"h7\":\"v\",\"h8\":\"v\"}");
	json_decref(entry);
}

static void what_cannot_be_an_attribute_is_packed(void **state _unused_)
{
	struct header headers[] = {
		{ SLICE_LITERAL("fine"), SLICE_LITERAL("1") },
		{ SLICE_LITERAL("no value"), SLICE_LITERAL("2") },
		{ SLICE_LITERAL("empty"), SLICE_LITERAL("") },
		{ SLICE_LITERAL("null"), SLICE_NULL },
		{ SLICE_LITERAL("control"), SLICE_LITERAL("a\x01" "b") },
		{ SLICE_LITERAL("noncharacter"), SLICE_LITERAL("\xef\xbf\xbe\xef\xbf\xbf") },
		{ SLICE_LITERAL("AWS.trace"), SLICE_LITERAL("3") },
		{ SLICE_LITERAL("a..b"), SLICE_LITERAL("4") },
		{ SLICE_LITERAL(".c"), SLICE_LITERAL("5") },
		{ SLICE_LITERAL("id"), SLICE_LITERAL("ours wins") },
	};
	struct event ev = { .message_id = SLICE_LITERAL("m"),
			    .payload = SLICE_LITERAL("{}"),
			    .headers = headers,
			    .n_headers = ARRAY_SIZE(headers) };
	json_t *entry = entry_of(&ev, false, NULL);

	assert_int_equal(attributes_of(entry), 3);
	assert_string_equal(attribute_of(entry, "id"), "m");
	assert_string_equal(attribute_of(entry, "fine"), "1");
	assert_string_equal(attribute_of(entry, "postrider-headers"),
			    "{\"no value\":\"2\",\"empty\":\"\",\"null\":null,\"control\":\"a\\u0001b\","
			    "\"noncharacter\":\"\\ufffe\\uffff\",\"AWS.trace\":\"3\",\"a..b\":\"4\",\".c\":\"5\"}");
	assert_true(sqs_text_is_allowed(slice_of(attribute_of(entry, "postrider-headers"))));
	json_decref(entry);
}

static void expect_group(struct slice key, struct slice entity, const char *group)
{
	struct event ev = { .message_id = SLICE_LITERAL("m"), .key = key, .entity = entity, .payload = SLICE_LITERAL("{}") };
	json_t *entry = entry_of(&ev, true, NULL);

	assert_string_equal(text_of(entry, "MessageGroupId"), group);
	assert_string_equal(text_of(entry, "MessageDeduplicationId"), "m");
	json_decref(entry);
}

static void a_group_is_the_key_or_the_entity_or_its_hash(void **state _unused_)
{
	char longest[129];

	memset(longest, 'g', sizeof(longest));
	expect_group(SLICE_LITERAL("key"), SLICE_LITERAL("entity"), "key");
	expect_group(SLICE_NULL, SLICE_LITERAL("entity"), "entity");
	expect_group(SLICE_LITERAL(""), SLICE_LITERAL("entity"), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	expect_group(SLICE_NULL, SLICE_NULL, "m");
	expect_group(SLICE_LITERAL("a b"), SLICE_NULL, "c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65");
	longest[128] = '\0';
	expect_group((struct slice){ longest, 128 }, SLICE_NULL, longest);
	longest[128] = 'g';
	expect_group((struct slice){ longest, 129 }, SLICE_NULL, "80520860c37c5447e73bd1b8784b65095786b0690cfaf6de78527d3d6456980f");
}

/* --- batches -------------------------------------------------------------------------------------------------- */

struct queue_fixture {
	struct mailbox box;
	struct outcomes outcomes;
	struct sqs_queues queues;
	struct sqs_queue *queue;
	struct sqs_batch batch;
};

static int setup(void **state)
{
	struct queue_fixture *f = test_calloc(1, sizeof(*f));

	mailbox_init(&f->box);
	f->outcomes.box = &f->box;
	f->queue = sqs_queues_find(&f->queues, SLICE_LITERAL("https://sqs.example.com/1/q"));
	sqs_batch_init(&f->batch);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct queue_fixture *f = *state;

	sqs_queue_drop(&f->queues, f->queue, f->queue->n_waiting);
	sqs_queues_release(&f->queues);
	sqs_batch_release(&f->batch);
	mailbox_release(&f->box);
	test_free(f);
	return 0;
}

static void push(struct queue_fixture *f, struct event events[], uint32_t n, struct slice payload)
{
	for (uint32_t i = 0; i < n; i++) {
		events[i] = (struct event){ .message_id = SLICE_LITERAL("m"), .payload = payload };
		sqs_queue_push(&f->queues, f->queue, &events[i]);
	}
}

static void fill(struct queue_fixture *f, size_t max_bytes)
{
	sqs_batch_clear(&f->batch);
	sqs_batch_fill(&f->batch, &f->queues, f->queue, max_bytes, &f->outcomes);
}

static void a_batch_has_ten_entries_at_most(void **state)
{
	struct queue_fixture *f = *state;
	struct event events[12];
	json_t *body;

	push(f, events, 12, SLICE_LITERAL("x"));
	fill(f, 1024);
	assert_int_equal(f->batch.count, 10);
	body = json_loadb(buf_str(&f->batch.body), f->batch.body.len, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(body, "Entries")), 10);
	assert_string_equal(text_of(body, "QueueUrl"), "https://sqs.example.com/1/q");
	json_decref(body);
	fill(f, 1024);
	assert_int_equal(f->batch.count, 2);
	assert_ptr_equal(f->batch.events[0], &events[10]);
	fill(f, 1024);
	assert_int_equal(f->batch.count, 0);
}

/* Each message counts for 400 + 9. */
static void a_batch_counts_no_more_than_the_limit(void **state)
{
	struct queue_fixture *f = *state;
	struct event events[5];
	static char text[400];
	json_t *body;

	memset(text, 'x', sizeof(text));
	push(f, events, 5, (struct slice){ text, sizeof(text) });
	fill(f, 2 * 409);
	assert_int_equal(f->batch.count, 2);
	body = json_loadb(buf_str(&f->batch.body), f->batch.body.len, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(body, "Entries")), 2);
	json_decref(body);
	fill(f, 2 * 409 - 1);
	assert_int_equal(f->batch.count, 1);
	assert_int_equal(f->queue->n_waiting, 2);
}

static void a_message_that_is_too_large_is_refused_and_no_other(void **state)
{
	struct queue_fixture *f = *state;
	struct event events[3], *refused;
	static char text[1 << 20];

	memset(text, 'x', sizeof(text));
	push(f, events, 3, SLICE_LITERAL("x"));
	events[1].payload = (struct slice){ text, sizeof(text) - 8 };   /* attributes count, too */
	fill(f, 1 << 20);
	assert_int_equal(f->batch.count, 2);
	assert_ptr_equal(f->batch.events[1], &events[2]);
	refused = mailbox_take(&f->box);
	assert_ptr_equal(refused, &events[1]);
	assert_int_equal(refused->failure->kind, ERROR_REJECTED);
	assert_non_null(strstr(refused->failure->message, "1048577 bytes"));
	free(refused->failure);
}

static void one_that_is_to_be_alone_is(void **state)
{
	struct queue_fixture *f = *state;
	struct event events[3];

	push(f, events, 3, SLICE_LITERAL("x"));
	events[1].alone = true;
	for (int i = 0; i < 3; i++) {
		fill(f, 1024);
		assert_int_equal(f->batch.count, 1);
		assert_ptr_equal(f->batch.events[0], &events[i]);
	}
}

static void names_that_no_queue_can_have_are_known(void **state _unused_)
{
	assert_null(sqs_queue_fault(SLICE_LITERAL("orders-1_x")));
	assert_null(sqs_queue_fault(SLICE_LITERAL("orders.fifo")));
	assert_null(sqs_queue_fault(SLICE_LITERAL("https://sqs.eu-central-1.amazonaws.com/123456789012/orders")));
	assert_non_null(sqs_queue_fault(SLICE_LITERAL("")));
	assert_non_null(sqs_queue_fault(SLICE_LITERAL("outbox.event.Order")));
	assert_non_null(sqs_queue_fault(SLICE_LITERAL("two words")));
	assert_non_null(sqs_queue_fault(SLICE_LITERAL("http://a b")));
	assert_non_null(sqs_queue_fault(SLICE_LITERAL(
		"a2345678901234567890123456789012345678901234567890123456789012345678901234567890x")));
}

static void rows_that_come_back_are_ahead_of_others(void **state)
{
	struct queue_fixture *f = *state;
	struct event events[3], back[2];
	struct event *const again[] = { &back[0], &back[1] };

	push(f, events, 3, SLICE_LITERAL("x"));
	sqs_queue_push_front(&f->queues, f->queue, again, 2);
	assert_int_equal(f->queues.n_waiting, 5);
	assert_ptr_equal(f->queue->waiting[0], &back[0]);
	assert_ptr_equal(f->queue->waiting[1], &back[1]);
	assert_ptr_equal(f->queue->waiting[2], &events[0]);
	assert_ptr_equal(f->queue->waiting[4], &events[2]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_is_the_body_as_it_is),
		cmocka_unit_test(what_is_no_text_is_encoded_and_says_so),
		cmocka_unit_test(ten_attributes_go_by_themselves),
		cmocka_unit_test(what_cannot_be_an_attribute_is_packed),
		cmocka_unit_test(a_group_is_the_key_or_the_entity_or_its_hash),
		cmocka_unit_test(names_that_no_queue_can_have_are_known),
		cmocka_unit_test_setup_teardown(a_batch_has_ten_entries_at_most, setup, teardown),
		cmocka_unit_test_setup_teardown(a_batch_counts_no_more_than_the_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(a_message_that_is_too_large_is_refused_and_no_other, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_is_to_be_alone_is, setup, teardown),
		cmocka_unit_test_setup_teardown(rows_that_come_back_are_ahead_of_others, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
