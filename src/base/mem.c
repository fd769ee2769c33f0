#include "base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mem_must(bool has_memory)
{
	if (has_memory)
		return;
	fputs("postrider: out of memory\n", stderr);
	abort();
}

static void *must(void *p)
{
	mem_must(p);
	return p;
}

void *mem_alloc(size_t size)
{
	return must(calloc(1, size ? size : 1));
}

void *mem_alloc_array(size_t size, size_t n)
{
	return must(calloc(n ? n : 1, size));
}

void *mem_resize(void *old, size_t size)
{
	return must(realloc(old, size ? size : 1));
}

void *mem_one_more(void *list, uint32_t n, uint32_t *room, size_t element_size)
{
	if (n < *room)
		return list;
	*room = *room > 0 ? 2 * *room : 16;
	return mem_resize(list, *room * element_size);
}

char *mem_strdup(const char *s)
{
	return s ? must(strdup(s)) : NULL;
}

char *mem_strndup(const char *s, size_t len)
{
	char *copy = mem_alloc(len + 1);

	if (len)
		memcpy(copy, s, len);
	return copy;
}

char *mem_printf(const char *fmt, ...)
{
	va_list ap;
	char *out = NULL;

	va_start(ap, fmt);
	if (vasprintf(&out, fmt, ap) < 0)
		out = NULL;
	va_end(ap);
	return must(out);
}

void mem_freep(void *pointer_to_pointer)
{
	void **p = pointer_to_pointer;

	free(*p);
	*p = NULL;
}
