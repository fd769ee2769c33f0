/* Any text is either refused with a place and a reason, or expands to what its holes and plain text add up to. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"
#include "relay/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VALUES 4

struct holes {
	size_t length;                  /* of all values that holes stand for */
	bool null;
};

static const struct slice values[VALUES] = { { "Order", 5 }, { "17", 2 }, { "", 0 }, { NULL, 0 } };

static bool resolve(void *context, const char *name, uint32_t *ret, struct error *err)
{
	struct holes *holes = context;
	uint32_t number = (uint32_t)(unsigned char)name[0] % (VALUES + 1);

	if (!*name || strlen(name) > TEMPLATE_NAME_MAX)
		abort();
	if (number == VALUES)
		return error_set(err, ERROR_CONFIG, "there is no %s", name);
	holes->length += values[number].len;
	holes->null |= !values[number].ptr;
	*ret = number;
	return true;
}

static void check_expansion(const struct template *t, const struct holes *holes, size_t text_len)
{
	_cleanup_(arena_release) struct arena arena = { 0 };
	struct slice s = template_expand(t, values, &arena);
	const char *constant = template_constant(t);

	if ((s.ptr == NULL) != holes->null || (template_missing(t, values) != NULL) != holes->null)
		abort();
	if (s.ptr && (s.len < holes->length || s.len > holes->length + text_len))
		abort();
	if (constant && !slice_is(s, constant))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(mem_freep) char *text = mem_strndup((const char *)data, size);
	_cleanup_(template_freep) struct template *t = NULL;
	struct holes holes = { 0 };
	struct error err = { 0 };

	if (template_compile(text, resolve, &holes, &t, &err))
		check_expansion(t, &holes, strlen(text));
	else if (err.kind != ERROR_CONFIG || strncmp(err.message, "character ", 10) != 0)
		abort();
	return 0;
}
