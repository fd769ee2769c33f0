#include "relay/field.h"

#include <arpa/inet.h>
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pg/array.h"

#define MICROSECONDS 1000000
#define EPOCH_US (INT64_C(946684800) * MICROSECONDS)    /* 2000-01-01, from which PostgreSQL counts */

struct slice field_raw(const PGresult *rows, int row, int column)
{
	int len = PQgetlength(rows, row, column);

	/* Only what is empty can be NULL: one call less for most fields. */
	if (len == 0 && PQgetisnull(rows, row, column))
		return SLICE_NULL;
	return (struct slice){ PQgetvalue(rows, row, column), (size_t)len };
}

int32_t field_int4(const PGresult *rows, int row, int column)
{
	uint32_t value;

	memcpy(&value, PQgetvalue(rows, row, column), sizeof(value));
	return (int32_t)ntohl(value);
}

static int64_t integer_of(struct slice raw)
{
	uint64_t value = 0;

	for (size_t i = 0; i < raw.len; i++)
		value = value << 8 | (unsigned char)raw.ptr[i];
	/* The sign bit of the narrower type becomes that of the wider one. */
	return raw.len < 8 ? (int64_t)(value << (64 - 8 * raw.len)) >> (64 - 8 * raw.len) : (int64_t)value;
}

bool field_time(const PGresult *rows, int row, int column, int64_t *ret_us)
{
	int64_t since;

	if (PQftype(rows, column) != TYPE_TIMESTAMPTZ || PQgetlength(rows, row, column) != sizeof(since))
		return false;
	since = integer_of(field_raw(rows, row, column));
	if (since == INT64_MIN || since > INT64_MAX - EPOCH_US)
		return false;
	*ret_us = since + EPOCH_US;
	return true;
}

static struct slice integer_text(struct arena *a, struct slice raw)
{
	char digits[24], *end = digits + sizeof(digits), *p = end;
	int64_t value = integer_of(raw);
	uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;

	do
		*--p = (char)('0' + left % 10);
	while ((left /= 10) > 0);
	if (value < 0)
		*--p = '-';
	return arena_copy(a, (struct slice){ p, (size_t)(end - p) });
}

static struct slice uuid_text(struct arena *a, struct slice raw)
{
	static const char digits[] = "0123456789abcdef";
	char *text = arena_alloc(a, 37), *p = text;

	for (size_t i = 0; i < raw.len; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		*p++ = digits[(unsigned char)raw.ptr[i] >> 4];
		*p++ = digits[(unsigned char)raw.ptr[i] & 15];
	}
	return (struct slice){ text, (size_t)(p - text) };
}

static char *put_number(char *p, uint32_t value, int width)
{
	for (int i = width - 1; i >= 0; i--, value /= 10)
		p[i] = (char)('0' + value % 10);
	return p + width;
}

/* The day of the proleptic Gregorian calendar that is `days` after 2000-03-01, with years that begin in March: then the
 * day that leap years add is the last of its year. */
static void civil_of(int64_t days, int64_t *ret_year, uint32_t *ret_month, uint32_t *ret_day)
{
	int64_t era = (days >= 0 ? days : days - 146096) / 146097;      /* of 400 years */
	uint32_t in_era = (uint32_t)(days - era * 146097);
	uint32_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
	uint32_t in_year = in_era - (365 * year + year / 4 - year / 100);
	uint32_t month = (5 * in_year + 2) / 153;                       /* March is 0 */

	*ret_day = in_year - (153 * month + 2) / 5 + 1;
	*ret_month = month < 10 ? month + 3 : month - 9;
	*ret_year = 2000 + era * 400 + (int64_t)year + (month >= 10);
}

/* PostgreSQL counts microseconds from 2000-01-01. Years outside 1 to 9999, infinity among them, have no RFC 3339 form. */
static struct slice time_text(struct arena *a, struct slice raw)
{
	int64_t since = integer_of(raw), year;
	int64_t days = since / ((int64_t)86400 * MICROSECONDS), in_day = since % ((int64_t)86400 * MICROSECONDS);
	uint32_t month, day, seconds, fraction;
	char *text = arena_alloc(a, 32), *p = text;

	if (in_day < 0) {
		in_day += (int64_t)86400 * MICROSECONDS;
		days--;
	}
	civil_of(days - 60, &year, &month, &day);       /* 2000-03-01 is 60 days after 2000-01-01 */
	if (year < 1 || year > 9999)
		return since == INT64_MAX ? SLICE_LITERAL("infinity") :
		       since == INT64_MIN ? SLICE_LITERAL("-infinity") :
					    integer_text(a, raw);
	seconds = (uint32_t)(in_day / MICROSECONDS);
	fraction = (uint32_t)(in_day % MICROSECONDS);
	p = put_number(p, (uint32_t)year, 4);
	*p++ = '-';
	p = put_number(p, month, 2);
	*p++ = '-';
	p = put_number(p, day, 2);
	*p++ = 'T';
	p = put_number(p, seconds / 3600, 2);
	*p++ = ':';
	p = put_number(p, seconds / 60 % 60, 2);
	*p++ = ':';
	p = put_number(p, seconds % 60, 2);
	if (fraction > 0) {
		*p++ = '.';
		p = put_number(p, fraction, 6);
		while (p[-1] == '0')
			p--;
	}
	*p++ = 'Z';
	return (struct slice){ text, (size_t)(p - text) };
}

struct slice field_text(struct batch *b, int row, int column)
{
	struct slice raw = field_raw(b->rows, row, column);

	if (!raw.ptr)
		return raw;
	switch (PQftype(b->rows, column)) {
	case TYPE_INT2:
	case TYPE_INT4:
	case TYPE_INT8:
		return integer_text(&b->arena, raw);
	case TYPE_UUID:
		return uuid_text(&b->arena, raw);
	case TYPE_TIMESTAMPTZ:
		return time_text(&b->arena, raw);
	case TYPE_JSONB:        /* a version byte, then the text */
		return (struct slice){ raw.ptr + 1, raw.len - 1 };
	default:
		return raw;
	}
}
