#include "base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *or_die(void *p)
{
	if (!p) {
		fputs("postrider: out of memory\n", stderr);
		abort();
	}
	return p;
}

void *mem_alloc(size_t size)
{
	return or_die(calloc(1, size ? size : 1));
}

void *mem_alloc_array(size_t size, size_t n)
{
	return or_die(calloc(n ? n : 1, size));
}

void *mem_resize(void *old, size_t size)
{
	return or_die(realloc(old, size ? size : 1));
}

char *mem_strdup(const char *s)
{
	return s ? or_die(strdup(s)) : NULL;
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
	return or_die(out);
}

void mem_freep(void *pointer_to_pointer)
{
	void **p = pointer_to_pointer;

	free(*p);
	*p = NULL;
}
