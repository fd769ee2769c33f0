/* Why a row, or the next row of an entity, is not out yet: every reason that the database knows of, the one that matters most
 * first, and what is known besides. */
#ifndef POSTRIDER_STEER_EXPLAIN_H
#define POSTRIDER_STEER_EXPLAIN_H

#include "steer/target.h"

/* The word for programs, the sentence for people. */
struct reason {
	const char *state;
	char *sentence;
};

struct fact {
	const char *key;
	char *text;
};

struct explanation {
	bool is_row;                    /* what was asked for is the id of a row; otherwise an entity */
	struct reason *reasons;         /* at least one */
	uint32_t n_reasons, reasons_room;
	struct fact *facts;
	uint32_t n_facts, facts_room;
};

enum explain_what { EXPLAIN_EITHER, EXPLAIN_ROW, EXPLAIN_ENTITY };

/* With EXPLAIN_EITHER a name is taken for a row's id if the outbox, its dead letters or what is put aside of it has such a
 * row, and otherwise for an entity. */
bool explain(PGconn *conn, const struct target *t, const char *name, enum explain_what what, struct explanation *ret,
	     struct error *err);
void explanation_release(struct explanation *e);        /* also for _cleanup_ */

#endif
