#include "keep/peers.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"

static struct peer *find(struct peers *p, int64_t id)
{
	for (size_t i = 0; i < p->count; i++)
		if (p->items[i].id == id)
			return &p->items[i];
	return NULL;
}

static struct peer *add(struct peers *p, const struct peer_sight *sight)
{
	struct peer *peer;

	p->items = mem_resize(p->items, (p->count + 1) * sizeof(*p->items));
	peer = &p->items[p->count++];
	*peer = (struct peer){ .id = sight->id, .name = mem_strdup(sight->name) };
	/* Those that were here before us did not join. */
	if (p->looked)
		log_info("node.joined", F_STR("node", sight->name), F_INT("number", sight->id),
			 F_STR("version", sight->version));
	return peer;
}

/* The order does not matter. */
static void drop(struct peers *p, struct peer *peer)
{
	free(peer->name);
	*peer = p->items[--p->count];
}

void peers_begin(struct peers *p)
{
	for (size_t i = 0; i < p->count; i++)
		p->items[i].seen = false;
}

void peers_see(struct peers *p, const struct peer_sight *sight)
{
	struct peer *peer = find(p, sight->id);

	if (!peer)
		peer = add(p, sight);
	if (sight->gone && !peer->gone && !sight->silent)
		log_info("node.gone", F_STR("node", peer->name), F_INT("number", peer->id));
	if (sight->silent && !peer->silent)
		log_warn("node.silent", F_STR("node", peer->name), F_INT("number", peer->id),
			 F_STR("session", sight->gone ? "gone" : "open"));
	if (!sight->silent && peer->silent)
		log_info("node.back", F_STR("node", peer->name), F_INT("number", peer->id));
	peer->silent = sight->silent;
	peer->gone = sight->gone;
	peer->seen = true;
}

bool peers_end(struct peers *p)
{
	bool freed = false;

	for (size_t i = p->count; i-- > 0;) {
		struct peer *peer = &p->items[i];

		freed |= !peer->seen || peer->gone || peer->silent;
		if (peer->seen)
			continue;
		/* One that was gone or silent was buried by another node, which has said so. */
		if (!peer->silent && !peer->gone)
			log_info("node.left", F_STR("node", peer->name), F_INT("number", peer->id));
		drop(p, peer);
	}
	p->looked = true;
	return freed;
}

void peers_forget(struct peers *p, int64_t id)
{
	struct peer *peer = find(p, id);

	if (peer)
		drop(p, peer);
}

void peers_release(struct peers *p)
{
	for (size_t i = 0; i < p->count; i++)
		free(p->items[i].name);
	free(p->items);
	*p = (struct peers){ 0 };
}
