/* Who owns which shard of an outbox, as rows in postrider.shard: owner, epoch, until when; and how a worker gets its share,
 * keeps it and hands it over. Workers that share an outbox are rows in postrider.shard_member, renewed with the shards.
 *
 * Every beat a worker renews what it has and looks who else is there and who owns what; then it computes what it should own
 * (read/assign.h), takes what is free, and stops reading what it should give up, which it does when all rows of it are
 * settled. */
#ifndef POSTRIDER_READ_OWNERSHIP_H
#define POSTRIDER_READ_OWNERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "pg/pipeline.h"
#include "read/reader.h"

/* --- SQL: these statements stand in the reader's table, from some number on ----------------------------------------- */

enum {
	OWNERSHIP_FENCE,
	OWNERSHIP_CHECK,
	OWNERSHIP_GIVE_UP,
	OWNERSHIP_TAKE,
	OWNERSHIP_RENEW,
	OWNERSHIP_JOIN,
	OWNERSHIP_OWNERS,
	OWNERSHIP_MEMBERS,
	OWNERSHIP_LEAVE,
	OWNERSHIP_STATEMENTS_COUNT,
};

#define OWNERSHIP_OURS "s.outbox = {outbox} AND s.node = $1::bigint AND s.worker = $2::int"

#define OWNERSHIP_STATEMENTS(first_number)                                                                      \
	[(first_number) + OWNERSHIP_FENCE] = { "postrider_fence", "settle published rows",                      \
		/* $1 node, $2 worker, $3 shards, $4 their epochs. Takes no lock: whoever takes a shard over right after this \
		 * publishes again what is settled here, and that is all. */                                    \
		"SELECT postrider.insist((SELECT count(*) FROM unnest($3::int[], $4::bigint[]) u(shard, epoch)" \
		"   JOIN postrider.shard s ON " OWNERSHIP_OURS " AND s.shard = u.shard AND s.epoch = u.epoch"   \
		"   AND s.expires_at > clock_timestamp()), cardinality($3::int[]))" },                          \
	[(first_number) + OWNERSHIP_CHECK] = { "postrider_check", "look how the outbox is divided",             \
		"SELECT d.shards, d.key FROM postrider.sharding d WHERE d.outbox = {outbox}" },                 \
	[(first_number) + OWNERSHIP_GIVE_UP] = { "postrider_give_up", "give shards up",                         \
		/* $1 node, $2 worker, $3 shards */                                                             \
		"UPDATE postrider.shard s SET node = NULL, worker = NULL, expires_at = NULL"                    \
		" WHERE " OWNERSHIP_OURS " AND s.shard = ANY ($3::int[])" },                                    \
	[(first_number) + OWNERSHIP_TAKE] = { "postrider_take", "take shards",                                  \
		/* $1 node, $2 worker, $3 shards, $4 lease in ms. Those that somebody else is about to take are left to him. */ \
		"UPDATE postrider.shard s SET node = $1::bigint, worker = $2::int, epoch = s.epoch + 1,"        \
		"   expires_at = clock_timestamp() + $4::bigint * interval '1 millisecond'"                     \
		" WHERE s.outbox = {outbox} AND s.shard IN (SELECT f.shard FROM postrider.shard f"              \
		"   WHERE f.outbox = {outbox} AND f.shard = ANY ($3::int[])"                                    \
		"     AND (f.node IS NULL OR f.expires_at <= clock_timestamp()) FOR UPDATE SKIP LOCKED)"        \
		" RETURNING s.shard, s.epoch" },                                                                \
	[(first_number) + OWNERSHIP_RENEW] = { "postrider_renew", "renew the lease of shards",                  \
		/* $1 node, $2 worker, $3 shards, $4 their epochs, $5 lease in ms */                            \
		"UPDATE postrider.shard s SET expires_at = clock_timestamp() + $5::bigint * interval '1 millisecond'" \
		" FROM unnest($3::int[], $4::bigint[]) u(shard, epoch)"                                         \
		" WHERE " OWNERSHIP_OURS " AND s.shard = u.shard AND s.epoch = u.epoch AND s.expires_at > clock_timestamp()" }, \
	[(first_number) + OWNERSHIP_JOIN] = { "postrider_join", "join those who share the shards",              \
		/* $1 node, $2 worker, $3 name, $4 lease in ms */                                               \
		"INSERT INTO postrider.shard_member AS m (outbox, node, worker, name, expires_at)"              \
		" VALUES ({outbox}, $1::bigint, $2::int, $3::text,"                                             \
		"   clock_timestamp() + $4::bigint * interval '1 millisecond')"                                 \
		" ON CONFLICT (outbox, node, worker) DO UPDATE SET expires_at = excluded.expires_at" },         \
	[(first_number) + OWNERSHIP_OWNERS] = { "postrider_owners", "look who owns which shard",                \
		"SELECT s.shard, s.node, s.worker FROM postrider.shard s"                                       \
		" WHERE s.outbox = {outbox} AND s.node IS NOT NULL AND s.expires_at > clock_timestamp()" },     \
	[(first_number) + OWNERSHIP_MEMBERS] = { "postrider_members", "look who shares the shards",             \
		"SELECT m.node, m.worker, m.name FROM postrider.shard_member m"                                 \
		" WHERE m.outbox = {outbox} AND m.expires_at > clock_timestamp() ORDER BY m.name, m.node, m.worker" }, \
	[(first_number) + OWNERSHIP_LEAVE] = { "postrider_leave", "give all shards up",                         \
		/* $1 node, $2 worker */                                                                        \
		"WITH gone AS (DELETE FROM postrider.shard_member s WHERE " OWNERSHIP_OURS ")"                  \
		" UPDATE postrider.shard s SET node = NULL, worker = NULL, expires_at = NULL WHERE " OWNERSHIP_OURS }

/* --- a worker's share ------------------------------------------------------------------------------------------------ */

enum shard_state { SHARD_OF_OTHERS, SHARD_OURS, SHARD_LEAVING };

struct shard {
	enum shard_state state;
	int64_t epoch;
	bool wanted;                    /* by the last look */
	bool in_flight;                 /* rows of it are in the window */
};

struct ownership {
	const struct reader_env *env;
	int first_statement;
	int64_t node;                   /* our number when we began */
	char node_text[24], worker_text[12], lease_text[24];
	int64_t lease_ms;
	uint32_t n_shards;
	struct shard *shards;
	bool *own;                      /* of this node, where assignment is static */
	uint32_t n_ours, n_leaving;
	bool changed;                   /* others are ours since ownership_list */
	uint64_t term;                  /* goes up with every shard that we get */
	bool taking;                    /* the exchange under way takes shards */
	bool waiting;                   /* for shards that others are to give up */
	int64_t began_ms, looked_ms;
	int64_t renewing_ms, renewed_ms; /* when the renewal under way, and the last that worked, was sent */
	PGresult *owners;
	struct buf numbers, epochs;     /* parameters */
};

int64_t ownership_lease_ms(const struct outbox_config *outbox);
/* When to look again: soon while shards are on their way to us, and at first, when others may still come. */
int64_t ownership_look_again_ms(const struct ownership *o, int64_t now_ms);
/* How often a worker should come to ownership_send at least. */
int64_t ownership_beat_ms(const struct outbox_config *outbox);
const char *ownership_key_name(const struct outbox_config *outbox);

void ownership_init(struct ownership *o, const struct reader_env *env, int first_statement);
void ownership_release(struct ownership *o);
/* Both wait. ERROR_CONFIG when the outbox is divided in another way than the settings say. */
bool ownership_check(const struct ownership *o, struct pipeline *p, struct error *err);
/* Gives up at once whatever this worker owns, also what a former connection of it did. */
bool ownership_leave(const struct ownership *o, struct pipeline *p, int64_t timeout_ms, struct error *err);

bool ownership_any(const struct ownership *o);
/* Until when our shards are surely ours. */
int64_t ownership_holds_until(const struct ownership *o);
/* The shards to read from now on. */
uint32_t ownership_list(struct ownership *o, int32_t *ret);

/* Fails the transaction that it stands in when one of our shards has another owner by now. */
bool ownership_send_fence(struct ownership *o, struct pipeline *p, struct error *err);
/* What is to be done about shards now, as a transaction of its own; maybe nothing. */
bool ownership_send(struct ownership *o, struct pipeline *p, const struct exchange *x, int64_t now_ms, struct error *err);
/* The answer to one of our statements. False: a shard was lost, and with it everything. */
bool ownership_take(struct ownership *o, int statement, PGresult *res, struct error *err);
/* The last look showed something that had better not wait for the next beat. */
bool ownership_has_more_to_do(const struct ownership *o);

#endif
