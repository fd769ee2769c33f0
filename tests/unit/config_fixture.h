/* Loading settings in a test, with the drivers of a full build. */
#ifndef POSTRIDER_TESTS_CONFIG_FIXTURE_H
#define POSTRIDER_TESTS_CONFIG_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "config/load.h"

#define SINK "    sinks: [{type: stdout}]\n"
#define OUTBOX "outboxes:\n  orders:\n"

static inline const char *sink_names(size_t i)
{
	static const char *const names[] = { "kafka", "postgres", "stdout" };

	return i < ARRAY_SIZE(names) ? names[i] : NULL;
}

static inline const char *reader_names(size_t i)
{
	return i == 0 ? "advisory" : NULL;
}

/* Everything that a load may say, one line each. The caller frees. */
static inline char *printed(const struct config_errors *errors)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	config_errors_print(errors, out);
	fclose(out);
	return text;
}

static inline bool load_request(const char *yaml, struct config_request req, struct config **ret, char **ret_errors)
{
	struct config_errors errors = { 0 };
	bool ok;

	req.readers = reader_names;
	req.sinks = sink_names;
	if (yaml) {
		req.path = "f.yaml";
		ok = config_load_text(yaml, strlen(yaml), &req, ret, &errors);
	} else {
		ok = config_load(&req, ret, &errors);
	}
	*ret_errors = printed(&errors);
	config_errors_release(&errors);
	return ok;
}

#endif
