#include "read/wal_parking.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/macros.h"
#include "base/mem.h"

enum { FIRST_BUCKETS = 64 };

void parking_init(struct parking *p)
{
	*p = (struct parking){ .n_buckets = FIRST_BUCKETS };
	p->buckets = mem_new_array(struct parked *, p->n_buckets);
}

static void parked_free(struct parked *e)
{
	free((char *)e->entity.ptr);
	free((char *)e->row_id.ptr);
	free(e);
}

void parking_release(struct parking *p)
{
	for (uint32_t i = 0; i < p->n_buckets; i++)
		while (p->buckets[i]) {
			struct parked *next = p->buckets[i]->next;

			parked_free(p->buckets[i]);
			p->buckets[i] = next;
		}
	free(p->buckets);
	*p = (struct parking){ 0 };
}

static struct slice copy(struct slice s)
{
	char *text = mem_new_array(char, s.len + 1);

	if (s.len > 0)
		memcpy(text, s.ptr, s.len);
	return (struct slice){ text, s.len };
}

struct parked *parking_find(const struct parking *p, struct slice entity)
{
	uint64_t hash;
	struct parked *e;

	if (p->count == 0)
		return NULL;
	hash = hash_bytes(0, entity);
	for (e = p->buckets[hash % p->n_buckets]; e; e = e->next)
		if (e->hash == hash && slice_equal(e->entity, entity))
			return e;
	return NULL;
}

static void grow(struct parking *p)
{
	struct parked **old = p->buckets;
	uint32_t n_old = p->n_buckets;

	p->n_buckets *= 2;
	p->buckets = mem_new_array(struct parked *, p->n_buckets);
	for (uint32_t i = 0; i < n_old; i++)
		for (struct parked *e = old[i], *next; e; e = next) {
			struct parked **bucket = &p->buckets[e->hash % p->n_buckets];

			next = e->next;
			e->next = *bucket;
			*bucket = e;
		}
	free(old);
}

struct parked *parking_add(struct parking *p, struct slice entity)
{
	struct parked *e = parking_find(p, entity), **bucket;

	if (e)
		return e;
	if (p->count >= p->n_buckets)
		grow(p);
	e = mem_new(struct parked);
	e->hash = hash_bytes(0, entity);
	e->entity = copy(entity);
	e->due_ms = CLOCK_NEVER;
	bucket = &p->buckets[e->hash % p->n_buckets];
	e->next = *bucket;
	*bucket = e;
	p->count++;
	return e;
}

void parking_remove(struct parking *p, struct parked *entity)
{
	struct parked **at = &p->buckets[entity->hash % p->n_buckets];

	while (*at != entity)
		at = &(*at)->next;
	*at = entity->next;
	parked_free(entity);
	p->count--;
}

void parking_set_refused(struct parked *e, struct slice row_id, uint32_t attempts, int64_t due_ms)
{
	free((char *)e->row_id.ptr);
	e->row_id = row_id.ptr ? copy(row_id) : SLICE_NULL;
	e->attempts = attempts;
	e->due_ms = due_ms;
}

static bool is_waiting(const struct parked *e)
{
	return e->in_flight == 0 && !e->fetching;
}

int64_t parking_due_ms(const struct parked *entity, int64_t when_ms)
{
	return entity->stays ? CLOCK_NEVER : when_ms;
}

void parking_begin_list(struct parking *p)
{
	for (uint32_t i = 0; i < p->n_buckets; i++)
		for (struct parked *e = p->buckets[i]; e; e = e->next)
			e->listed = false;
}

void parking_list(struct parking *p, const struct parked *entry)
{
	struct parked *e = parking_add(p, entry->entity);

	e->listed = true;
	e->stays = entry->stays;
	if (is_waiting(e))
		parking_set_refused(e, entry->row_id, entry->attempts, parking_due_ms(entry, entry->due_ms));
}

void parking_end_list(struct parking *p, int64_t now_ms)
{
	for (uint32_t i = 0; i < p->n_buckets; i++)
		for (struct parked *e = p->buckets[i]; e; e = e->next) {
			if (e->listed || !e->stays)
				continue;
			e->stays = false;
			if (is_waiting(e))
				parking_set_refused(e, SLICE_NULL, 0, now_ms);
		}
}

uint32_t parking_due(struct parking *p, int64_t now_ms, struct parked **ret, uint32_t max)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n_buckets && p->count > 0; i++)
		for (struct parked *e = p->buckets[i]; e && n < max; e = e->next) {
			if (!is_waiting(e) || e->due_ms > now_ms)
				continue;
			e->fetching = true;
			ret[n++] = e;
		}
	return n;
}

int64_t parking_next_ms(const struct parking *p)
{
	int64_t next = CLOCK_NEVER;

	for (uint32_t i = 0; i < p->n_buckets && p->count > 0; i++)
		for (const struct parked *e = p->buckets[i]; e; e = e->next)
			if (is_waiting(e))
				next = MIN(next, e->due_ms);
	return next;
}
