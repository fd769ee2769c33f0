/* A field of a row as text. Types that rows usually have come in their binary form and are written here, which costs a
 * fraction of what a cast to text costs the server; pg/table.c knows which these are. */
#ifndef POSTRIDER_RELAY_FIELD_H
#define POSTRIDER_RELAY_FIELD_H

#include "base/slice.h"
#include "relay/batch.h"

/* As it is in the result, whatever the type. */
struct slice field_raw(const PGresult *rows, int row, int column);
/* An integer that is not NULL and has four bytes. */
int32_t field_int4(const PGresult *rows, int row, int column);
/* Microseconds since 1970, of a timestamptz that is neither NULL nor infinite. False for any other value. */
bool field_time(const PGresult *rows, int row, int column, int64_t *ret_us);
/* As text: where the type is not text by itself, in the batch's arena. A time is RFC 3339 in UTC. */
struct slice field_text(struct batch *b, int row, int column);

#endif
