#include "sink/rabbitmq_confirms.h"

#include "base/macros.h"

static uint32_t slot_of(uint64_t tag)
{
	return (uint32_t)(tag % CONFIRMS_MAX);
}

void confirms_begin(struct confirms *c)
{
	*c = (struct confirms){ .oldest = 1, .next = 1, .returned_to = 1 };
}

/* Not the count alone: one that waits for its answer keeps the slots behind it from being used twice. */
bool confirms_has_room(const struct confirms *c, const struct event *ev)
{
	return c->next - c->oldest < CONFIRMS_MAX && (c->count == 0 || c->bytes + event_bytes(ev) <= CONFIRMS_MAX_BYTES);
}

void confirms_add(struct confirms *c, struct event *ev)
{
	c->events[slot_of(c->next)] = ev;
	c->returned[slot_of(c->next)] = false;
	c->next++;
	c->count++;
	c->bytes += event_bytes(ev);
}

bool confirms_return(struct confirms *c, struct slice message_id)
{
	for (uint64_t tag = MAX(c->oldest, c->returned_to); tag < c->next; tag++) {
		const struct event *ev = c->events[slot_of(tag)];

		if (!ev || !slice_equal(ev->message_id, message_id))
			continue;
		c->returned[slot_of(tag)] = true;
		c->returned_to = tag + 1;
		return true;
	}
	return false;
}

static struct event *take(struct confirms *c, uint64_t tag, bool *ret_returned)
{
	struct event *ev = c->events[slot_of(tag)];

	c->events[slot_of(tag)] = NULL;
	c->count--;
	c->bytes -= event_bytes(ev);
	*ret_returned = c->returned[slot_of(tag)];
	while (c->oldest < c->next && !c->events[slot_of(c->oldest)])
		c->oldest++;
	return ev;
}

struct event *confirms_settle(struct confirms *c, uint64_t tag, bool multiple, bool *ret_returned)
{
	/* AMQP's way to say "all". */
	if (multiple && tag == 0)
		tag = c->next - 1;
	if (tag < c->oldest || tag >= c->next)
		return NULL;
	if (multiple)
		return take(c, c->oldest, ret_returned);
	return c->events[slot_of(tag)] ? take(c, tag, ret_returned) : NULL;
}

struct event *confirms_abandon(struct confirms *c)
{
	bool ignored;

	return c->count > 0 ? take(c, c->oldest, &ignored) : NULL;
}
