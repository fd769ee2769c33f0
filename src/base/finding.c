#include "base/finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

void finding_add(struct finding_list *l, enum finding_level level, const char *fix, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	l->items = mem_resize(l->items, (l->count + 1) * sizeof(*l->items));
	l->items[l->count++] = (struct finding){ level, mem_strdup(text), mem_strdup(fix) };
}

void finding_add_error(struct finding_list *l, const struct error *err)
{
	finding_add(l, FINDING_FAIL, err->hint[0] ? err->hint : NULL, "%s", err->message);
}

bool finding_any(const struct finding_list *l, enum finding_level level)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->items[i].level == level)
			return true;
	return false;
}

void finding_release(struct finding_list *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->items[i].what);
		free(l->items[i].fix);
	}
	free(l->items);
	*l = (struct finding_list){ 0 };
}
