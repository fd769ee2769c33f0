/* Bytes that somebody else owns. A NULL ptr is SQL's NULL; an empty value has a non-NULL ptr and length 0. */
#ifndef POSTRIDER_BASE_SLICE_H
#define POSTRIDER_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
	const char *ptr;
	size_t len;
};

#define SLICE_NULL ((struct slice){ NULL, 0 })
#define SLICE_LITERAL(s) ((struct slice){ "" s, sizeof(s) - 1 })

static inline struct slice slice_of(const char *s)
{
	return (struct slice){ s, s ? strlen(s) : 0 };
}

static inline bool slice_equal(struct slice a, struct slice b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* By bytes, as memcmp; the shorter of two that begin alike comes first. */
static inline int slice_compare(struct slice a, struct slice b)
{
	size_t common = a.len < b.len ? a.len : b.len;
	int order = common > 0 ? memcmp(a.ptr, b.ptr, common) : 0;

	return order ? order : (a.len > b.len) - (a.len < b.len);
}

static inline bool slice_is(struct slice a, const char *s)
{
	return slice_equal(a, slice_of(s));
}

#endif
