#include "read/take.h"

#include <stdlib.h>

#include "base/macros.h"
#include "base/mem.h"
#include "relay/field.h"

/* How long a row that committed late waits at most for a claim to begin in front of it. */
enum { LOWEST_EVERY_MS = 2000 };

void take_init(struct take *t, const struct reader_env *env, int first_statement)
{
	*t = (struct take){
		.env = env,
		.first_statement = first_statement,
		.large_rows = true,     /* until a claim has shown otherwise */
	};
}

static void pass_hand(struct take *t)
{
	if (t->has_hand)
		hand_pass(t->env->hand);
	t->has_hand = false;
}

void take_release(struct take *t)
{
	pass_hand(t);
	free(t->retries);
}

/* --- sending -------------------------------------------------------------------------------------------------- */

static bool send_from(struct take *t, struct pipeline *p, const char *hand, int64_t now_ms, struct error *err)
{
	_cleanup_(mem_freep) char *rows = mem_printf("%u", t->asked_rows);
	_cleanup_(mem_freep) char *bytes = mem_printf("%zu", t->asked_bytes);
	struct param params[3] = { text_param(rows) };
	int n = 1;

	t->from_lowest = !hand;
	if (hand)
		params[n++] = text_param(hand);
	else
		t->lowest_ms = now_ms;
	if (t->large_rows)
		params[n++] = text_param(bytes);
	return pipeline_send(p, t->first_statement + (t->large_rows ? TAKE_LOWEST_LARGE : TAKE_LOWEST) +
			     (hand ? TAKE_ON : TAKE_LOWEST), params, n, true, err) &&
	       schedule_send(p, t->first_statement + TAKE_NEXT_DUE, t->env->table, err);
}

bool take_send(struct take *t, struct pipeline *p, const struct exchange *x, int64_t now_ms, struct error *err)
{
	_cleanup_(mem_freep) char *hand = now_ms - t->lowest_ms < LOWEST_EVERY_MS ? hand_at(t->env->hand) : NULL;

	t->has_hand = x->has_hand;
	t->asked_rows = x->want_rows;
	t->asked_bytes = x->want_bytes;
	return send_from(t, p, hand, now_ms, err);
}

bool take_send_again(struct take *t, struct pipeline *p, int64_t now_ms, struct error *err)
{
	return send_from(t, p, NULL, now_ms, err);
}

/* --- receiving ------------------------------------------------------------------------------------------------ */

static int own_field(const PGresult *res, int from_end)
{
	return PQnfields(res) - from_end;
}

static void note_retries(struct take *t, const PGresult *res, struct answer *answer)
{
	int held = own_field(res, TAKE_HELD);

	for (int row = 0; row < PQntuples(res); row++) {
		if (PQgetisnull(res, row, held))
			continue;
		t->retries = mem_one_more(t->retries, answer->n_retries, &t->retries_room, sizeof(*t->retries));
		t->retries[answer->n_retries++] = (struct retry){
			.entity = field_raw(res, row, held),
			.row_id = field_raw(res, row, held),
			.attempts = (uint32_t)field_int4(res, row, own_field(res, TAKE_ATTEMPTS)),
		};
	}
	answer->retries = t->retries;
}

/* They come first, and say no place. */
static uint32_t count_due(const PGresult *res)
{
	int n = 0;

	while (n < PQntuples(res) && PQgetisnull(res, n, own_field(res, TAKE_PLACE)))
		n++;
	return (uint32_t)n;
}

bool take_rows(struct take *t, PGresult *res, struct answer *answer)
{
	uint32_t n = (uint32_t)PQntuples(res), n_due = count_due(res), locked = n;
	const char *last = NULL;
	bool whole;

	if (n > 0) {
		if (!PQgetisnull(res, 0, own_field(res, TAKE_LOCKED)))
			locked = (uint32_t)field_int4(res, 0, own_field(res, TAKE_LOCKED));
		if (n > n_due)
			last = PQgetvalue(res, (int)n - 1, own_field(res, TAKE_PLACE));
		/* Each partition has a TOAST table of its own: too many to ask. */
		t->large_rows = t->env->table->partitioned || field_int4(res, 0, own_field(res, TAKE_LARGE)) > 0;
	}
	whole = locked - n_due < t->asked_rows && n == locked;  /* nothing is left behind it */
	hand_move(t->env->hand, whole ? NULL : last, t->has_hand);
	pass_hand(t);
	if (n == 0 && !t->from_lowest) {
		PQclear(res);
		return false;
	}
	answer->rows = res;
	answer->looked = locked;
	answer->exhausted = whole && t->from_lowest && n_due < (t->asked_rows + 1) / 2;
	note_retries(t, res, answer);
	return true;
}
