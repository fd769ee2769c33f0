#include "steer/explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "keep/node.h"
#include "pg/exec.h"
#include "steer/entity.h"
#include "steer/holder.h"

#define TEXT_CEILING ((size_t)16 << 10)

/* --- what is said ------------------------------------------------------------------------------------------------- */

/* Takes over the sentence. */
static void add_reason(struct explanation *e, const char *state, char *sentence)
{
	e->reasons = mem_one_more(e->reasons, e->n_reasons, &e->reasons_room, sizeof(*e->reasons));
	e->reasons[e->n_reasons++] = (struct reason){ state, sentence };
}

static void add_fact(struct explanation *e, const char *key, const char *text)
{
	if (!text || !text[0])
		return;
	e->facts = mem_one_more(e->facts, e->n_facts, &e->facts_room, sizeof(*e->facts));
	e->facts[e->n_facts++] = (struct fact){ key, mem_strdup(text) };
}

static void add_count(struct explanation *e, const char *key, int64_t n, int64_t max)
{
	_cleanup_(mem_freep) char *text = mem_printf("%s%lld", n >= max ? "at least " : "", (long long)n);

	add_fact(e, key, text);
}

void explanation_release(struct explanation *e)
{
	for (uint32_t i = 0; i < e->n_reasons; i++)
		free(e->reasons[i].sentence);
	for (uint32_t i = 0; i < e->n_facts; i++)
		free(e->facts[i].text);
	free(e->reasons);
	free(e->facts);
	*e = (struct explanation){ 0 };
}

static const char *value(const PGresult *res, int row, int column)
{
	return PQgetisnull(res, row, column) ? NULL : PQgetvalue(res, row, column);
}

static bool is_true(const PGresult *res, int row, int column)
{
	return PQgetvalue(res, row, column)[0] == 't';
}

/* What is being explained. */
struct question {
	PGconn *conn;
	const struct target *t;
	const char *outbox;             /* its name */
	const char *row;                /* id; NULL: of the entity there is no row */
	const char *entity;             /* NULL: the row has none */
	struct explanation *e;
};

/* --- the outbox as a whole ---------------------------------------------------------------------------------------- */

static const char sql_pause[] =
	"SELECT " PG_RFC3339("p.since", "") ", p.by FROM postrider.pause p WHERE p.outbox = {outbox}";

static bool ask_pause(const struct question *q, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!target_query(q->t, q->conn, "look whether it is paused", sql_pause, 0, NULL, &res, err))
		return false;
	if (PQntuples(res) > 0)
		add_reason(q->e, "paused", mem_printf("outbox %s is paused since %s by %s; `postrider resume %s` lets it go on",
						      q->outbox, value(res, 0, 0), value(res, 0, 1), q->outbox));
	return true;
}

/* $1 table */
static const char sql_nodes[] =
	"SELECT count(*) FILTER (WHERE NOT n.silent), count(*) FILTER (WHERE n.silent),"
	" " PG_RFC3339("max(n.heartbeat_at)", "") ", string_agg(n.id || ' (' || n.name || ')', ', ' ORDER BY n.id),"
	" coalesce(sum(n.connected) FILTER (WHERE NOT n.silent), 0), max(n.why) FILTER (WHERE NOT n.silent)"
	" FROM (SELECT n.id, n.name, n.heartbeat_at, " NODE_IS_SILENT " OR " NODE_IS_GONE " AS silent,"
	"   (SELECT count(*) FROM jsonb_path_query(n.state, '$.outboxes[*] ? (@.table == $t).workers[*] ? (@.connected == true)',"
	"     jsonb_build_object('t', $1::text))) AS connected,"
	"   jsonb_path_query_first(n.state, '$.outboxes[*] ? (@.table == $t).workers[*].error',"
	"     jsonb_build_object('t', $1::text)) #>> '{}' AS why"
	"  FROM postrider.node n WHERE jsonb_path_exists(n.state, '$.outboxes[*] ? (@.table == $t)',"
	"     jsonb_build_object('t', $1::text))) n";

enum { NODES_ALIVE, NODES_SILENT, NODES_HEARD_AT, NODES_NAMES, NODES_CONNECTED, NODES_WHY };

static bool ask_nodes(const struct question *q, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	const char *table = q->t->table->name, *why;

	if (!pg_query(q->conn, "look at the nodes", sql_nodes, 1, &table, &res, err))
		return false;
	why = value(res, 0, NODES_WHY);
	if (atoll(PQgetvalue(res, 0, NODES_ALIVE)) == 0 && atoll(PQgetvalue(res, 0, NODES_SILENT)) == 0)
		add_reason(q->e, "no_node", mem_printf("no node relays outbox %s: start one with `postrider run`", q->outbox));
	else if (atoll(PQgetvalue(res, 0, NODES_ALIVE)) == 0)
		add_reason(q->e, "nodes_silent",
			   mem_printf("no node that relays outbox %s has been heard of since %s", q->outbox,
				      value(res, 0, NODES_HEARD_AT)));
	/* Without a reason they are just starting. */
	else if (atoll(PQgetvalue(res, 0, NODES_CONNECTED)) == 0 && why)
		add_reason(q->e, "no_worker", mem_printf("no worker of outbox %s is connected to the database: %s", q->outbox, why));
	add_fact(q->e, "nodes", value(res, 0, NODES_NAMES));
	return true;
}

/* Sinks that are away, as nodes say it. $1 table */
static const char sql_sinks[] =
	"SELECT DISTINCT ON (s.item ->> 'name') s.item ->> 'name', s.item ->> 'open_since', s.item ->> 'reason', n.id, n.name"
	" FROM postrider.node n CROSS JOIN jsonb_path_query(n.state,"
	"   '$.outboxes[*] ? (@.table == $t).sinks[*] ? (@.open_since != null)', jsonb_build_object('t', $1::text)) s(item)"
	" WHERE NOT " NODE_IS_SILENT " ORDER BY s.item ->> 'name', s.item ->> 'open_since'";

static bool ask_sinks(const struct question *q, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	const char *table = q->t->table->name;

	if (!pg_query(q->conn, "look at the sinks", sql_sinks, 1, &table, &res, err))
		return false;
	for (int i = 0; i < PQntuples(res); i++)
		add_reason(q->e, "sink_away",
			   mem_printf("sink %s is away since %s, as node %s (%s) sees it: %s", value(res, i, 0), value(res, i, 1),
				      value(res, i, 3), value(res, i, 4), value(res, i, 2) ? value(res, i, 2) : "no reason"));
	return true;
}

/* The reader wal reads nothing while its slot has nobody, and first of all what was there before the slot. */
static const char sql_slot[] =
	"SELECT w.slot, w.polling_since IS NOT NULL, s.slot_name IS NULL OR coalesce(s.wal_status, 'lost') = 'lost',"
	" coalesce(s.active, false), (SELECT count(*) FROM (SELECT FROM postrider.wal_backlog b WHERE b.outbox = {outbox}"
	"   LIMIT 100000) c)"
	" FROM postrider.wal w LEFT JOIN pg_replication_slots s ON s.slot_name = w.slot WHERE w.outbox = {outbox}";

static bool ask_slot(const struct question *q, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!q->t->driver->rings_itself)
		return true;
	if (!target_query(q->t, q->conn, "look at the replication slot", sql_slot, 0, NULL, &res, err))
		return false;
	if (PQntuples(res) == 0)
		add_reason(q->e, "no_slot", mem_printf("outbox %s has no replication slot: run `postrider init`", q->outbox));
	else if (is_true(res, 0, 2) && !is_true(res, 0, 1))
		add_reason(q->e, "slot_lost", mem_printf("replication slot %s is gone or lost: see `postrider check`",
							 value(res, 0, 0)));
	else if (!is_true(res, 0, 3) && !is_true(res, 0, 1) && atoll(PQgetvalue(res, 0, 4)) == 0)
		add_reason(q->e, "slot_idle", mem_printf("nobody reads from replication slot %s at the moment", value(res, 0, 0)));
	if (PQntuples(res) > 0 && atoll(PQgetvalue(res, 0, 4)) > 0)
		add_count(q->e, "rows from before the slot", atoll(PQgetvalue(res, 0, 4)), ENTITY_ROWS_MAX);
	return true;
}

static const char sql_pending[] = "SELECT count(*) FROM (SELECT FROM {table} o WHERE {pending} LIMIT 100000) c";

static bool ask_pending(const struct question *q, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!target_query(q->t, q->conn, "count pending rows", sql_pending, 0, NULL, &res, err))
		return false;
	add_count(q->e, "rows in the outbox", atoll(PQgetvalue(res, 0, 0)), ENTITY_ROWS_MAX);
	return true;
}

/* --- the entity --------------------------------------------------------------------------------------------------- */

static bool is_this_row(const struct question *q, const char *id)
{
	return q->row && id && strcmp(q->row, id) == 0;
}

/* "row 17" or "entity e" */
static char *subject(const struct question *q)
{
	return q->e->is_row ? mem_printf("row %s", q->row) : mem_printf("entity %s", q->entity ? q->entity : "");
}

static void say_parked(const struct question *q, const PGresult *entry)
{
	add_reason(q->e, "parked", mem_printf("entity %s was put aside at %s: %s; `postrider entity unblock` lets it go on",
					      q->entity, value(entry, 0, ENTRY_BLOCKED_AT), value(entry, 0, ENTRY_ERROR)));
}

static void say_held(const struct question *q, const PGresult *entry)
{
	const char *row = value(entry, 0, ENTRY_ROW), *blocked = value(entry, 0, ENTRY_BLOCKED_AT);
	const char *error = value(entry, 0, ENTRY_ERROR), *attempts = value(entry, 0, ENTRY_ATTEMPTS);
	_cleanup_(mem_freep) char *who = subject(q);
	_cleanup_(mem_freep) char *lead = is_this_row(q, row) ?
		mem_printf("%s was refused %s times, the last time at %s", who, attempts, value(entry, 0, ENTRY_LAST_FAILED_AT)) :
		mem_printf("%s waits behind row %s, which was refused %s times since %s", who, row, attempts,
			   value(entry, 0, ENTRY_FIRST_FAILED_AT));

	if (blocked)
		add_reason(q->e, "blocked", mem_printf("%s, and is not tried any more since %s: %s", lead, blocked, error));
	else if (atoll(value(entry, 0, ENTRY_RETRY_MS)) > 0)
		add_reason(q->e, "held_back", mem_printf("%s, and is tried again at %s: %s", lead, value(entry, 0, ENTRY_RETRY_AT),
							 error));
	else
		add_reason(q->e, "due", mem_printf("%s, and is due to be tried again: %s", lead, error));
}

static void say_entry(const struct question *q, const struct entity *e)
{
	if (PQntuples(e->entry) == 0)
		return;
	if (is_true(e->entry, 0, ENTRY_PARKED))
		say_parked(q, e->entry);
	else if (!PQgetisnull(e->entry, 0, ENTRY_ROW)) {
		say_held(q, e->entry);
		add_fact(q->e, "kind of error", value(e->entry, 0, ENTRY_KIND));
	}
}

static void say_holders(const struct question *q, const struct entity *e)
{
	static const struct {
		const char *by, *state, *verb;
	} words[] = {
		{ "lock", "in_flight", "is being published by" },
		{ "lease", "in_flight", "is being published by" },
		{ "shard", NULL, "its shard belongs to" },
		{ "leader", NULL, "the outbox is read by" },
	};

	for (int i = 0; i < PQntuples(e->holders); i++)
		for (size_t k = 0; k < ARRAY_SIZE(words); k++) {
			_cleanup_(buf_release) struct buf text = { 0 };

			if (strcmp(PQgetvalue(e->holders, i, HOLDER_BY), words[k].by) != 0)
				continue;
			buf_init(&text, TEXT_CEILING);
			holder_describe(e->holders, i, &text);
			if (words[k].state && q->entity && e->waiting > 0)
				add_reason(q->e, words[k].state, mem_printf("entity %s %s %s", q->entity, words[k].verb,
									    buf_str(&text)));
			else
				add_fact(q->e, words[k].verb, buf_str(&text));
		}
}

static bool ask_entity(const struct question *q, struct error *err)
{
	_cleanup_(entity_release) struct entity e = { 0 };
	const char *name = q->t->ordered ? q->entity : q->row;

	if (!name)
		return true;
	if (!entity_read(q->conn, q->t, name, &e, err))
		return false;
	say_entry(q, &e);
	say_holders(q, &e);
	add_fact(q->e, "first row of the entity", e.first);
	add_count(q->e, "rows of the entity", e.waiting, ENTITY_ROWS_MAX);
	if (q->t->driver->rings_itself)
		add_count(q->e, "events put aside", e.put_aside, ENTITY_ROWS_MAX);
	if (e.dead > 0)
		add_count(q->e, "dead letters of the entity", e.dead, INT64_MAX);
	if (!q->e->is_row && e.waiting == 0 && e.put_aside == 0)
		add_reason(q->e, "nothing_waits",
			   mem_printf("nothing of entity %s waits in outbox %s: all of it that is committed has been published",
				      q->entity, q->outbox));
	return true;
}

/* --- the row ------------------------------------------------------------------------------------------------------ */

/* The column that plays a part that only some tables have; NULL: none. */
static const struct table_column *column_for(const struct table *t, const char *key)
{
	for (size_t i = 0; i < FIELD_EXTRA; i++)
		if (strcmp(table_mappings[i].key, key) == 0)
			return t->columns[i].name ? &t->columns[i] : NULL;
	return NULL;
}

/* A name that cannot be an id of this table is none: that is no failure. */
static bool query_by_id(const struct question *q, const char *doing, const char *sql, const char *id, PGresult **ret,
			struct error *err)
{
	if (pg_query(q->conn, doing, sql, 1, &id, ret, err))
		return true;
	if (err->kind != ERROR_REJECTED)
		return false;
	*ret = NULL;
	return true;
}

enum { ROW_ENTITY, ROW_CREATED_AT, ROW_SCHEDULED_AT, ROW_IS_SCHEDULED, ROW_PUBLISHED_AT, ROW_BEFORE };

static bool read_row(const struct question *q, const char *id, PGresult **ret, struct error *err)
{
	const struct table_column *created = &q->t->table->columns[FIELD_CREATED_AT];
	const struct table_column *scheduled = column_for(q->t->table, "scheduled_for");
	const struct table_column *published = column_for(q->t->table, "published_at");
	_cleanup_(mem_freep) char *created_at = created->name ? mem_printf("o.%s::text", created->quoted) : mem_strdup("NULL");
	_cleanup_(mem_freep) char *scheduled_at = scheduled ? mem_printf("o.%s", scheduled->quoted) : mem_strdup("NULL::timestamptz");
	_cleanup_(mem_freep) char *published_at = published ? mem_printf("o.%s", published->quoted) : mem_strdup("NULL::timestamptz");
	_cleanup_(mem_freep) char *template = mem_printf(
		"SELECT o.{key}::text, %s, " PG_RFC3339("%s", ".MS") ", coalesce(%s > clock_timestamp(), false), "
		PG_RFC3339("%s", ".MS") ", (SELECT count(*) FROM (SELECT FROM {table} p WHERE p.{key} = o.{key}"
		"   AND p.{order} < o.{order} LIMIT 100000) c) FROM {table} o WHERE o.{id} = $1::{id_type} LIMIT 1",
		created_at, scheduled_at, scheduled_at, published_at);
	_cleanup_(mem_freep) char *sql = target_sql(q->t, template);

	return query_by_id(q, "look for the row", sql, id, ret, err);
}

/* The name of the table where published rows are kept, if there is one. */
static const char sql_archive[] =
	"SELECT format('%I.%I', n.nspname, a.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
	" JOIN pg_class a ON a.relnamespace = c.relnamespace AND a.relname = c.relname || '_archive'"
	" WHERE c.oid = {oid}";

static bool find_in_archive(const struct question *q, const char *id, bool *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *archive = NULL, *row = NULL;
	_cleanup_(mem_freep) char *sql = NULL;

	*ret = false;
	if (!target_query(q->t, q->conn, "look for an archive", sql_archive, 0, NULL, &archive, err))
		return false;
	if (PQntuples(archive) == 0)
		return true;
	sql = mem_printf("SELECT FROM %s o WHERE o.%s = $1::%s LIMIT 1", PQgetvalue(archive, 0, 0),
			 q->t->table->columns[FIELD_ID].quoted, q->t->table->columns[FIELD_ID].type);
	if (!query_by_id(q, "look into the archive", sql, id, &row, err))
		return false;
	*ret = row && PQntuples(row) > 0;
	if (*ret)
		add_reason(q->e, "published", mem_printf("row %s was published: it is in %s", id, PQgetvalue(archive, 0, 0)));
	return true;
}

/* $1 id */
static const char sql_letter[] =
	"SELECT d.id, " PG_RFC3339("d.died_at", "") ", d.attempts, d.error, d.entity FROM postrider.dead_letter d"
	" WHERE d.outbox = {outbox} AND d.row_id = $1 ORDER BY d.id DESC LIMIT 1";
static const char sql_put_aside[] =
	"SELECT p.entity, " PG_RFC3339("p.parked_at", "") " FROM postrider.parked p WHERE p.outbox = {outbox} AND p.row_id = $1"
	" ORDER BY p.n LIMIT 1";

static void say_dead(const struct question *q, const char *id, const PGresult *letter)
{
	add_reason(q->e, "dead", mem_printf("row %s is a dead letter since %s, after %s attempts: %s;"
					    " `postrider dead retry %s` puts it back", id, value(letter, 0, 1), value(letter, 0, 2),
					    value(letter, 0, 3), value(letter, 0, 0)));
	add_fact(q->e, "dead letter", value(letter, 0, 0));
	add_fact(q->e, "entity", value(letter, 0, 4));
}

/* *ret_found: somewhere else than in the table. */
static bool look_elsewhere(struct question *q, const char *id, bool *ret_found, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *letter = NULL, *parked = NULL;

	if (!target_query(q->t, q->conn, "look for a dead letter", sql_letter, 1, &id, &letter, err) ||
	    !target_query(q->t, q->conn, "look for it among what is put aside", sql_put_aside, 1, &id, &parked, err))
		return false;
	*ret_found = PQntuples(letter) > 0 || PQntuples(parked) > 0;
	if (PQntuples(letter) > 0)
		say_dead(q, id, letter);
	else if (PQntuples(parked) > 0) {
		q->entity = value(parked, 0, 0);
		add_fact(q->e, "entity", q->entity);
		add_fact(q->e, "put aside at", value(parked, 0, 1));
		return ask_entity(q, err) && ask_nodes(q, err) && ask_sinks(q, err);
	}
	return *ret_found || find_in_archive(q, id, ret_found, err);
}

static void say_absent(const struct question *q, const char *id)
{
	add_reason(q->e, "not_there",
		   mem_printf("row %s is not in %s: it was published, or was never there, or its transaction has not committed,"
			      " which nobody else can see", id, q->t->table->name));
}

static bool explain_waiting_row(struct question *q, const PGresult *row, struct error *err)
{
	q->entity = value(row, 0, ROW_ENTITY);
	if (value(row, 0, ROW_PUBLISHED_AT))
		add_reason(q->e, "published", mem_printf("row %s was published at %s", q->row, value(row, 0, ROW_PUBLISHED_AT)));
	if (!q->entity && q->t->ordered && !q->t->driver->takes_nameless)
		add_reason(q->e, "no_entity",
			   mem_printf("row %s has no entity, and the reader %s never publishes such rows; `postrider check` says how"
				      " to mend it", q->row, q->t->config->reader));
	if (is_true(row, 0, ROW_IS_SCHEDULED))
		add_reason(q->e, "scheduled", mem_printf("row %s is scheduled for %s", q->row, value(row, 0, ROW_SCHEDULED_AT)));
	add_fact(q->e, "entity", q->entity);
	add_fact(q->e, "created at", value(row, 0, ROW_CREATED_AT));
	if (q->t->ordered)
		add_count(q->e, "rows of the entity before it", atoll(PQgetvalue(row, 0, ROW_BEFORE)), ENTITY_ROWS_MAX);
	return ask_pause(q, err) && ask_nodes(q, err) && ask_slot(q, err) && ask_sinks(q, err) && ask_entity(q, err) &&
	       ask_pending(q, err);
}

static void say_its_turn(const struct question *q)
{
	_cleanup_(mem_freep) char *who = NULL;

	if (q->e->n_reasons > 0)
		return;
	who = subject(q);
	add_reason(q->e, "waiting", mem_printf("nothing holds %s back: it waits for its turn, or goes out this moment", who));
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

/* *ret_found: there is such a row, or was one that is remembered. */
static bool explain_row(struct question *q, const char *id, bool *ret_found, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *row = NULL;
	bool ok;

	q->e->is_row = true;
	q->row = id;
	if (!read_row(q, id, &row, err))
		return false;
	*ret_found = row && PQntuples(row) > 0;
	ok = *ret_found ? explain_waiting_row(q, row, err) : look_elsewhere(q, id, ret_found, err);
	if (ok && *ret_found)
		say_its_turn(q);
	return ok;
}

static bool explain_entity(struct question *q, const char *name, struct error *err)
{
	q->e->is_row = false;
	q->row = NULL;
	q->entity = name;
	if (!ask_pause(q, err) || !ask_nodes(q, err) || !ask_slot(q, err) || !ask_sinks(q, err) || !ask_entity(q, err) ||
	    !ask_pending(q, err))
		return false;
	say_its_turn(q);
	return true;
}

/* What is the matter with the thing itself comes before what is the matter with the whole outbox: when that is mended, it is
 * what is left. */
static int rank(const struct reason *r)
{
	static const char *const order[] = { "published", "dead",      "not_there", "no_entity", "parked",    "blocked",
					     "nothing_waits", "scheduled", "held_back", "paused", "no_node",   "nodes_silent",
					     "no_slot",   "slot_lost", "no_worker", "sink_away", "slot_idle", "in_flight",
					     "due",       "waiting" };
	int i = 0;

	while (i < (int)ARRAY_SIZE(order) && strcmp(order[i], r->state) != 0)
		i++;
	return i;
}

static int compare_reasons(const void *a, const void *b)
{
	return rank(a) - rank(b);
}

/* A name that nothing is known of may have been meant as a row's or as an entity's. */
static void say_unknown(const struct question *q, const char *name)
{
	struct reason *first = &q->e->reasons[0];

	if (strcmp(first->state, "nothing_waits") != 0)
		return;
	free(first->sentence);
	*first = (struct reason){ "not_there",
				  mem_printf("outbox %s has no row %s, and nothing waits of an entity %s: it was published, or was never"
					     " there, or its transaction has not committed, which nobody else can see",
					     q->outbox, name, name) };
}

bool explain(PGconn *conn, const struct target *t, const char *name, enum explain_what what, struct explanation *ret,
	     struct error *err)
{
	_cleanup_(explanation_release) struct explanation e = { 0 };
	struct question q = { .conn = conn, .t = t, .outbox = t->config->name, .e = &e };
	bool found = false;

	if (what != EXPLAIN_ENTITY && !explain_row(&q, name, &found, err))
		return false;
	if (!found && what == EXPLAIN_ROW)
		say_absent(&q, name);
	if (!found && what != EXPLAIN_ROW && !explain_entity(&q, name, err))
		return false;
	qsort(e.reasons, e.n_reasons, sizeof(*e.reasons), compare_reasons);
	if (what == EXPLAIN_EITHER)
		say_unknown(&q, name);
	*ret = e;
	e = (struct explanation){ 0 };
	return true;
}
