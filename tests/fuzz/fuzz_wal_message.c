/* Logical messages against a JSON library: what is taken is an object there too, and its payload the same value. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "read/wal_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void compare_text(struct slice ours, const json_t *theirs)
{
	if (json_is_string(theirs) &&
	    !slice_equal(ours, (struct slice){ json_string_value(theirs), json_string_length(theirs) }))
		abort();
}

static void compare_payload(struct slice ours, json_t *theirs)
{
	_cleanup_(json_decrefp) json_t *again = NULL;

	if (!theirs)
		return;
	again = json_loadb(ours.ptr, ours.len, JSON_DECODE_ANY, NULL);
	if (!again || !json_equal(again, theirs))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct table_column extra = { .name = (char *)"region", .quoted = (char *)"region", .type = (char *)"text" };
	struct table table = { .name = (char *)"public.outbox", .extra = &extra, .n_extra = 1 };
	_cleanup_(wal_message_release) struct wal_message m = { 0 };
	struct slice text = { size ? (const char *)data : "", size };
	struct error err = { 0 };
	json_error_t why;
	_cleanup_(json_decrefp) json_t *object = json_loadb(text.ptr, text.len, 0, &why);
	bool foreign = false, taken = wal_message_read(&m, &table, text, "orders", 4711, &foreign, &err);

	if (!taken && (err.kind != ERROR_REJECTED || err.message[0] == '\0'))
		abort();
	/* The library takes no numbers that a double cannot hold. */
	if (!taken || foreign || !object)
		return 0;
	if (!json_is_object(object))
		abort();
	compare_text(m.fields[FIELD_ENTITY], json_object_get(object, "entity_id"));
	compare_text(m.fields[FIELD_EVENT_TYPE], json_object_get(object, "event_type"));
	compare_payload(m.fields[FIELD_PAYLOAD], json_object_get(object, "payload"));
	return 0;
}
