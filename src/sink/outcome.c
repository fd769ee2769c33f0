#include "sink/outcome.h"

/* One push for all of them; the worker sees them in the order of the array. */
static void post(struct outcomes *o, struct event *const events[], uint32_t n)
{
	if (n == 0)
		return;
	for (uint32_t i = 1; i < n; i++)
		events[i]->next = events[i - 1];
	mailbox_post_chain(o->box, events[n - 1], events[0]);
}

void outcomes_deliver(struct outcomes *o, struct event *const events[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		events[i]->failure = NULL;
	post(o, events, n);
}

void outcomes_fail(struct outcomes *o, struct event *const events[], uint32_t n, const struct error *why)
{
	for (uint32_t i = 0; i < n; i++)
		events[i]->failure = error_copy(why);
	o->failed = o->failed || n > 0;
	post(o, events, n);
}

void outcomes_failed_elsewhere(struct outcomes *o)
{
	o->failed = true;
}

bool outcomes_unread(struct outcomes *o)
{
	if (o->failed && !atomic_load_explicit(&o->box->newest, memory_order_relaxed))
		o->failed = false;
	return o->failed;
}
