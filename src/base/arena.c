#include "base/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"

#define BLOCK_SIZE ((size_t)16 * 1024)

struct arena_block {
	struct arena_block *next;
	alignas(max_align_t) char data[];
};

void arena_init(struct arena *a)
{
	*a = (struct arena){ 0 };
}

void arena_release(struct arena *a)
{
	for (struct arena_block *b = a->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	*a = (struct arena){ 0 };
}

static struct arena_block *add_block(struct arena *a, size_t size)
{
	struct arena_block *b = mem_alloc(sizeof(*b) + size);

	b->next = a->blocks;
	a->blocks = b;
	return b;
}

void *arena_alloc(struct arena *a, size_t size)
{
	size_t step = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	void *p;

	/* Something large gets a block of its own, so that the current one is not thrown away half empty. */
	if (step > BLOCK_SIZE / 4)
		return add_block(a, step)->data;
	if (step > a->left) {
		a->next = add_block(a, BLOCK_SIZE)->data;
		a->left = BLOCK_SIZE;
	}
	p = a->next;
	a->next += step;
	a->left -= step;
	return p;
}

struct slice arena_copy(struct arena *a, struct slice s)
{
	char *copy;

	if (!s.ptr)
		return SLICE_NULL;
	copy = arena_alloc(a, s.len + 1);
	memcpy(copy, s.ptr, s.len);
	return (struct slice){ copy, s.len };
}
