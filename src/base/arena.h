/* Memory that is freed all at once: the parts of a batch live exactly as long as the batch. */
#ifndef POSTRIDER_BASE_ARENA_H
#define POSTRIDER_BASE_ARENA_H

#include <stddef.h>

#include "base/slice.h"

struct arena {
	struct arena_block *blocks;
	char *next;
	size_t left;
};

void arena_init(struct arena *a);
void arena_release(struct arena *a);
void *arena_alloc(struct arena *a, size_t size);        /* zeroed, aligned for any type */
struct slice arena_copy(struct arena *a, struct slice s);

#endif
