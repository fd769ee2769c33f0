/* Which shards a worker should own, given who else is there. Pure: everybody computes it from what the database says, and
 * whoever is wrong for a moment just finds a shard taken. */
#ifndef POSTRIDER_READ_ASSIGN_H
#define POSTRIDER_READ_ASSIGN_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

/* A worker of some node. In an order that is the same for everybody. */
struct member {
	const char *name;               /* of its node */
	int64_t node;
	int32_t worker;
};

enum { ASSIGN_NOBODY = -1 };

/* `owners[shard]` is the number of the member that owns it, or ASSIGN_NOBODY. Sets wanted[shard] for those that member
 * `me` should keep or take; the others it should give up, or leave to others. */
void assign_dynamic(const struct member *members, uint32_t n_members, uint32_t me, const int32_t *owners, uint32_t n_shards,
		    bool *wanted);
void assign_rendezvous(const struct member *members, uint32_t n_members, uint32_t me, uint32_t n_shards, bool *wanted);
/* The shards in `own` go round the node's own workers. */
void assign_static(const bool *own, uint32_t worker, uint32_t n_workers, uint32_t n_shards, bool *wanted);

#endif
