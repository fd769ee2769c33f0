#include "read/horizon.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "pg/array.h"

enum { LOOK_EVERY_MS = 50 };
#define PLACE_CEILING ((size_t)1 << 20)

void horizon_init(struct horizon *h, int first_statement)
{
	*h = (struct horizon){ .first_statement = first_statement };
	buf_init(&h->at, PLACE_CEILING);
	buf_init(&h->candidate, PLACE_CEILING);
	buf_init(&h->param, 2 * PLACE_CEILING);
}

static void forget_writers(struct horizon *h)
{
	for (uint32_t i = 0; i < h->n_writers; i++)
		free(h->writers[i]);
	free(h->writers);
	h->writers = NULL;
	h->n_writers = 0;
}

void horizon_release(struct horizon *h)
{
	forget_writers(h);
	buf_release(&h->at);
	buf_release(&h->candidate);
	buf_release(&h->param);
}

struct param horizon_param(struct horizon *h)
{
	array_begin(&h->param, h->type ? h->type : TYPE_TEXT);
	if (h->known)
		array_add(&h->param, (struct slice){ h->at.data, h->at.len });
	/* Without a row there is no telling which type an empty list should have. */
	return h->known ? array_param(&h->param) : text_param(NULL);
}

/* --- asking ----------------------------------------------------------------------------------------------------- */

/* The order of the two is what it rests on. They are statements of one transaction, each with a snapshot of its own. */
static bool send_look(struct horizon *h, struct pipeline *p, struct error *err)
{
	const struct param since[] = { horizon_param(h) };

	h->fresh = !h->has_candidate;
	if (h->fresh && !pipeline_send(p, h->first_statement + (h->known ? HORIZON_HIGHER : HORIZON_HIGHEST), since,
				       h->known ? 1 : 0, true, err))
		return false;
	return pipeline_send(p, h->first_statement + HORIZON_WRITERS, NULL, 0, false, err);
}

bool horizon_send(struct horizon *h, struct pipeline *p, int64_t now_ms, struct error *err)
{
	if (now_ms - h->asked_ms < LOOK_EVERY_MS)
		return true;
	h->asked_ms = now_ms;
	return send_look(h, p, err);
}

struct first_look {
	struct horizon *horizon;
	struct pipeline *pipeline;
};

static bool take_first(void *arg, int statement, PGresult *res, struct error *err)
{
	struct first_look *look = arg;
	bool worked = pipeline_worked(look->pipeline, statement, res, err);

	if (worked)
		horizon_take(look->horizon, statement, res);
	PQclear(res);
	return worked;
}

bool horizon_open(struct horizon *h, struct pipeline *p, int64_t timeout_ms, struct error *err)
{
	struct first_look first = { h, p };

	/* Nearly always the second look finds that those of the first have ended. */
	for (int look = 0; look < 2; look++)
		if (!send_look(h, p, err) || !pipeline_sync(p, err) || !pipeline_wait(p, timeout_ms, take_first, &first, err))
			return false;
	return true;
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

static void note_highest(struct horizon *h, const PGresult *res)
{
	h->has_candidate = PQntuples(res) > 0;
	if (!h->has_candidate)
		return;
	h->type = PQftype(res, 0);
	buf_clear(&h->candidate);
	buf_add(&h->candidate, PQgetvalue(res, 0, 0), (size_t)PQgetlength(res, 0, 0));
}

static bool still_writes(const PGresult *res, const char *writer)
{
	for (int i = 0; i < PQntuples(res); i++)
		if (strcmp(PQgetvalue(res, i, 0), writer) == 0)
			return true;
	return false;
}

static void note_writers(struct horizon *h, const PGresult *res)
{
	h->n_writers = (uint32_t)PQntuples(res);
	h->writers = mem_new_array(char *, h->n_writers);
	for (uint32_t i = 0; i < h->n_writers; i++)
		h->writers[i] = mem_strdup(PQgetvalue(res, (int)i, 0));
}

static void forget_those_who_ended(struct horizon *h, const PGresult *res)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < h->n_writers; i++) {
		if (still_writes(res, h->writers[i]))
			h->writers[kept++] = h->writers[i];
		else
			free(h->writers[i]);
	}
	h->n_writers = kept;
}

bool horizon_take(struct horizon *h, int statement, const PGresult *res)
{
	switch (statement - h->first_statement) {
	case HORIZON_HIGHEST:
	case HORIZON_HIGHER:
		note_highest(h, res);
		return true;
	case HORIZON_WRITERS:
		break;
	default:
		return false;
	}
	if (h->fresh) {
		forget_writers(h);
		note_writers(h, res);
	} else {
		forget_those_who_ended(h, res);
	}
	if (h->has_candidate && h->n_writers == 0) {
		struct buf reached = h->candidate;

		h->candidate = h->at;
		h->at = reached;
		h->known = true;
		h->has_candidate = false;
		forget_writers(h);
	}
	return true;
}
