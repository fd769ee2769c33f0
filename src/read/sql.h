/* Statements of readers are written once, over names in braces, and made for a table when a reader opens. */
#ifndef POSTRIDER_READ_SQL_H
#define POSTRIDER_READ_SQL_H

#include "pg/table.h"

/* Replaces {table} {key} {key_type} {id} {id_type} {ids} {order} {payload} {fields} {oid} {toast} {outbox} {sample}; a
 * name that is none of these is a bug and aborts. `outbox` is the table's number in postrider.outbox. The caller frees. */
char *sql_for_table(const char *sql, const struct table *t, int outbox);

#endif
