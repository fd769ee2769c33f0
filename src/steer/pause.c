#include "steer/pause.h"

#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "keep/node.h"
#include "pg/exec.h"

enum { LOOK_MS = 30 };

static const char sql_pause[] =
	"INSERT INTO postrider.pause (outbox, by) VALUES ({outbox}, $1) ON CONFLICT (outbox) DO NOTHING RETURNING outbox";
static const char sql_resume[] = "DELETE FROM postrider.pause p WHERE p.outbox = {outbox} RETURNING p.outbox";

/* $1 table, $2 whether it should be paused. A program that knows nothing of pauses does not say so. */
static const char sql_behind[] =
	"SELECT n.id, n.name FROM postrider.node n WHERE NOT " NODE_IS_SILENT " AND NOT " NODE_IS_GONE
	" AND jsonb_path_exists(n.state, '$.outboxes[*] ? (@.table == $t && !(@.paused == $p))',"
	"   jsonb_build_object('t', $1::text, 'p', $2::bool))"
	" ORDER BY n.id";

static const char sql_in_flight[] =
	"SELECT coalesce(sum((w.item ->> 'rows')::bigint), 0) FROM postrider.node n"
	" CROSS JOIN jsonb_path_query(n.state, '$.outboxes[*] ? (@.table == $t).workers[*]', jsonb_build_object('t', $1::text))"
	"   AS w(item)";

bool pause_set(PGconn *conn, const struct target *t, bool paused, const char *by, bool *ret_changed, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!target_query(t, conn, paused ? "pause the outbox" : "resume the outbox", paused ? sql_pause : sql_resume, paused,
			  (const char *const[]){ by }, &res, err))
		return false;
	*ret_changed = PQntuples(res) > 0;
	return target_notify(t, conn, err);
}

bool pause_await(PGconn *conn, const struct target *t, bool paused, int64_t timeout_ms, PGresult **ret, struct error *err)
{
	int64_t deadline = clock_ms() + timeout_ms;
	const char *const params[] = { t->table->name, paused ? "true" : "false" };

	for (;;) {
		_cleanup_(pg_result_clearp) PGresult *res = NULL;

		if (!pg_query(conn, "ask the nodes", sql_behind, ARRAY_SIZE(params), params, &res, err))
			return false;
		if (PQntuples(res) == 0 || clock_ms() >= deadline) {
			*ret = TAKE_PTR(res);
			return true;
		}
		poll(NULL, 0, LOOK_MS);
	}
}

bool pause_in_flight(PGconn *conn, const struct target *t, int64_t *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pg_query(conn, "ask the nodes", sql_in_flight, 1, (const char *const[]){ t->table->name }, &res, err))
		return false;
	*ret = atoll(PQgetvalue(res, 0, 0));
	return true;
}
