#include "pg/array.h"

#include <arpa/inet.h>
#include <endian.h>
#include <string.h>

/* As array_recv reads it: five words, then for each element its length and bytes. */
enum { DIMENSIONS, HAS_NULL, ELEMENT_TYPE, COUNT, LOWER_BOUND, HEADER_WORDS };

static void set_word(struct buf *b, size_t word, uint32_t value)
{
	value = htonl(value);
	memcpy(b->data + word * sizeof(value), &value, sizeof(value));
}

static uint32_t get_word(const struct buf *b, size_t word)
{
	uint32_t value;

	memcpy(&value, b->data + word * sizeof(value), sizeof(value));
	return ntohl(value);
}

void array_begin(struct buf *b, uint32_t element_type)
{
	const uint32_t header[HEADER_WORDS] = {
		[DIMENSIONS] = htonl(1),
		[ELEMENT_TYPE] = htonl(element_type),
		[LOWER_BOUND] = htonl(1),
	};

	buf_clear(b);
	buf_add(b, header, sizeof(header));
}

void array_add(struct buf *b, struct slice element)
{
	uint32_t len = htonl(element.ptr ? (uint32_t)element.len : UINT32_MAX);

	buf_add(b, &len, sizeof(len));
	if (element.ptr)
		buf_add(b, element.ptr, element.len);
	else
		set_word(b, HAS_NULL, 1);
	if (!b->overflow)
		set_word(b, COUNT, array_count(b) + 1);
}

void array_add_text(void *array, struct slice text)
{
	array_add(array, text);
}

void array_add_int4(struct buf *b, int32_t value)
{
	uint32_t wire = htonl((uint32_t)value);

	array_add(b, (struct slice){ (const char *)&wire, sizeof(wire) });
}

void array_add_int8(struct buf *b, int64_t value)
{
	uint64_t wire = htobe64((uint64_t)value);

	array_add(b, (struct slice){ (const char *)&wire, sizeof(wire) });
}

uint32_t array_count(const struct buf *b)
{
	return b->data ? get_word(b, COUNT) : 0;
}
