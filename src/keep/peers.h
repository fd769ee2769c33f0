/* The other nodes as the heart saw them at its last beat, and what changed since: who joined, fell silent or went. Logs
 * each of these once. */
#ifndef POSTRIDER_KEEP_PEERS_H
#define POSTRIDER_KEEP_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One node in one look; the name and version are borrowed. */
struct peer_sight {
	int64_t id;
	const char *name;
	const char *version;
	bool gone;                      /* its session is no longer there */
	bool silent;
};

struct peer {
	int64_t id;
	char *name;
	bool silent;
	bool gone;
	bool seen;                      /* in the look under way */
};

struct peers {
	struct peer *items;
	size_t count;
	bool looked;                    /* once: later, new ones have joined */
};

/* A look begins, shows every other node, and ends. peers_end is true when what a node held may be free now or soon: it
 * has gone, is silent, or has left. */
void peers_begin(struct peers *p);
void peers_see(struct peers *p, const struct peer_sight *sight);
bool peers_end(struct peers *p);

/* We buried one: it is not missed at the next look. */
void peers_forget(struct peers *p, int64_t id);
void peers_release(struct peers *p);

#endif
