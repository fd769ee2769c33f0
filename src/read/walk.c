#include "read/walk.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/mem.h"
#include "pg/array.h"
#include "relay/field.h"

enum { MORE_MAX = 8, REACH_FIRST = 300, REACH_MAX = 20000, REACH_GROWS = 4 };
#define PARAM_CEILING ((size_t)256 << 20)

void walk_init(struct walk *w, const struct reader_env *env, const struct walk_statements *st)
{
	*w = (struct walk){
		.env = env,
		.rows_per_entity = 1,
		.crowded = true,        /* workers that start together had better not start at the same place */
		.large_rows = true,     /* until a claim has shown otherwise */
		.reach = REACH_FIRST,
	};
	front_init(&w->front, env, st->front);
	buf_init(&w->ours, PARAM_CEILING);
}

void walk_release(struct walk *w)
{
	walk_pass_hand(w);
	PQclear(w->claimed);
	front_release(&w->front);
	buf_release(&w->ours);
}

void walk_pass_hand(struct walk *w)
{
	if (w->has_hand)
		hand_pass(w->env->hand);
	w->has_hand = false;
}

void walk_note_settle(struct walk *w, const struct settle *s)
{
	if (array_count(&s->cleared) > 0)
		front_forget(&w->front);
}

/* How many entities to claim for that many rows. Claiming too many costs giving them back; too few, another trip. */
static uint32_t entities_for(const struct walk *w, uint32_t rows)
{
	double n = (double)rows / w->rows_per_entity + 1;

	return n < WALK_ENTITIES_MAX ? (uint32_t)n : WALK_ENTITIES_MAX;
}

bool walk_send_claim(struct walk *w, struct pipeline *p, const struct exchange *x, const struct walk_statements *st,
		     const struct param *more, int n_more, struct error *err)
{
	int64_t now = clock_ms();
	bool at_front = front_serves(&w->front, now);
	_cleanup_(mem_freep) char *hand = hand_at(w->env->hand);
	_cleanup_(mem_freep) char *entities = mem_printf("%u", w->wanted = entities_for(w, x->want_rows));
	_cleanup_(mem_freep) char *reach = mem_printf("%u", w->reach);
	struct param claim[WALK_PARAMS + MORE_MAX] = {
		[WALK_HAND] = at_front ? front_param(&w->front) : text_param(hand),
		[WALK_ELSEWHERE] = text_param(w->crowded ? "true" : "false"),
		[WALK_WANTED] = text_param(entities),
		[WALK_REACH] = text_param(reach),
	};

	p->untimed = w->untimed;
	w->elsewhere = w->crowded;
	w->has_hand = x->has_hand;
	array_begin(&w->ours, TYPE_TEXT);
	window_each_lane(x->window, array_add_text, &w->ours);      /* not those that end with what is being settled */
	claim[WALK_OURS] = array_param(&w->ours);
	for (int i = 0; i < n_more; i++)
		claim[WALK_PARAMS + i] = more[i];
	return pipeline_send(p, at_front ? st->claim_front : st->claim, claim, WALK_PARAMS + n_more, false, err) &&
	       front_send(&w->front, p, now, err);
}

bool walk_send_read(struct walk *w, struct pipeline *p, const struct exchange *x, const struct walk_statements *st,
		    struct error *err)
{
	_cleanup_(mem_freep) char *rows = mem_printf("%u", x->want_rows);
	_cleanup_(mem_freep) char *bytes = mem_printf("%zu", x->want_bytes);
	_cleanup_(mem_freep) char *per_entity = mem_printf("%lld", (long long)w->env->outbox->entity_max_rows);
	const struct param params[] = { text_param(rows), text_param(per_entity), text_param(bytes) };

	return pipeline_send(p, w->large_rows ? st->read_large : st->read, params, w->large_rows ? 3 : 2, true, err);
}

bool walk_send(struct walk *w, struct pipeline *p, const struct exchange *x, const struct walk_statements *st,
	       const struct param *more, int n_more, struct error *err)
{
	return walk_send_claim(w, p, x, st, more, n_more, err) && walk_send_read(w, p, x, st, err);
}

static void note_retries(struct walk *w, struct answer *answer)
{
	answer->retries = w->retries;
	for (int i = 0; i < PQntuples(w->claimed); i++) {
		if (PQgetisnull(w->claimed, i, WALK_ROW_ID))
			continue;
		w->retries[answer->n_retries++] = (struct retry){
			.entity = field_raw(w->claimed, i, WALK_ENTITY),
			.row_id = field_raw(w->claimed, i, WALK_ROW_ID),
			.attempts = (uint32_t)strtoul(PQgetvalue(w->claimed, i, WALK_ATTEMPTS), NULL, 10),
		};
	}
}

static uint32_t entities_got(const struct walk *w)
{
	return PQgetisnull(w->claimed, 0, WALK_ENTITY) ? 0 : (uint32_t)PQntuples(w->claimed);
}

/* Whoever met only what is taken, also where he went instead, has to reach further next time. */
static void choose_reach(struct walk *w, bool exhausted)
{
	if (w->front.serving)
		return;
	if (exhausted || entities_got(w) > 0)
		w->reach = REACH_FIRST;
	else if (w->elsewhere)
		w->reach = MIN(w->reach * REACH_GROWS, REACH_MAX);
}

bool walk_take_look(struct walk *w, int statement, const PGresult *res)
{
	return front_take(&w->front, statement, res);
}

void walk_take_claim(struct walk *w, PGresult *res, struct answer *answer)
{
	bool is_scheduled;

	PQclear(w->claimed);
	w->claimed = res;
	if (!w->front.serving)
		hand_move(w->env->hand, PQgetisnull(res, 0, WALK_LAST) ? NULL : PQgetvalue(res, 0, WALK_LAST), w->has_hand);
	walk_pass_hand(w);
	answer->exhausted = PQgetvalue(res, 0, WALK_EXHAUSTED)[0] == 't';
	answer->looked = (uint32_t)strtoul(PQgetvalue(res, 0, WALK_LOOKED), NULL, 10);
	answer->lost = answer->looked - MIN(answer->looked, entities_got(w));
	choose_reach(w, answer->exhausted);
	w->crowded = !w->front.serving && answer->looked > 2 * (uint32_t)PQntuples(res) + 10;
	front_answered(&w->front, PQgetvalue(res, 0, WALK_WHOLE)[0] == 't', answer->exhausted,
		       entities_got(w) < w->wanted / 2, clock_ms());
	/* Each partition has a TOAST table of its own: too many to ask. */
	w->large_rows = w->env->table->partitioned || atoll(PQgetvalue(res, 0, WALK_TOAST)) > 0;
	note_retries(w, answer);
	is_scheduled = schedule_take(res, WALK_NEXT_DUE, answer);
	/* The next one finds what this one could only notice. */
	if (is_scheduled && w->untimed)
		answer->exhausted = false;
	w->untimed = !is_scheduled;
}

/* Each row says which entity it is of, counted from 1 in the order of the claim; results may come in any order. */
void walk_take_rows(struct walk *w, PGresult *res, struct answer *answer, void (*idle)(void *arg, struct slice entity),
		    void *arg)
{
	bool served[WALK_ENTITIES_MAX] = { false };
	int n_rows = PQntuples(res), n_served = 0, n_idle = 0, number_field = PQnfields(res) - 2;

	answer->rows = res;
	for (int row = 0; row < n_rows; row++) {
		uint32_t number;

		memcpy(&number, PQgetvalue(res, row, number_field), sizeof(number));
		number = ntohl(number) - 1;
		n_served += !served[number];
		served[number] = true;
	}
	for (int i = 0; i < (int)entities_got(w); i++) {
		if (served[atoi(PQgetvalue(w->claimed, i, WALK_NUMBER)) - 1])
			continue;
		n_idle++;
		idle(arg, field_raw(w->claimed, i, WALK_ENTITY));
	}
	if (n_served > 0)
		w->rows_per_entity = 0.5 * w->rows_per_entity + 0.5 * (double)n_rows / n_served;
	/* They may have rows that did not fit into this claim. */
	if (n_idle > 0)
		answer->exhausted = false;
}
