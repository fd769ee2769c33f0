#include "verify/words.h"

#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/macros.h"
#include "base/mem.h"

/* A part of the hash stands beside the number, so that a look-up seldom touches a string that is not the one. */
struct words_slot {
	uint32_t hash;
	uint32_t number;
};

enum { SLOTS_AT_FIRST = 64, ENDS_AT_FIRST = 32, BYTES_AT_FIRST = 1024 };

void words_init(struct words *w)
{
	*w = (struct words){ .seed = random_seed() };
}

void words_release(struct words *w)
{
	free(w->bytes);
	free(w->ends);
	free(w->slots);
	*w = (struct words){ 0 };
}

static uint32_t hash_of(const struct words *w, struct slice s)
{
	uint64_t state = w->seed ^ s.len, hash = 0;

	while (s.len > 0) {
		uint64_t piece = 0;
		size_t n = MIN(s.len, sizeof(piece));

		memcpy(&piece, s.ptr, n);
		state ^= piece;
		hash = random_next(&state);
		state ^= hash;
		s.ptr += n;
		s.len -= n;
	}
	return (uint32_t)(hash >> 32);
}

struct slice words_get(const struct words *w, uint32_t number)
{
	size_t from = number ? w->ends[number - 1] : 0;

	return (struct slice){ w->bytes + from, w->ends[number] - from };
}

/* The slot of the string, or the free one where it belongs. There is always a free one. */
static struct words_slot *slot_of(const struct words *w, struct slice s, uint32_t hash)
{
	uint32_t i = hash & (w->n_slots - 1);

	while (w->slots[i].number != WORDS_NONE &&
	       (w->slots[i].hash != hash || !slice_equal(words_get(w, w->slots[i].number), s)))
		i = (i + 1) & (w->n_slots - 1);
	return &w->slots[i];
}

static void make_slots(struct words *w, uint32_t n)
{
	w->n_slots = n;
	w->slots = mem_new_array(struct words_slot, n);
	for (uint32_t i = 0; i < n; i++)
		w->slots[i].number = WORDS_NONE;
}

/* Hashes are kept, so no string is looked at. */
static void widen(struct words *w)
{
	_cleanup_(mem_freep) struct words_slot *old = w->slots;
	uint32_t n_old = w->n_slots;

	make_slots(w, n_old ? 2 * n_old : SLOTS_AT_FIRST);
	for (uint32_t i = 0; i < n_old; i++) {
		uint32_t at = old[i].hash & (w->n_slots - 1);

		if (old[i].number == WORDS_NONE)
			continue;
		while (w->slots[at].number != WORDS_NONE)
			at = (at + 1) & (w->n_slots - 1);
		w->slots[at] = old[i];
	}
}

static void append(struct words *w, struct slice s)
{
	size_t used = w->count ? w->ends[w->count - 1] : 0;

	if (w->count == w->ends_room) {
		w->ends_room = w->ends_room ? 2 * w->ends_room : ENDS_AT_FIRST;
		w->ends = mem_resize(w->ends, w->ends_room * sizeof(*w->ends));
	}
	if (!w->bytes || w->room - used < s.len) {
		w->room = MAX(2 * w->room, used + s.len + BYTES_AT_FIRST);
		w->bytes = mem_resize(w->bytes, w->room);
	}
	if (s.len > 0)
		memcpy(w->bytes + used, s.ptr, s.len);
	w->ends[w->count++] = used + s.len;
}

uint32_t words_add(struct words *w, struct slice s, bool *ret_new)
{
	uint32_t hash = hash_of(w, s);
	struct words_slot *slot;

	/* At most three quarters full. */
	if (w->count >= w->n_slots / 4 * 3)
		widen(w);
	slot = slot_of(w, s, hash);
	*ret_new = slot->number == WORDS_NONE;
	if (*ret_new) {
		*slot = (struct words_slot){ hash, w->count };
		append(w, s);
	}
	return slot->number;
}

uint32_t words_find(const struct words *w, struct slice s)
{
	return w->n_slots ? slot_of(w, s, hash_of(w, s))->number : WORDS_NONE;
}
