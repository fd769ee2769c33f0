#include "sink/ride.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "pg/exec.h"

bool ride_repeats(struct ride *r, const struct event *first)
{
	struct slice id = first->message_id;
	bool repeats = r->last_first && slice_is(id, r->last_first);

	free(r->last_first);
	r->last_first = mem_strndup(id.ptr, id.len);
	return repeats;
}

void ride_release(struct ride *r)
{
	free(r->last_first);
	r->last_first = NULL;
}

static bool is_prepared(const struct ride_statement *s, PGconn *conn, const char *sql)
{
	return s->prepared_on == conn && s->prepared_pid == PQbackendPID(conn) && strcmp(s->prepared_sql, sql) == 0;
}

bool ride_prepare(struct ride_statement *s, PGconn *conn, const char *sql, const char *doing, uint32_t *results,
		  struct error *err)
{
	static _Atomic uint32_t number;

	if (is_prepared(s, conn, sql))
		return true;
	ride_statement_forget(s);
	snprintf(s->name, sizeof(s->name), "postrider_ride_%u", atomic_fetch_add(&number, 1));
	if (!PQsendPrepare(conn, s->name, sql, 0, NULL))
		return pg_error(conn, NULL, doing, err);
	s->prepared_on = conn;
	s->prepared_pid = PQbackendPID(conn);
	s->prepared_sql = mem_strdup(sql);
	(*results)++;
	return true;
}

void ride_statement_forget(struct ride_statement *s)
{
	s->prepared_on = NULL;
	free(s->prepared_sql);
	s->prepared_sql = NULL;
}
