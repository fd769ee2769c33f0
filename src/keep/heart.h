/* The heart of a node: one thread with a connection of its own that says in postrider.node, once each heartbeat, that
 * the process lives and what its workers do. In the same round trip it looks at the other nodes:
 *
 *   gone      its session is no longer there: it was killed, or reconnects. Its locks went with its sessions, so our
 *             workers are woken to look for what it held.
 *   silent    it missed three heartbeats: killed, frozen, or cut off.
 *   dead      gone and silent. Whoever sees it first buries it: removes its row and frees its claims and shards.
 *
 * Behind a pooler sessions say nothing. A node there is never known to be dead; what it holds expires by itself, and
 * its row is removed after five minutes of silence.
 *
 * It also hears what people ask of all nodes (keep/steering.h), such as to pause an outbox.
 *
 * The database's clock alone counts. After an outage of the database every node is silent, so a heart judges nobody
 * before it has itself been connected for as long as the other one may be silent. */
#ifndef POSTRIDER_KEEP_HEART_H
#define POSTRIDER_KEEP_HEART_H

#include <stddef.h>

#include "base/error.h"
#include "config/config.h"
#include "keep/node.h"

struct heart;
struct steering_word;

struct heart_env {
	const struct database_config *database;
	struct node *node;
	int schema;                             /* newest version of the schema that the program knows */
	char *(*describe)(void *arg);           /* JSON for postrider.node.state; the heart frees it. Its thread calls */
	void (*wake)(void *arg);                /* rows of another node may have become free. Its thread calls */
	/* What is to be known of outboxes now. Its thread calls, and heart_open does. */
	void (*tell)(void *arg, const struct steering_word *words, size_t n);
	void (*steered)(void *arg);             /* a person may have changed what is held back. Its thread calls */
	void *arg;
};

struct heart *heart_new(const struct heart_env *env);
/* Connects and registers the node (see keep/entry.h); waits for the database. After a failure it may be called again.
 * *ret_waiting: the database is there, and what is in the way is a node that may be dead; that shows after three of its
 * heartbeats. */
bool heart_open(struct heart *h, bool *ret_waiting, struct error *err);
/* Starts the thread. */
bool heart_start(struct heart *h, struct error *err);
/* When its loop last went round, which it does once each heartbeat, also while the database is away. Any thread. */
int64_t heart_last_turn_ms(const struct heart *h);
/* It was taken for dead, and meanwhile another node has begun to read a table of ours in another way: the process must
 * end. Any thread. */
bool heart_refused(const struct heart *h, struct error *ret_why);
/* When nothing is held any more: ends the thread and removes the node. Accepts NULL. */
void heart_free(struct heart *h);

#endif
