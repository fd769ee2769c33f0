/* One-dimensional arrays as binary parameters: no quoting here, no parsing there. */
#ifndef POSTRIDER_PG_ARRAY_H
#define POSTRIDER_PG_ARRAY_H

#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

/* Oids of pg_type that are the same in every database. */
enum {
	TYPE_BOOL = 16,
	TYPE_BYTEA = 17,
	TYPE_INT8 = 20,
	TYPE_INT2 = 21,
	TYPE_INT4 = 23,
	TYPE_TEXT = 25,
	TYPE_TID = 27,
	TYPE_TIMESTAMPTZ = 1184,
	TYPE_UUID = 2950,
	TYPE_JSONB = 3802,
};

/* Empties the buffer and begins an array in it. Elements are in the binary form of their type; a NULL slice is NULL. */
void array_begin(struct buf *b, uint32_t element_type);
void array_add(struct buf *b, struct slice element);
void array_add_text(void *array, struct slice text);      /* the same, to be called for each of something */
void array_add_int4(struct buf *b, int32_t value);
void array_add_int8(struct buf *b, int64_t value);
uint32_t array_count(const struct buf *b);

#endif
