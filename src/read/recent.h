/* Remembers what happened to rows and entities, and in which round, for as long as somebody may still hold older news of
 * them. By hashes of 64 bits: who is taken for another one is only looked at again later. */
#ifndef POSTRIDER_READ_RECENT_H
#define POSTRIDER_READ_RECENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum recent_kind { RECENT_ROW, RECENT_ENTITY };

struct recent {
	struct recent_entry {
		uint64_t hash;          /* 0: no entry */
		uint64_t round;
	} *entries;
	uint32_t room, used;            /* room is a power of two, or 0 */
	uint64_t oldest;                /* news older than this round is of no use to anybody */
};

void recent_release(struct recent *r);
void recent_note(struct recent *r, enum recent_kind kind, struct slice what, uint64_t round);
/* True when something was noted of it in a later round than this. */
bool recent_since(const struct recent *r, enum recent_kind kind, struct slice what, uint64_t round);
/* Nobody has anything from before this round any more. */
void recent_forget(struct recent *r, uint64_t before_round);

#endif
