/* What `check` says about the column of schedules of an outbox table: indexes by which claims pass over rows that are
 * scheduled for later, the triggers for rows that are rescheduled, and a default that makes every row a scheduled
 * one. */
#include "pg/schedule_check.h"

#include <string.h>

#include "base/mem.h"
#include "pg/exec.h"

struct schedule_checks {
	PGconn *conn;
	const struct outbox_config *outbox;
	const struct table *table;
	struct finding_list *findings;
};

#define fix_printf(...) _cleanup_(mem_freep) char *fix = mem_printf(__VA_ARGS__)

/* One question with a yes or no. False, and a finding, when it cannot be asked. */
static bool ask(struct schedule_checks *k, const char *doing, const char *sql, const char *second, const char *third,
		bool *ret)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	const char *const params[] = { k->table->name, k->table->scheduled.name, second, third };
	struct error err;

	if (!pg_query(k->conn, doing, sql, third ? 4 : second ? 3 : 2, params, &res, &err)) {
		finding_add_error(k->findings, &err);
		return false;
	}
	*ret = PQgetvalue(res, 0, 0)[0] == 't';
	return true;
}

/* Its columns, whether it is of rows that have a time or of the others, and what its lack means. */
struct wanted_index {
	const struct table_column *first, *second;      /* second may be NULL */
	bool timed;
	const char *otherwise;
};

#define COLUMNS "array_remove(ARRAY[$3::name, nullif($4, '')::name], NULL)"
#define HAS_TIMED "SELECT postrider.has_index($1::regclass, " COLUMNS ", format('(%I IS NOT NULL)', $2::name))"
/* Where there is none at all, table_check has said so. */
#define HAS_AT_ONCE                                                                                             \
	"SELECT postrider.has_index($1::regclass, " COLUMNS ", format('(%I IS NULL)', $2::name))"               \
	" OR NOT postrider.has_index($1::regclass, " COLUMNS ", NULL)"

static void check_index(struct schedule_checks *k, const struct wanted_index *w)
{
	const struct table *t = k->table;
	const char *not = w->timed ? "NOT " : "";
	bool there;

	if (!ask(k, "read the indexes of the table", w->timed ? HAS_TIMED : HAS_AT_ONCE, w->first->name,
		 w->second ? w->second->name : "", &there) ||
	    there)
		return;
	fix_printf("CREATE %s ON %s (%s%s%s) WHERE %s IS %sNULL;", t->partitioned ? "INDEX" : "INDEX CONCURRENTLY", t->name,
		   w->first->quoted, w->second ? ", " : "", w->second ? w->second->quoted : "", t->scheduled.quoted, not);
	finding_add(k->findings, FINDING_WARN, fix, "table %s: no index on (%s%s%s) where %s is %snull, so %s", t->name,
		    w->first->name, w->second ? ", " : "", w->second ? w->second->name : "", t->scheduled.name,
		    w->timed ? "not " : "", w->otherwise);
}

static void check_indexes(struct schedule_checks *k)
{
	const struct table *t = k->table;
	const struct wanted_index wanted[] = {
		{ &t->columns[FIELD_ENTITY], &t->order, false, "claims read rows that are scheduled for later, too" },
		{ &t->scheduled, NULL, true, "each claim reads the whole table to find rows that are due" },
		{ &t->columns[FIELD_ENTITY], &t->scheduled, true,
		  "claims read rows of the entity that are scheduled for later, too" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		check_index(k, &wanted[i]);
}

static void check_trigger(struct schedule_checks *k, const char *trigger, const char *otherwise)
{
	bool there;

	if (!ask(k, "look for the trigger",
		 "SELECT $3::name IN (SELECT postrider.schedule_triggers($1::regclass, $2::name))", trigger, NULL, &there) ||
	    there)
		return;
	finding_add(k->findings, FINDING_WARN, "postrider init", "table %s: the trigger %s is missing, so %s", k->table->name,
		    trigger, otherwise);
}

static void check_triggers(struct schedule_checks *k)
{
	if (strcmp(k->outbox->reader, "wal") == 0)
		check_trigger(k, "postrider_tell_schedule", "a row that is rescheduled to an earlier time waits for the next look");
	else if (k->outbox->wakeup != WAKEUP_OFF)
		check_trigger(k, "postrider_ring_schedule", "a row that is rescheduled to an earlier time waits for the next poll");
	check_trigger(k, "postrider_keep_time",
		      "a row that had a time and then has none may wait for long, and with the reader wal for ever");
}

/* Order holds among rows without a time. Where every row has one, there are none. */
static void check_default(struct schedule_checks *k)
{
	const struct table *t = k->table;
	bool plain;

	if (!ask(k, "look at the column of schedules",
		 "SELECT NOT a.attnotnull AND NOT a.atthasdef FROM pg_attribute a WHERE a.attrelid = $1::regclass AND a.attname = $2",
		 NULL, NULL, &plain) ||
	    plain)
		return;
	fix_printf("ALTER TABLE %s ALTER COLUMN %s DROP NOT NULL, ALTER COLUMN %s DROP DEFAULT;    (NULL: at once)", t->name,
		   t->scheduled.quoted, t->scheduled.quoted);
	finding_add(k->findings, FINDING_WARN, fix,
		    "table %s: %s has a default or may not be NULL, so every row is a scheduled one, and the order of an"
		    " entity's rows is kept only among those that are claimed together", t->name, t->scheduled.name);
}

void schedule_check(PGconn *conn, const struct outbox_config *outbox, const struct table *t,
		    struct finding_list *findings)
{
	struct schedule_checks k = { conn, outbox, t, findings };

	if (!t->scheduled.name)
		return;
	check_indexes(&k);
	check_triggers(&k);
	check_default(&k);
}

void schedule_check_order(PGconn *conn, const struct outbox_config *outbox, const struct table *t,
			  struct finding_list *findings)
{
	struct schedule_checks k = { conn, outbox, t, findings };

	if (t->scheduled.name)
		check_index(&k, &(struct wanted_index){ &t->order, NULL, false,
							"claims read rows that are scheduled for later, too" });
}
