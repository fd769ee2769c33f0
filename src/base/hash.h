/* FNV-1a, folded so that the low bits are good for tables too. Not for what an enemy may choose. */
#ifndef POSTRIDER_BASE_HASH_H
#define POSTRIDER_BASE_HASH_H

#include <stdint.h>

#include "base/slice.h"

/* Different kinds of things have different seeds; 0 will do for one. */
static inline uint64_t hash_bytes(uint64_t seed, struct slice s)
{
	uint64_t h = 0xCBF29CE484222325u ^ seed;

	for (size_t i = 0; i < s.len; i++)
		h = (h ^ (unsigned char)s.ptr[i]) * 0x100000001B3u;
	return h ^ (h >> 32);
}

#endif
