/* Rows that are not to be published before their time: what statements of readers say about them, for tables that
 * have the column (see sql.h for {if_scheduled} and the other names). docs/schedule.md is the view from outside.
 *
 * A table may have a million rows that are scheduled for later, and no claim may pay for them. So rows without a time
 * are found by indexes that have only these (WHERE {scheduled} IS NULL), and those whose time has come by indexes
 * that begin, or go on behind the entity, with the time. Waiting needs no polling: a claim also asks when the next
 * row is due. */
#ifndef POSTRIDER_READ_SCHEDULE_H
#define POSTRIDER_READ_SCHEDULE_H

#include "pg/pipeline.h"
#include "read/reader.h"

/* Rows that pass `test` and may go now, in order: those without a time and those whose time has come, no more than
 * `limit` of each and of all. `by` is what `test` compares for equality: named in the order too, it keeps the planner
 * from any index that does not begin with it. Of more due rows than the limit those come that were due first. */
#define SCHEDULE_ROWS(columns, test, by, limit)                                                                 \
	"{if_scheduled}SELECT o.* FROM (({end}"                                                                 \
	"SELECT " columns " FROM {table} o WHERE " test " AND {at_once} ORDER BY " by ", o.{order} LIMIT " limit \
	"{if_scheduled}) UNION ALL (SELECT " columns " FROM {table} o"                                          \
	"   WHERE " test " AND {due} AND " SCHEDULE_ANY_DUE                                                     \
	"   ORDER BY " by ", o.{scheduled} LIMIT " limit ")) o ORDER BY o.{order} LIMIT " limit "{end}"

/* Asked once in a statement: while nothing is due, nobody looks for due rows of each entity. */
#define SCHEDULE_ANY_DUE                                                                                        \
	"(SELECT count(*) > 0 FROM (SELECT FROM {table} o WHERE {due} ORDER BY o.{scheduled} LIMIT 1) o)"

/* In how many milliseconds the next row is due; 0: none is scheduled for later, but some have a time; NULL: none has.
 * Rounded up, and never more than a day, which also takes care of 'infinity'. As long as none has, claims need not look
 * for due rows: they are sent in their untimed form (sql.h), which only notices that there is one. */
#define SCHEDULE_NEXT_DUE                                                                                       \
	"coalesce(NULL::int{if_scheduled}, " SCHEDULE_IN_MS ", " SCHEDULE_IS_USED "{end}"                       \
	"{if_untimed}, " SCHEDULE_IS_USED "{end})"
/* The order leaves the planner one way: the index that has only rows with a time. */
#define SCHEDULE_IS_USED                                                                                        \
	"(SELECT 0 FROM {table} o WHERE o.{scheduled} IS NOT NULL AND {pending} ORDER BY o.{scheduled} LIMIT 1)"
#define SCHEDULE_IN_MS                                                                                          \
	"(SELECT greatest(ceil(extract(epoch FROM"                                                              \
	"     least(o.{scheduled}, statement_timestamp() + interval '1 day') - clock_timestamp()) * 1000), 1)::int" \
	"   FROM {table} o WHERE o.{scheduled} > statement_timestamp() AND {pending} ORDER BY o.{scheduled} LIMIT 1)"

/* The same as a statement, for claims that have no row to put it into. Sent only for tables that have the column. */
#define SCHEDULE_STATEMENT                                                                                      \
	{ "postrider_next_due", "ask when the next row is due",                                                 \
	  "SELECT " SCHEDULE_NEXT_DUE }

static inline bool schedule_send(struct pipeline *p, int statement, const struct table *t, struct error *err)
{
	return !t->scheduled.name || pipeline_send(p, statement, NULL, 0, false, err);
}

/* For `init`: what makes the index of rows without a time, in order, for readers that walk that; NULL: no column can
 * be one of schedules. The caller frees. */
char *schedule_index_sql(const struct outbox_config *o, const char *table);

/* Does not take the result over; `field` of its first row is SCHEDULE_NEXT_DUE. False: no row has a time. */
bool schedule_take(const PGresult *res, int field, struct answer *answer);

#endif
