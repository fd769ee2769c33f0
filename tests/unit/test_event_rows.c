/* Sets of events for PostgreSQL, and what can be a queue: as far as no server is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "sink/event_rows.h"
#include "sink/sink.h"

extern const struct sink_driver sink_queue;

enum { MANY = 600 };

static uint32_t fit(size_t payload_bytes, uint32_t n)
{
	struct event ev = { .payload = { "", payload_bytes } };
	struct event *events[MANY];

	for (uint32_t i = 0; i < n; i++)
		events[i] = &ev;
	return event_rows_fit(events, n);
}

static void a_set_has_at_most_500_events(void **state _unused_)
{
	assert_int_equal(fit(10, 1), 1);
	assert_int_equal(fit(10, 500), 500);
	assert_int_equal(fit(10, MANY), 500);
}

static void a_set_has_at_most_8_mb_and_at_least_one_event(void **state _unused_)
{
	assert_int_equal(fit((1 << 20) - 256, MANY), 8);
	assert_int_equal(fit(1 << 20, MANY), 7);
	assert_int_equal(fit(100 << 20, MANY), 1);
}

static void what_no_set_can_have_is_refused_before_it_is_sent(void **state _unused_)
{
	static char bytes[1];
	struct event ev = { .payload = { bytes, (size_t)1 << 30 } };
	struct event *events[] = { &ev };
	struct event_rows rows;
	struct error err;

	event_rows_init(&rows);
	assert_false(event_rows_send(&rows, NULL, "none", EVENT_COLUMNS, 1u << EVENT_PAYLOAD, events, 1, &err));
	assert_int_equal(err.kind, ERROR_REJECTED);
	event_rows_release(&rows);
}

static void a_queue_has_a_name_of_1_to_255_bytes(void **state _unused_)
{
	char name[256];

	memset(name, 'q', sizeof(name));
	assert_string_equal(sink_queue.topic_fault((struct slice){ name, 0 }), "is empty");
	assert_null(sink_queue.topic_fault((struct slice){ name, 1 }));
	assert_null(sink_queue.topic_fault((struct slice){ name, 255 }));
	assert_string_equal(sink_queue.topic_fault((struct slice){ name, 256 }), "is longer than 255 bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_set_has_at_most_500_events),
		cmocka_unit_test(a_set_has_at_most_8_mb_and_at_least_one_event),
		cmocka_unit_test(what_no_set_can_have_is_refused_before_it_is_sent),
		cmocka_unit_test(a_queue_has_a_name_of_1_to_255_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
