#include "steer/entity.h"

#include <stdlib.h>

#include "base/mem.h"
#include "pg/exec.h"
#include "steer/holder.h"

/* $1 entity */
static const char sql_entry[] =
	"SELECT r.row_id, r.attempts, r.kind, r.error, " PG_RFC3339("r.first_failed_at", ".MS") ", "
	PG_RFC3339("r.last_failed_at", ".MS") ", " PG_RFC3339("r.retry_at", ".MS") ","
	" greatest((extract(epoch FROM r.retry_at - clock_timestamp()) * 1000)::bigint, 0), "
	PG_RFC3339("r.blocked_at", ".MS") ", " TARGET_IS_PARKED
	" FROM postrider.retry r WHERE r.outbox = {outbox} AND r.entity = $1";

/* The key is in the order too so that the index on both is walked, whatever the planner thinks of the table. */
static const char sql_rows[] =
	"SELECT (SELECT count(*) FROM (SELECT FROM {table} o WHERE o.{lane} = $1::{lane_type} AND {pending} LIMIT 100000) c),"
	" (SELECT o.{id}::text FROM {table} o WHERE o.{lane} = $1::{lane_type} AND {pending} ORDER BY o.{lane}, o.{order} LIMIT 1),"
	" (SELECT count(*) FROM (SELECT FROM postrider.parked p WHERE p.outbox = {outbox} AND p.entity = $1 LIMIT 100000) c),"
	" (SELECT count(*) FROM postrider.dead_letter d WHERE d.outbox = {outbox} AND d.entity = $1)";

bool entity_read(PGconn *conn, const struct target *t, const char *name, struct entity *ret, struct error *err)
{
	_cleanup_(entity_release) struct entity e = { 0 };
	_cleanup_(pg_result_clearp) PGresult *rows = NULL;
	const char *const params[] = { name };

	if (!target_query(t, conn, "look at the entity", sql_entry, 1, params, &e.entry, err) ||
	    !target_query(t, conn, "count its rows", sql_rows, 1, params, &rows, err) ||
	    !holder_read(conn, t, name, &e.holders, err))
		return false;
	e.waiting = atoll(PQgetvalue(rows, 0, 0));
	e.first = PQgetisnull(rows, 0, 1) ? NULL : mem_strdup(PQgetvalue(rows, 0, 1));
	e.put_aside = atoll(PQgetvalue(rows, 0, 2));
	e.dead = atoll(PQgetvalue(rows, 0, 3));
	*ret = e;
	e = (struct entity){ 0 };
	return true;
}

void entity_release(struct entity *e)
{
	PQclear(e->entry);
	PQclear(e->holders);
	free(e->first);
	*e = (struct entity){ 0 };
}

/* --- letting go --------------------------------------------------------------------------------------------------- */

/* A person's entry ends with this, except where readers take entries for the sign to read an entity apart: there it ends
 * with the entity's rows, or stays until there are some. $1 entity, $2 whether that is so. */
static const char sql_unblock[] =
	"WITH ended AS (DELETE FROM postrider.retry r WHERE r.outbox = {outbox} AND r.entity = $1 AND " TARGET_IS_PARKED
	"   AND NOT $2::bool RETURNING 1),"
	" due AS (UPDATE postrider.retry r SET retry_at = clock_timestamp(), attempts = 0, blocked_at = NULL"
	"   WHERE r.outbox = {outbox} AND r.entity = $1 AND (NOT " TARGET_IS_PARKED " OR $2::bool) RETURNING 1)"
	" SELECT (SELECT count(*) FROM ended) + (SELECT count(*) FROM due)";

bool entity_unblock(PGconn *conn, const struct target *t, const char *name, bool *ret_found, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	const char *const params[] = { name, t->driver->reads_apart ? "true" : "false" };

	if (!target_query(t, conn, "let the entity go", sql_unblock, 2, params, &res, err))
		return false;
	*ret_found = atoll(PQgetvalue(res, 0, 0)) > 0;
	return target_notify(t, conn, err);
}

/* --- putting aside ------------------------------------------------------------------------------------------------ */

/* $1 entity, $2 reason */
static const char sql_park[] =
	"INSERT INTO postrider.retry AS r (outbox, entity, row_id, attempts, kind, error, retry_at, blocked_at)"
	" VALUES ({outbox}, $1::{lane_type}::text, NULL, 0, 'parked', $2, " TARGET_NEVER ", clock_timestamp())"
	" ON CONFLICT (outbox, entity) DO UPDATE SET row_id = NULL, attempts = 0, kind = excluded.kind, error = excluded.error,"
	"   retry_at = excluded.retry_at, blocked_at = excluded.blocked_at, first_failed_at = clock_timestamp(),"
	"   last_failed_at = clock_timestamp()";

bool entity_park(PGconn *conn, const struct target *t, const char *name, const char *reason, struct error *err)
{
	if (!t->ordered) {
		error_set(err, ERROR_CONFIG, "outbox %s keeps no order: its rows stand for themselves, and no entity can be parked",
			  t->config->name);
		return error_hint(err, "delete or change the rows, or pause the outbox: `postrider pause %s`", t->config->name);
	}
	return target_query(t, conn, "park the entity", sql_park, 2, (const char *const[]){ name, reason }, NULL, err) &&
	       target_notify(t, conn, err);
}
