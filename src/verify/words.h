/* Distinct byte strings, numbered from 0 in the order in which they came: millions of ids in little more than their own
 * bytes. About 20 bytes for each string are added to it. */
#ifndef POSTRIDER_VERIFY_WORDS_H
#define POSTRIDER_VERIFY_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

#define WORDS_NONE UINT32_MAX

struct words_slot;

struct words {
	char *bytes;                    /* all strings, one behind the other */
	size_t room;
	uint64_t *ends;                 /* where each ends; it begins where the one before it ends */
	uint32_t count;
	uint32_t ends_room;
	struct words_slot *slots;       /* open addressing, a power of two */
	uint32_t n_slots;
	uint64_t seed;                  /* so that nobody can choose strings that collide */
};

void words_init(struct words *w);
void words_release(struct words *w);

/* The number of the string, new or not. */
uint32_t words_add(struct words *w, struct slice s, bool *ret_new);
/* WORDS_NONE when it is not there. */
uint32_t words_find(const struct words *w, struct slice s);
/* Valid until the next words_add. */
struct slice words_get(const struct words *w, uint32_t number);

#endif
