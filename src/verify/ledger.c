#include "verify/ledger.h"

#include <stdlib.h>

#include "base/mem.h"

enum { ROWS_AT_FIRST = 32 };

void ledger_init(struct ledger *l)
{
	*l = (struct ledger){ 0 };
	words_init(&l->ids);
	words_init(&l->entities);
	words_init(&l->topics);
	words_init(&l->unroutable);
}

void ledger_release(struct ledger *l)
{
	words_release(&l->ids);
	words_release(&l->entities);
	words_release(&l->topics);
	words_release(&l->unroutable);
	free(l->rows);
	*l = (struct ledger){ 0 };
}

bool ledger_add(struct ledger *l, const struct ledger_entry *e)
{
	uint32_t number, topic;
	bool is_new;

	if (l->ids.count >= LEDGER_ROWS_MAX)
		return false;
	topic = words_add(&l->topics, e->topic, &is_new);
	if (topic >= LEDGER_TOPICS_MAX)
		return false;
	number = words_add(&l->ids, e->id, &is_new);
	if (!is_new) {
		l->repeated++;
		return true;
	}
	if (number == l->rows_room) {
		l->rows_room = l->rows_room ? 2 * l->rows_room : ROWS_AT_FIRST;
		l->rows = mem_resize(l->rows, l->rows_room * sizeof(*l->rows));
	}
	l->rows[number] = (struct ledger_row){
		.entity = e->entity.ptr ? words_add(&l->entities, e->entity, &is_new) : WORDS_NONE,
		.rank = e->rank,
		.topic = (uint16_t)topic,
		.pending = e->pending,
	};
	return true;
}

bool ledger_add_unroutable(struct ledger *l, struct slice id)
{
	bool is_new;

	if (l->unroutable.count >= LEDGER_ROWS_MAX)
		return false;
	words_add(&l->unroutable, id, &is_new);
	return true;
}

void ledger_set_pending(struct ledger *l, struct slice id)
{
	uint32_t number = words_find(&l->ids, id);

	if (number != WORDS_NONE)
		l->rows[number].pending = true;
}
