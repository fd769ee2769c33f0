#include "relay/bell.h"

#include <assert.h>

#include "base/clock.h"
#include "base/macros.h"

/* While nobody rings, looks follow each other at this pace: right after work soon, then ever less often. */
enum { DEAF_FIRST_MS = 2, DEAF_MAX_MS = 100, STAND_IN_MS = 1000 };

void bell_init(struct bell *b, int64_t watchdog_ms)
{
	*b = (struct bell){ .watchdog_ms = watchdog_ms, .due_ms = CLOCK_NEVER, .deaf = true };
}

uint32_t bell_add_worker(struct bell *b, struct mailbox *m)
{
	assert(b->n_workers < BELL_WORKERS_MAX);
	b->mailboxes[b->n_workers] = m;
	return b->n_workers++;
}

/* The first sleeper at or behind a place in the row. */
static void wake_from(struct bell *b, uint32_t start)
{
	for (uint32_t i = 0; i < b->n_workers; i++) {
		uint32_t w = (start + i) % b->n_workers;

		if (atomic_exchange(&b->asleep[w], false)) {
			mailbox_wake(b->mailboxes[w]);
			return;
		}
	}
}

void bell_ring_all(struct bell *b)
{
	atomic_fetch_add(&b->rings, 1);
	for (uint32_t w = 0; w < b->n_workers; w++)
		if (atomic_exchange(&b->asleep[w], false))
			mailbox_wake(b->mailboxes[w]);
}

void bell_ring(struct bell *b)
{
	if (b->for_all) {
		bell_ring_all(b);
		return;
	}
	atomic_fetch_add(&b->rings, 1);
	wake_from(b, atomic_fetch_add(&b->next, 1));    /* another one each time */
}

void bell_ring_worker(struct bell *b, uint32_t w)
{
	atomic_fetch_add(&b->rings, 1);
	if (atomic_exchange(&b->asleep[w], false))
		mailbox_wake(b->mailboxes[w]);
}

uint64_t bell_rings(const struct bell *b)
{
	return atomic_load(&b->rings);
}

void bell_due(struct bell *b, int64_t when_ms)
{
	int64_t set = atomic_load(&b->due_ms);

	while (when_ms < set) {
		if (!atomic_compare_exchange_weak(&b->due_ms, &set, when_ms))
			continue;
		/* Whoever watches the clock must know of the earlier time. */
		wake_from(b, 0);
		return;
	}
}

void bell_set_deaf(struct bell *b, bool deaf)
{
	if (atomic_exchange(&b->deaf, deaf) != deaf)
		bell_ring(b);
}

void bell_set_paused(struct bell *b, bool paused)
{
	if (atomic_exchange(&b->paused, paused) == paused)
		return;
	/* Who is hungry does not sleep at the bell while it may not claim. */
	for (uint32_t w = 0; w < b->n_workers; w++)
		mailbox_wake(b->mailboxes[w]);
}

bool bell_is_paused(const struct bell *b)
{
	return atomic_load(&b->paused);
}

void bell_set_letters(struct bell *b, bool letters)
{
	atomic_store(&b->letters, letters);
}

bool bell_has_letters(const struct bell *b)
{
	return atomic_load(&b->letters);
}

void bell_steer(struct bell *b)
{
	atomic_fetch_add(&b->steers, 1);
	bell_ring_all(b);
}

uint64_t bell_steers(const struct bell *b)
{
	return atomic_load(&b->steers);
}

void bell_claimed(struct bell *b, uint32_t rows, int64_t now_ms)
{
	int64_t wait = b->watchdog_ms, due;

	if (rows > 0)
		atomic_fetch_add(&b->rows, rows);
	if (atomic_load(&b->deaf)) {
		int64_t pace = rows > 0 ? DEAF_FIRST_MS : MIN(MAX(atomic_load(&b->pace_ms), 1) * 2, DEAF_MAX_MS);

		atomic_store(&b->pace_ms, pace);
		wait = MIN(wait, pace);
	}
	atomic_store(&b->next_look_ms, now_ms + wait);
	due = atomic_load(&b->due_ms);
	if (now_ms >= due)
		atomic_compare_exchange_strong(&b->due_ms, &due, CLOCK_NEVER);
}

static bool sleeper_before(const struct bell *b, uint32_t w)
{
	for (uint32_t i = 0; i < w; i++)
		if (atomic_load(&b->asleep[i]))
			return true;
	return false;
}

bool bell_sleep(struct bell *b, uint32_t w, uint64_t seen, int64_t now_ms, int64_t *ret_until_ms)
{
	int64_t until;

	atomic_store(&b->asleep[w], true);
	/* Only now look: a ring before this line is seen here, a later one finds us asleep. */
	until = MIN(atomic_load(&b->next_look_ms), atomic_load(&b->due_ms)) + (sleeper_before(b, w) ? STAND_IN_MS : 0);
	if (bell_rings(b) != seen || until <= now_ms) {
		bell_awake(b, w);
		/* What one finds when it looks at the clock says nothing of what the others would. */
		if (b->for_all && until <= now_ms)
			bell_ring_all(b);
		return false;
	}
	*ret_until_ms = until;
	return true;
}

void bell_awake(struct bell *b, uint32_t w)
{
	atomic_store(&b->asleep[w], false);
}
