#include "read/recent.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"

enum { FIRST_ROOM = 256 };

static uint64_t hash_of(enum recent_kind kind, struct slice what)
{
	uint64_t h = hash_bytes((uint64_t)kind, what);

	return h ? h : 1;
}

void recent_release(struct recent *r)
{
	free(r->entries);
	*r = (struct recent){ 0 };
}

/* Its entry, or the empty place for it. */
static struct recent_entry *place_of(const struct recent *r, uint64_t hash)
{
	uint32_t i = (uint32_t)hash & (r->room - 1);

	while (r->entries[i].hash && r->entries[i].hash != hash)
		i = (i + 1) & (r->room - 1);
	return &r->entries[i];
}

/* Into another table that has room enough; what is too old stays behind. */
static void move(struct recent *r)
{
	struct recent old = *r;
	uint32_t live = 0;

	for (uint32_t i = 0; i < old.room; i++)
		live += old.entries[i].hash && old.entries[i].round >= old.oldest;
	r->room = FIRST_ROOM;
	while (r->room < 4 * (live + 1))
		r->room *= 2;
	r->entries = mem_new_array(struct recent_entry, r->room);
	r->used = live;
	for (uint32_t i = 0; i < old.room; i++)
		if (old.entries[i].hash && old.entries[i].round >= old.oldest)
			*place_of(r, old.entries[i].hash) = old.entries[i];
	free(old.entries);
}

void recent_note(struct recent *r, enum recent_kind kind, struct slice what, uint64_t round)
{
	uint64_t hash = hash_of(kind, what);
	struct recent_entry *e;

	if (2 * (r->used + 1) > r->room)
		move(r);
	e = place_of(r, hash);
	r->used += e->hash == 0;
	*e = (struct recent_entry){ hash, round };
}

bool recent_since(const struct recent *r, enum recent_kind kind, struct slice what, uint64_t round)
{
	const struct recent_entry *e;

	if (r->used == 0)
		return false;
	e = place_of(r, hash_of(kind, what));
	return e->hash && e->round > round;
}

void recent_forget(struct recent *r, uint64_t before_round)
{
	r->oldest = before_round;
}
