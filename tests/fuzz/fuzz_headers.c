/* The parser of header objects against a JSON library: what one takes the other takes too, with the same headers, apart
 * from what they are meant to differ in (ceilings of ours; large numbers and broken encodings of theirs). */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "relay/headers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct header *find(const struct header_list *l, const char *name, size_t len)
{
	for (uint32_t i = 0; i < l->count; i++)
		if (slice_equal(l->items[i].name, (struct slice){ name, len }))
			return &l->items[i];
	abort();
}

static void compare_value(struct slice ours, const json_t *theirs)
{
	if ((ours.ptr == NULL) != json_is_null(theirs))
		abort();
	if (json_is_string(theirs) &&
	    !slice_equal(ours, (struct slice){ json_string_value(theirs), json_string_length(theirs) }))
		abort();
	if (json_is_boolean(theirs) && !slice_is(ours, json_is_true(theirs) ? "true" : "false"))
		abort();
	if (json_is_object(theirs) || json_is_array(theirs)) {
		_cleanup_(json_decrefp) json_t *again = json_loadb(ours.ptr, ours.len, 0, NULL);

		if (!json_equal(again, theirs))
			abort();
	}
}

static void compare(const struct header_list *l, json_t *object)
{
	const char *name;
	json_t *value;

	if (l->count != json_object_size(object))
		abort();
	json_object_foreach(object, name, value)
		compare_value(find(l, name, strlen(name))->value, value);
}

static bool theirs_alone(enum json_error_code code)
{
	return code == json_error_invalid_utf8 || code == json_error_numeric_overflow;
}

static bool ours_alone(const char *message)
{
	return strstr(message, "too many headers") || strstr(message, "nested too deeply");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(arena_release) struct arena arena = { 0 };
	struct slice text = { size ? (const char *)data : "", size };
	struct header_list l = { .items = arena_alloc(&arena, (headers_json_bound(text) + 1) * sizeof(struct header)) };
	struct error err;
	json_error_t theirs;
	_cleanup_(json_decrefp) json_t *object = json_loadb(text.ptr, text.len, JSON_DECODE_ANY, &theirs);
	bool taken = headers_from_json(text, &arena, &l, &err);

	/* A zero byte cannot come from PostgreSQL, and the library loses one behind a number. */
	if (memchr(text.ptr, '\0', text.len))
		return 0;
	if (taken && !object && !theirs_alone(json_error_code(&theirs)))
		abort();
	if (!taken && json_is_object(object) && !ours_alone(err.message))
		abort();
	if (taken && json_is_object(object))
		compare(&l, object);
	return 0;
}
