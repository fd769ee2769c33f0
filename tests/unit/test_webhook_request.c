#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"
#include "base/mem.h"
#include "sink/webhook_request.h"

static struct webhook_config config = {
	.url = (char *)"https://hooks.example.com/in/{topic}?t={topic}",
	.content_type = (char *)"application/json",
	.header_prefix = (char *)"postrider-",
};

struct built {
	struct webhook_request memory;
	struct http_request request;
	struct error err;
	bool ok;
};

static struct event row(struct header *headers, uint32_t n)
{
	return (struct event){
		.topic = slice_of("order"), .key = slice_of("17"), .message_id = slice_of("id-1"), .payload = slice_of("{}"),
		.headers = headers, .n_headers = n,
	};
}

static void build(struct built *b, const struct event *ev)
{
	struct webhook_keys keys = { 0 };

	webhook_request_init(&b->memory);
	b->ok = webhook_request_build(&b->memory, &config, &keys, ev, 1700000000, &b->request, &b->err);
}

static void release(struct built *b)
{
	webhook_request_release(&b->memory);
}

/* "Name: value" as a whole is among the lines. */
static bool has(const struct built *b, const char *line)
{
	for (uint32_t i = 0; i < b->request.n_headers; i++)
		if (strcmp(b->request.headers[i], line) == 0)
			return true;
	return false;
}

static bool has_name(const struct built *b, const char *beginning)
{
	for (uint32_t i = 0; i < b->request.n_headers; i++)
		if (strncasecmp(b->request.headers[i], beginning, strlen(beginning)) == 0)
			return true;
	return false;
}

static void it_has_all_of_the_event(void **state _unused_)
{
	struct header headers[] = {
		{ slice_of("tenant"), slice_of("acme") },       { slice_of("created_at"), slice_of("now") },
		{ slice_of("empty"), SLICE_NULL },              { slice_of("traceparent"), slice_of("00-1-2-01") },
		{ slice_of("ce_type"), slice_of("changed") },   { slice_of("Content-Type"), slice_of("text/plain") },
		{ slice_of("host"), slice_of("evil") },         { slice_of("webhook-id"), slice_of("not this") },
	};
	struct event ev = row(headers, ARRAY_SIZE(headers));
	struct built b;

	build(&b, &ev);
	assert_true(b.ok);
	assert_string_equal(b.request.url, "https://hooks.example.com/in/order?t=order");
	assert_ptr_equal(b.request.body.ptr, ev.payload.ptr);
	assert_true(has(&b, "webhook-id: id-1"));
	assert_true(has(&b, "webhook-timestamp: 1700000000"));
	assert_true(has(&b, "postrider-tenant: acme"));
	assert_true(has(&b, "postrider-created-at: now"));
	assert_true(has(&b, "postrider-empty;"));
	assert_true(has(&b, "traceparent: 00-1-2-01"));
	assert_true(has(&b, "ce-type: changed"));
	assert_true(has(&b, "Content-Type: text/plain"));
	assert_true(has(&b, "postrider-key: 17"));
	assert_true(has(&b, "postrider-topic: order"));
	assert_true(has(&b, "postrider-host: evil"));
	assert_false(has_name(&b, "host"));
	assert_true(has(&b, "postrider-webhook-id: not this"));
	assert_false(has_name(&b, "postrider-payload"));
	release(&b);
}

static void a_null_payload_is_said_to_be_one(void **state _unused_)
{
	struct event ev = row(NULL, 0);
	struct built b;

	ev.payload = ev.key = SLICE_NULL;
	build(&b, &ev);
	assert_true(b.ok);
	assert_int_equal(b.request.body.len, 0);
	assert_true(has(&b, "postrider-payload: null"));
	assert_true(has(&b, "Content-Type: application/json"));
	assert_false(has_name(&b, "postrider-key"));
	release(&b);
}

static void nothing_ends_a_line_and_nothing_is_lost(void **state _unused_)
{
	struct header headers[] = {
		{ slice_of("a"), slice_of("x\r\nEvil: 1") }, { slice_of("b"), slice_of("Z\xc3\xbcrich 100%") },
		{ slice_of("c"), slice_of(" both ends ") },  { slice_of("d"), { "nul\0", 4 } },
		{ slice_of("e"), slice_of("\t\x7f\xff") },
	};
	struct event ev = row(headers, ARRAY_SIZE(headers));
	struct built b;

	ev.message_id = slice_of("id\r\nEvil: 1");
	ev.key = slice_of("\n");
	build(&b, &ev);
	assert_true(b.ok);
	assert_true(has(&b, "postrider-a: x%0D%0AEvil: 1"));
	assert_true(has(&b, "postrider-b: Z%C3%BCrich 100%25"));
	assert_true(has(&b, "postrider-c: %20both ends%20"));
	assert_true(has(&b, "postrider-d: nul%00"));
	assert_true(has(&b, "postrider-e: %09%7F%FF"));
	assert_true(has(&b, "webhook-id: id%0D%0AEvil: 1"));
	assert_true(has(&b, "postrider-key: %0A"));
	for (uint32_t i = 0; i < b.request.n_headers; i++)
		assert_null(strpbrk(b.request.headers[i], "\r\n"));
	release(&b);
}

static void what_is_no_name_is_refused(void **state _unused_)
{
	static const char *const names[] = { "", "a b", "a:b", "a\r\nb", "gr\303\274\303\237e", "a(b)", "\x7f" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct header header = { slice_of(names[i]), slice_of("1") };
		struct event ev = row(&header, 1);
		struct built b;

		build(&b, &ev);
		assert_false(b.ok);
		assert_int_equal(b.err.kind, ERROR_REJECTED);
		release(&b);
	}
}

static void a_topic_stays_one_part_of_the_url(void **state _unused_)
{
	struct event ev = row(NULL, 0);
	struct built b;

	ev.topic = slice_of("a/../b?c=d#\r\n \xc3\xbc");
	build(&b, &ev);
	assert_true(b.ok);
	assert_string_equal(b.request.url, "https://hooks.example.com/in/a%2F..%2Fb%3Fc%3Dd%23%0D%0A%20%C3%BC"
					   "?t=a%2F..%2Fb%3Fc%3Dd%23%0D%0A%20%C3%BC");
	release(&b);
	ev.topic = slice_of("..");
	build(&b, &ev);
	assert_false(b.ok);
	assert_int_equal(b.err.kind, ERROR_REJECTED);
	release(&b);
}

static void more_headers_than_anybody_reads_are_refused(void **state _unused_)
{
	size_t len = 2 << 20;
	_cleanup_(mem_freep) char *large = mem_alloc(len);
	struct header header = { slice_of("large"), { memset(large, 'x', len), len } };
	struct event ev = row(&header, 1);
	struct built b;

	build(&b, &ev);
	assert_false(b.ok);
	assert_int_equal(b.err.kind, ERROR_REJECTED);
	release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_has_all_of_the_event),
		cmocka_unit_test(a_null_payload_is_said_to_be_one),
		cmocka_unit_test(nothing_ends_a_line_and_nothing_is_lost),
		cmocka_unit_test(what_is_no_name_is_refused),
		cmocka_unit_test(a_topic_stays_one_part_of_the_url),
		cmocka_unit_test(more_headers_than_anybody_reads_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
