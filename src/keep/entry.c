#include "keep/entry.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "keep/heart_sql.h"
#include "pg/exec.h"

/* Each on its own: the second must see what was committed while the first one waited. */
static const char sql_begin[] = "BEGIN ISOLATION LEVEL READ COMMITTED";
static const char sql_one_at_a_time[] = "SELECT pg_advisory_xact_lock(hashtextextended('postrider.node', 0))";

/* The liveliest first. A program that does not say what order it keeps is judged by its reader. $1: our state; $2: how
 * long we have been connected. */
static const char sql_rival[] =
	"SELECT n.id, n.name, t.item ->> 'table', t.item ->> 'reader', t.item ->> 'order',"
	"  m.item ->> 'name', m.item ->> 'reader', m.item ->> 'order', n.alive, n.dead"
	" FROM (SELECT n.id, n.name, n.state, NOT " NODE_IS_SILENT " AND NOT " NODE_IS_GONE " AS alive,"
	"  " NODE_IS_DEAD("$2") " AS dead FROM postrider.node n) AS n,"
	" jsonb_path_query(n.state, '$.outboxes[*]') AS t(item),"
	" jsonb_path_query($1::jsonb, '$.outboxes[*]') AS m(item)"
	" WHERE t.item ->> 'table' = m.item ->> 'table'"
	"  AND (t.item ->> 'reader' <> m.item ->> 'reader' OR t.item ->> 'order' <> m.item ->> 'order')"
	" ORDER BY n.alive DESC, n.dead, n.id LIMIT 1";

enum {
	RIVAL_ID,
	RIVAL_NAME,
	RIVAL_TABLE,
	RIVAL_READER,
	RIVAL_ORDER,
	OUR_OUTBOX,
	OUR_READER,
	OUR_ORDER,
	RIVAL_ALIVE,
	RIVAL_DEAD,
	RIVAL_COLUMNS,
};

static const char sql_enter[] =
	"INSERT INTO postrider.node (name, version, schema, pid, heartbeat_ms, state, backend_pid, backend_start)"
	" SELECT $2, $3, $4::integer, $5::integer, $6::integer, $7::jsonb, s.pid, s.backend_start FROM " OWN_SESSION
	" RETURNING id";

static const char doing[] = "register this node";

static enum entry_result judge(const PGresult *rival, struct error *err)
{
	const char *value[RIVAL_COLUMNS], *setting, *theirs, *ours;
	bool same_reader;

	for (int i = 0; i < RIVAL_COLUMNS; i++)
		value[i] = PQgetvalue(rival, 0, i);
	same_reader = strcmp(value[RIVAL_READER], value[OUR_READER]) == 0;
	setting = same_reader ? "order" : "reader";
	theirs = value[same_reader ? RIVAL_ORDER : RIVAL_READER];
	ours = value[same_reader ? OUR_ORDER : OUR_READER];
	error_set(err, ERROR_CONFIG, "outbox %s: node %s (%s) reads %s with `%s: %s`, and this node would with `%s: %s`",
		  value[OUR_OUTBOX], value[RIVAL_ID], value[RIVAL_NAME], value[RIVAL_TABLE], setting, theirs, setting, ours);
	error_hint(err, "the two do not keep rows from each other: stop all nodes of this outbox, change the setting of"
			" each, then start them");
	if (value[RIVAL_ALIVE][0] == 't')
		return ENTRY_REFUSED;
	return value[RIVAL_DEAD][0] == 't' ? ENTRY_DEAD : ENTRY_LATER;
}

static enum entry_result enter(struct line *l, const struct entry *e, int64_t *ret_number, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *rival = NULL, *own = NULL;
	struct number session, schema, pid, heartbeat, watching;
	const char *const about_others[] = { e->state, number(&watching, e->watching_ms) };
	const char *const about_us[] = { line_own_pid(l, &session), e->name, POSTRIDER_VERSION,
					 number(&schema, e->schema), number(&pid, getpid()),
					 number(&heartbeat, e->heartbeat_ms), e->state };

	if (!line_ask(l, doing, sql_begin, 0, NULL, NULL, err) ||
	    !line_ask(l, doing, sql_one_at_a_time, 0, NULL, NULL, err) ||
	    !line_ask(l, doing, sql_rival, ARRAY_SIZE(about_others), about_others, &rival, err))
		return ENTRY_FAILED;
	if (PQntuples(rival) > 0)
		return judge(rival, err);
	if (!line_ask(l, doing, sql_enter, ARRAY_SIZE(about_us), about_us, &own, err) ||
	    !line_ask(l, doing, "COMMIT", 0, NULL, NULL, err))
		return ENTRY_FAILED;
	*ret_number = atoll(PQgetvalue(own, 0, 0));
	return ENTRY_DONE;
}

enum entry_result entry_try(struct line *l, const struct entry *e, int64_t *ret_number, struct error *err)
{
	enum entry_result result = enter(l, e, ret_number, err);
	struct error ignored;

	/* A line that is broken, or still waits for an answer, is closed by its owner. */
	if (PQtransactionStatus(l->conn) == PQTRANS_INTRANS || PQtransactionStatus(l->conn) == PQTRANS_INERROR)
		line_ask(l, doing, "ROLLBACK", 0, NULL, NULL, &ignored);
	return result;
}
