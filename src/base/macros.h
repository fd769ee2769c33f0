/* Small language helpers used everywhere: cleanup attributes, ownership moves, array sizes. */
#ifndef POSTRIDER_BASE_MACROS_H
#define POSTRIDER_BASE_MACROS_H

#include <stddef.h>

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _printf_(fmt, first) __attribute__((format(printf, fmt, first)))
#define _unused_ __attribute__((unused))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* The value of `p`, which no longer owns it. */
#define TAKE_PTR(p)                 \
	({                          \
		typeof(p) p_ = (p); \
		(p) = NULL;         \
		p_;                 \
	})

#endif
