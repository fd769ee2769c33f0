#include "config/shard_list.h"

#include <ctype.h>
#include <stdlib.h>

static const char *skip_spaces(const char *p)
{
	while (isspace((unsigned char)*p))
		p++;
	return p;
}

static const char *number(const char *p, uint32_t count, uint32_t *ret)
{
	char *end;
	unsigned long value;

	p = skip_spaces(p);
	if (!isdigit((unsigned char)*p))
		return NULL;
	value = strtoul(p, &end, 10);
	if (value >= count)
		return NULL;
	*ret = (uint32_t)value;
	return skip_spaces(end);
}

bool shard_list_parse(const char *text, uint32_t count, bool *ret)
{
	const char *p = text;

	for (;;) {
		uint32_t first, last;

		if (!(p = number(p, count, &first)))
			return false;
		last = first;
		if (*p == '-' && !(p = number(p + 1, count, &last)))
			return false;
		if (last < first)
			return false;
		for (uint32_t i = first; ret && i <= last; i++)
			ret[i] = true;
		if (*p == '\0')
			return true;
		if (*p++ != ',')
			return false;
	}
}
