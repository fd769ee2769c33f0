#include "sink/only.h"

#include "base/glob.h"

/* A row that says nothing is one that says nothing at all: `*` fits it. */
static bool fits(const char *patterns, struct slice text)
{
	return patterns[0] == '\0' || glob_matches(patterns, text);
}

/* A header that is given twice fits when one of its values does. */
static bool has_header(const struct config_pair *wanted, const struct event *ev)
{
	for (uint32_t i = 0; i < ev->n_headers; i++)
		if (slice_is(ev->headers[i].name, wanted->key) && fits(wanted->value, ev->headers[i].value))
			return true;
	return false;
}

bool only_takes(const struct only_config *only, const struct event *ev)
{
	for (size_t i = 0; i < only->headers.count; i++)
		if (!has_header(&only->headers.pairs[i], ev))
			return false;
	return fits(only->event_type, ev->event_type) && fits(only->topic, ev->topic);
}
