#include "sink/nats_message.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"

#define MESSAGE_ID "Nats-Msg-Id"
#define EXPECTED_STREAM "Nats-Expected-Stream"

/* Those that are ours to set: a row's own would break delivery. */
static bool is_ours(struct slice name)
{
	return slice_is(name, MESSAGE_ID) || slice_is(name, EXPECTED_STREAM) || slice_is(name, NATS_KEY_HEADER);
}

/* As NATS defines them: what can be printed of ASCII, but for the colon. */
static bool is_name(struct slice name)
{
	for (size_t i = 0; i < name.len; i++)
		if (name.ptr[i] <= ' ' || name.ptr[i] > '~' || name.ptr[i] == ':')
			return false;
	return name.len > 0;
}

/* libnats takes text up to a NUL and would turn the end of a line into a blank. */
static bool is_line(struct slice value)
{
	for (size_t i = 0; i < value.len; i++)
		if (value.ptr[i] == '\0' || value.ptr[i] == '\r' || value.ptr[i] == '\n')
			return false;
	return true;
}

static bool add_header(natsMsg *msg, struct slice name, struct slice value, struct buf *scratch, struct error *err)
{
	size_t second = name.len + 1;

	if (!is_name(name))
		return error_set(err, ERROR_REJECTED, "%.*s is not a name that a header of NATS can have", (int)MIN(name.len, 100),
				 name.ptr);
	if (!is_line(value))
		return error_set(err, ERROR_REJECTED, "the value for header %.*s has more than one line, which NATS does not allow",
				 (int)MIN(name.len, 100), name.ptr);
	buf_clear(scratch);
	buf_add_slice(scratch, name);
	buf_add_char(scratch, '\0');
	buf_add_slice(scratch, value);
	mem_must(natsMsgHeader_Add(msg, buf_str(scratch), buf_str(scratch) + second) == NATS_OK);
	return true;
}

static bool add_headers(natsMsg *msg, const struct event *ev, const char *stream, struct buf *scratch, struct error *err)
{
	for (uint32_t i = 0; i < ev->n_headers; i++)
		if (!is_ours(ev->headers[i].name) &&
		    !add_header(msg, ev->headers[i].name, ev->headers[i].value, scratch, err))
			return false;
	return add_header(msg, slice_of(MESSAGE_ID), ev->message_id, scratch, err) &&
	       (!ev->key.ptr || add_header(msg, slice_of(NATS_KEY_HEADER), ev->key, scratch, err)) &&
	       (!stream[0] || add_header(msg, slice_of(EXPECTED_STREAM), slice_of(stream), scratch, err));
}

bool nats_message_build(const struct event *ev, const char *reply, const char *stream, struct buf *scratch, natsMsg **ret,
			struct error *err)
{
	natsMsg *msg;

	if (ev->payload.len > INT_MAX / 2)
		return error_set(err, ERROR_REJECTED, "a payload of %zu bytes is more than NATS can carry", ev->payload.len);
	buf_clear(scratch);
	buf_add_slice(scratch, ev->topic);
	mem_must(natsMsg_Create(&msg, buf_str(scratch), reply, ev->payload.ptr, (int)ev->payload.len) == NATS_OK);
	if (!add_headers(msg, ev, stream, scratch, err)) {
		natsMsg_Destroy(msg);
		return false;
	}
	*ret = msg;
	return true;
}
