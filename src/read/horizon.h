/* How far rows of an outbox have surely all been committed: no row at or below the horizon will appear any more.
 *
 * Why it is needed: rows are numbered when they are written, and become visible when their transaction commits. A reader
 * that goes on behind the last row it saw misses those that commit late, and, worse, may see a later row of the same entity
 * next. Behind the horizon it may go on; above it, it must read again what it has read.
 *
 * How it is found: the highest visible row is noted, and *after that* who is writing to the table: whoever inserts holds a
 * RowExclusiveLock on it from before he draws a number to the end of his transaction. When all of those have ended, the row
 * that was noted is the horizon: who began later drew higher numbers. It takes numbers that are drawn one after the other
 * by the INSERT itself, as identity columns and sequences without a cache do; `postrider check` looks at that. */
#ifndef POSTRIDER_READ_HORIZON_H
#define POSTRIDER_READ_HORIZON_H

#include <stdbool.h>
#include <stdint.h>

#include "pg/pipeline.h"

/* Statements of the reader's table, from some number on. */
enum { HORIZON_HIGHEST, HORIZON_HIGHER, HORIZON_WRITERS, HORIZON_STATEMENTS_COUNT };

#define HORIZON_STATEMENTS(first_number)                                                                        \
	[(first_number) + HORIZON_HIGHEST] = { "postrider_highest", "find the highest row",                     \
		"SELECT o.{order}::{order_cast} FROM {table} o ORDER BY o.{order} DESC LIMIT 1" },              \
	[(first_number) + HORIZON_HIGHER] = { "postrider_higher", "find the highest row",                       \
		/* $1 the horizon: in front of it there may be thousands of deleted rows */                     \
		"SELECT o.{order}::{order_cast} FROM {table} o WHERE o.{order} > ($1::{orders})[1]"             \
		" ORDER BY o.{order} DESC LIMIT 1" },                                                           \
	[(first_number) + HORIZON_WRITERS] = { "postrider_writers", "look who writes to the outbox",            \
		"SELECT l.virtualtransaction FROM pg_locks l WHERE l.locktype = 'relation'"                     \
		" AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"      \
		/* of a table that is not partitioned the tree is empty */                                      \
		" AND (l.relation = {oid} OR l.relation IN (SELECT t.relid FROM pg_partition_tree({oid}) t))"   \
		" AND l.mode = 'RowExclusiveLock' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()" }

struct horizon {
	int first_statement;
	uint32_t type;                  /* of places as they are read */
	struct buf at;                  /* the horizon; nothing when there is none yet */
	bool known;
	struct buf candidate;           /* the highest row, noted before `writers` */
	bool has_candidate;
	char **writers;                 /* those who may still write rows below it */
	uint32_t n_writers;
	bool fresh;                     /* the look under way follows a new candidate */
	int64_t asked_ms;
	struct buf param;
};

void horizon_init(struct horizon *h, int first_statement);
void horizon_release(struct horizon *h);
/* Finds the first one, while nothing else is under way; waits. There may be none yet after that. */
bool horizon_open(struct horizon *h, struct pipeline *p, int64_t timeout_ms, struct error *err);

/* Queues a look when it is time for one. */
bool horizon_send(struct horizon *h, struct pipeline *p, int64_t now_ms, struct error *err);
/* True when the result was of such a look. Does not take it over. */
bool horizon_take(struct horizon *h, int statement, const PGresult *res);

/* As a parameter of type {orders}: a list of one, or of none. Valid until the next call. */
struct param horizon_param(struct horizon *h);

#endif
