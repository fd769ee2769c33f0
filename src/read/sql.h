/* Statements of readers are written once, over names in braces, and made for a table when a reader opens. */
#ifndef POSTRIDER_READ_SQL_H
#define POSTRIDER_READ_SQL_H

#include <stdbool.h>

#include "config/config.h"
#include "pg/table.h"

/* Replaces
 *   {table} {key} {key_type} {id} {id_type} {order} {order_type} {payload}   of the user's table, quoted
 *   {pending}                  test that a row `o` is still to be published
 *   {scheduled} {at_once} {due}  the column of schedules; tests that such a row has none, that its time has come
 *   {at_once_in_order} {at_once_of_shard}  as {at_once}, for statements that walk rows in order, or in that of a shard
 *   {ready}                    {at_once} or {due}
 *   {unsettled}                test that it is not settled and has no time to wait for: what else it waits for does not matter
 *   {settle}                   what becomes of published rows `o`, without the WHERE; of `gone`, what that returned, …
 *   {gone} {archived}          … the columns, and what more a query `WITH gone AS (…)` is to do with them
 *   {settle_begin} {settle_end}  the same where that query does nothing else
 *   {ids} {orders}             types of parameters that are lists of ids, of values of the order column
 *   {order_cast}               what the order column is read as
 *   {lane} {lane_type}         what order is kept for: the entity, or the id where there is no order
 *   {fields} {aliases}         the select list, and as many short names
 *   {parked_names} {parked_fields}  names of the fields as literals, and the fields of a row `p` of postrider.parked
 *   {shard} {shard_of_retry}   number of the shard of a row `o`, of an entry `r` of postrider.retry
 *   {oid} {toast} {outbox}     numbers of the table, of that of its large values, in postrider.outbox
 *   {sample}                   percentage of the table that is some twenty pages
 * and a name that is none of these is a bug and aborts. What stands between {if_scheduled} and {end} is only there when
 * the table has a column of schedules, and what stands between {else} and {end} only when it has none. The caller
 * frees. */
char *sql_for_table(const char *sql, const struct table *t, const struct outbox_config *settings, bool ordered, int outbox);

/* The same for a time when no row of the table is scheduled, as is mostly so: as if it had no such column, but rows that have
 * a time all the same are left out, and what stands between {if_untimed} and {end} is only there in this one. NULL: the
 * statement would be the same. */
char *sql_for_untimed_table(const char *sql, const struct table *t, const struct outbox_config *settings, bool ordered, int outbox);

/* The expression that shards an outbox, over these columns; the index has the same. The caller frees. */
char *sql_shard_of(const struct outbox_config *settings, const char *key, const char *id);

#endif
