#include "read/assign.h"

#include <string.h>

#include "base/hash.h"
#include "base/macros.h"

/* Everybody gets the same number, the first ones one more where that does not come out even. What a member has it keeps;
 * what is free it takes, beginning at a place of its own, so that those who come together do not all try the same. */
void assign_dynamic(const struct member *members _unused_, uint32_t n_members, uint32_t me, const int32_t *owners,
		    uint32_t n_shards, bool *wanted)
{
	uint32_t quota = n_shards / n_members + (me < n_shards % n_members);
	uint32_t start = (uint32_t)((uint64_t)me * n_shards / n_members), have = 0;

	memset(wanted, 0, n_shards * sizeof(*wanted));
	for (uint32_t i = 0; i < n_shards && have < quota; i++) {
		wanted[i] = owners[i] == (int32_t)me;
		have += wanted[i];
	}
	for (uint32_t i = 0; i < n_shards && have < quota; i++) {
		uint32_t shard = (start + i) % n_shards;

		if (owners[shard] != ASSIGN_NOBODY)
			continue;
		wanted[shard] = true;
		have++;
	}
}

static uint64_t mix(uint64_t h)
{
	h ^= h >> 33;
	h *= 0xFF51AFD7ED558CCDu;
	h ^= h >> 33;
	h *= 0xC4CEB9FE1A85EC53u;
	return h ^ (h >> 33);
}

static bool has_namesake(const struct member *members, uint32_t n, const struct member *m)
{
	for (uint32_t i = 0; i < n; i++)
		if (members[i].node != m->node && strcmp(members[i].name, m->name) == 0)
			return true;
	return false;
}

/* By name, so that a node that comes back gets the same shards; by number too where two share a name. */
static uint64_t weight(const struct member *members, uint32_t n, const struct member *m, uint32_t shard)
{
	uint64_t h = hash_bytes(0, slice_of(m->name));

	if (has_namesake(members, n, m))
		h = mix(h ^ (uint64_t)m->node);
	return mix(mix(h + (uint64_t)m->worker) ^ shard);
}

void assign_rendezvous(const struct member *members, uint32_t n_members, uint32_t me, uint32_t n_shards, bool *wanted)
{
	for (uint32_t shard = 0; shard < n_shards; shard++) {
		uint64_t mine = weight(members, n_members, &members[me], shard);

		wanted[shard] = true;
		for (uint32_t i = 0; i < n_members && wanted[shard]; i++) {
			uint64_t other = weight(members, n_members, &members[i], shard);

			wanted[shard] = i == me || mine > other || (mine == other && me < i);
		}
	}
}

void assign_static(const bool *own, uint32_t worker, uint32_t n_workers, uint32_t n_shards, bool *wanted)
{
	uint32_t number = 0;

	for (uint32_t shard = 0; shard < n_shards; shard++) {
		wanted[shard] = own[shard] && number % n_workers == worker;
		number += own[shard];
	}
}
