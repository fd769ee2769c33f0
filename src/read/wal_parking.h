/* Entities whose next event a sink has refused, with the reader `wal`: the slot goes on, so the refused event and those that
 * come behind it are put aside in postrider.parked, with all their fields and in order, until the first of them passes.
 *
 * This is what the leader remembers of them; the rows are in the table. An entity is parked from the moment when its refusal
 * becomes known until the table has nothing more of it. Meanwhile its events from the log are put aside too, and those in
 * the table are published from there. */
#ifndef POSTRIDER_READ_WAL_PARKING_H
#define POSTRIDER_READ_WAL_PARKING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "pg/pipeline.h"

struct parked {
	struct parked *next;            /* in its bucket */
	uint64_t hash;
	struct slice entity;            /* owned, as the next one */
	struct slice row_id;            /* that was refused; NULL: none, or one that has passed since */
	uint32_t attempts;
	int64_t due_ms;                 /* when to try again; CLOCK_NEVER: it is not known yet */
	uint32_t in_flight;             /* events of it that workers have, from the table */
	bool fetching;                  /* they are being read */
	uint32_t leaving_log;           /* events of it from the log that are not in the table yet */
	bool stays;                     /* a person has put it aside: not to be tried before he lets it go */
	bool listed;                    /* in the list that is being taken in */
};

struct parking {
	struct parked **buckets;
	uint32_t n_buckets, count;
};

void parking_init(struct parking *p);
void parking_release(struct parking *p);

struct parked *parking_find(const struct parking *p, struct slice entity);
/* Finds or makes it. */
struct parked *parking_add(struct parking *p, struct slice entity);
void parking_remove(struct parking *p, struct parked *entity);
void parking_set_refused(struct parked *entity, struct slice row_id, uint32_t attempts, int64_t due_ms);

/* What the database has of parked entities, now and then: a list begins, has an entry for each of them, and ends. People
 * change it. An entity of which workers have events keeps what is known of it until these are settled; one that a person
 * has let go, and of which nothing is in the list, is due. */
void parking_begin_list(struct parking *p);
void parking_list(struct parking *p, const struct parked *entry);
void parking_end_list(struct parking *p, int64_t now_ms);
/* When an entity of which nothing is on its way is due: at this time, unless a person has put it aside. */
int64_t parking_due_ms(const struct parked *entity, int64_t when_ms);

/* Up to `max` entities to be read from the table now, which are marked as being fetched; returns how many. */
uint32_t parking_due(struct parking *p, int64_t now_ms, struct parked **ret, uint32_t max);
/* When the next one is due; CLOCK_NEVER: none. */
int64_t parking_next_ms(const struct parking *p);

#endif
