#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <stdint.h>
#include <poll.h>
#include <cmocka.h>

#include "base/mem.h"
#include "relay/mailbox.h"

enum { SENDERS = 4, EACH = 50000 };

struct sender {
	pthread_t thread;
	struct mailbox *box;
	struct event *events;
};

static void *send_all(void *arg)
{
	struct sender *s = arg;

	for (int i = 0; i < EACH; i++)
		mailbox_post(s->box, &s->events[i]);
	return NULL;
}

static void every_event_arrives_once_and_each_senders_in_order(void **state _unused_)
{
	struct mailbox box;
	struct sender senders[SENDERS];
	int received = 0, next[SENDERS] = { 0 };

	mailbox_init(&box);
	for (int s = 0; s < SENDERS; s++) {
		senders[s].box = &box;
		senders[s].events = mem_new_array(struct event, EACH);
		for (int i = 0; i < EACH; i++) {
			senders[s].events[i].attempt = (uint32_t)i;
			senders[s].events[i].stage = (uint8_t)s;
		}
		pthread_create(&senders[s].thread, NULL, send_all, &senders[s]);
	}
	while (received < SENDERS * EACH) {
		struct pollfd p = { .fd = box.fd, .events = POLLIN };

		/* A wake-up that got lost would hang here. */
		assert_int_equal(poll(&p, 1, 10000), 1);
		for (struct event *ev = mailbox_take(&box); ev; ev = ev->next, received++)
			assert_int_equal(ev->attempt, next[ev->stage]++);
	}
	for (int s = 0; s < SENDERS; s++) {
		pthread_join(senders[s].thread, NULL);
		free(senders[s].events);
	}
	mailbox_release(&box);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_event_arrives_once_and_each_senders_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
