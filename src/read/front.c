#include "read/front.h"

#include "base/macros.h"
#include "pg/array.h"
#include "read/hand.h"

#define PLACE_CEILING ((size_t)1 << 20)

enum {
	LOOK_EVERY_MS = 200,
	QUICK_WALK_MS = 3,              /* up to this a walk is the cheaper claim … */
	SLOW_WALK_MS = 30,              /* … and up to this the one that gets further in a backlog */
	CALM = 16,                      /* a walk that took longer counts as this part of the difference: one may have waited */
	WALK_SHARE = 20,                /* a walk may take this part of the time: 5 percent */
};

void front_init(struct front *f, const struct reader_env *env, int first_statement)
{
	*f = (struct front){
		.env = env,
		.first_statement = env->table->drawn_in_order ? first_statement : 0,
		.backlog = true,
	};
	horizon_init(&f->horizon, first_statement + FRONT_LOOK);
	buf_init(&f->floor, PLACE_CEILING);
	buf_init(&f->param, 2 * PLACE_CEILING);
}

void front_release(struct front *f)
{
	horizon_release(&f->horizon);
	buf_release(&f->floor);
	buf_release(&f->param);
}

void front_forget(struct front *f)
{
	f->known = false;
}

/* Walks of all workers of the process count, and one of them does the next. */
static bool walk_is_due(const struct front *f, int64_t now_ms)
{
	struct hand *hand = f->env->hand;
	int64_t last = atomic_load(&hand->walked_ms);
	int64_t pause = MAX(f->env->outbox->poll_interval_ms, WALK_SHARE * atomic_load(&hand->walk_took_ms));

	return now_ms - last >= pause && atomic_compare_exchange_strong(&hand->walked_ms, &last, now_ms);
}

/* As long as they need not pass over much. */
static bool walks_are_better(const struct front *f)
{
	return f->backlog ? atomic_load(&f->env->hand->walk_took_ms) <= SLOW_WALK_MS :
			    atomic_load(&f->env->hand->walks_take_ms) <= QUICK_WALK_MS;
}

static void note_walk(struct hand *hand, int64_t took_ms)
{
	int64_t before = atomic_load(&hand->walks_take_ms);

	atomic_store(&hand->walk_took_ms, took_ms);
	atomic_store(&hand->walks_take_ms, took_ms <= before ? took_ms : before + (took_ms - before + CALM - 1) / CALM);
}

bool front_serves(struct front *f, int64_t now_ms)
{
	f->sent_ms = now_ms;
	f->serving = f->known && !f->starved && !walks_are_better(f) && !walk_is_due(f, now_ms);
	return f->serving;
}

struct param front_param(struct front *f)
{
	array_begin(&f->param, f->horizon.type);
	array_add(&f->param, (struct slice){ f->floor.data, f->floor.len });
	return array_param(&f->param);
}

bool front_send(struct front *f, struct pipeline *p, int64_t now_ms, struct error *err)
{
	if (f->first_statement == 0 || walks_are_better(f))
		return true;
	if (!horizon_send(&f->horizon, p, now_ms, err))
		return false;
	if (!f->horizon.known || now_ms - f->asked_ms < LOOK_EVERY_MS)
		return true;
	f->asked_ms = now_ms;
	return pipeline_send(p, f->first_statement + (f->known ? FRONT_NEXT : FRONT_FIRST),
			     (const struct param[]){ horizon_param(&f->horizon), f->known ? front_param(f) : text_param(NULL) },
			     f->known ? 2 : 1, true, err);
}

bool front_take(struct front *f, int statement, const PGresult *res)
{
	if (f->first_statement == 0)
		return false;
	if (statement != f->first_statement + FRONT_FIRST && statement != f->first_statement + FRONT_NEXT)
		return horizon_take(&f->horizon, statement, res);
	if (PQgetisnull(res, 0, 0))
		return true;
	buf_clear(&f->floor);
	buf_add(&f->floor, PQgetvalue(res, 0, 0), (size_t)PQgetlength(res, 0, 0));
	f->known = true;
	return true;
}

void front_answered(struct front *f, bool whole, bool exhausted, bool little, int64_t now_ms)
{
	f->starved = f->serving && !whole && little;
	if (f->serving) {
		f->backlog = !whole;
		return;
	}
	note_walk(f->env->hand, now_ms - f->sent_ms);
	if (!exhausted)
		return;
	f->backlog = false;
	atomic_store(&f->env->hand->walked_ms, now_ms);
}
