#include "read/wal_text.h"

#include <string.h>

#include "base/macros.h"
#include "pg/array.h"

/* Besides those of pg/array.h. */
enum {
	TYPE_INET = 869,
	TYPE_BPCHAR = 1042,
};

#define FIRST_OTHER_TYPE 10000          /* lower ones are the same in every database, and none of them is a domain */

/* ---- Which of them ----------------------------------------------------------------------------------------------- */

static const struct {
	uint32_t type;
	const char *name;               /* as format_type() has it, without what may stand in parentheses */
	enum field only;                /* FIELD_EXTRA: any */
	enum wal_conversion conversion;
} conversions[] = {
	{ TYPE_BOOL, "boolean", FIELD_EXTRA, WAL_BOOLEAN },
	{ TYPE_BPCHAR, "character", FIELD_EXTRA, WAL_BLANKS },
	{ TYPE_BPCHAR, "bpchar", FIELD_EXTRA, WAL_BLANKS },
	{ TYPE_INET, "inet", FIELD_EXTRA, WAL_NETMASK },
	{ TYPE_TIMESTAMPTZ, "timestamp with time zone", FIELD_CREATED_AT, WAL_TIME },
	{ TYPE_BYTEA, "bytea", FIELD_PAYLOAD, WAL_BYTES },
};

enum wal_conversion wal_text_conversion(uint32_t type, const char *behind, enum field field)
{
	struct slice name = { behind, behind ? strcspn(behind, "(") : 0 };

	for (size_t i = 0; i < ARRAY_SIZE(conversions); i++) {
		if (conversions[i].only != FIELD_EXTRA && conversions[i].only != field)
			continue;
		if (type < FIRST_OTHER_TYPE ? type == conversions[i].type : slice_is(name, conversions[i].name))
			return conversions[i].conversion;
	}
	return WAL_AS_IS;
}

/* ---- What is small: it cannot fail ------------------------------------------------------------------------------- */

static bool take_char(struct slice *s, char c)
{
	if (s->len == 0 || *s->ptr != c)
		return false;
	*s = (struct slice){ s->ptr + 1, s->len - 1 };
	return true;
}

/* Digits, and behind them `end`. */
static bool take_number(struct slice *s, char end, int64_t *ret)
{
	int64_t value = 0;
	size_t n = 0;

	for (; n < MIN(s->len, 6) && s->ptr[n] >= '0' && s->ptr[n] <= '9'; n++)
		value = value * 10 + (s->ptr[n] - '0');
	*s = (struct slice){ s->ptr + n, s->len - n };
	*ret = value;
	return n > 0 && take_char(s, end);
}

/* Up to six digits behind the point, as microseconds. */
static int64_t take_fraction(struct slice *s)
{
	int64_t value = 0;

	for (int i = 0; i < 6; i++) {
		value *= 10;
		if (s->len == 0 || *s->ptr < '0' || *s->ptr > '9')
			continue;
		value += *s->ptr - '0';
		*s = (struct slice){ s->ptr + 1, s->len - 1 };
	}
	return value;
}

/* From 2000-03-01 on, in years that begin in March: civil_of of relay/field.c, backwards. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
	int64_t march_year = year - (month < 3) - 2000;
	int64_t era = (march_year >= 0 ? march_year : march_year - 399) / 400;
	int64_t in_era = march_year - era * 400;
	int64_t in_year = (153 * (month + (month < 3 ? 9 : -3)) + 2) / 5 + day - 1;

	return era * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year;
}

/* Microseconds since 2000-01-01, of "12026-11-15 09:45:27.5+00" or "0044-03-15 11:00:00+00 BC". */
static bool read_time(struct slice text, int64_t *ret)
{
	int64_t year, month, day, hours, minutes, seconds, fraction = 0;

	if (!take_number(&text, '-', &year) || !take_number(&text, '-', &month) || !take_number(&text, ' ', &day) ||
	    !take_number(&text, ':', &hours) || !take_number(&text, ':', &minutes))
		return false;
	/* The offset's sign or the point ends the seconds. */
	if (memchr(text.ptr, '.', text.len)) {
		if (!take_number(&text, '.', &seconds))
			return false;
		fraction = take_fraction(&text);
		if (!take_char(&text, '+'))
			return false;
	} else if (!take_number(&text, '+', &seconds)) {
		return false;
	}
	if (slice_is(text, "00 BC"))
		year = 1 - year;
	else if (!slice_is(text, "00"))
		return false;
	/* PostgreSQL's times lie between these years, so that none is too large for its type here either. */
	if (year < -4713 || year > 294276 || month > 12 || day > 31 || hours > 23 || minutes > 59 || seconds > 59)
		return false;
	seconds += ((days_of(year, month, day) + 60) * 24 + hours) * 3600 + minutes * 60;
	*ret = seconds * 1000000 + fraction;
	return true;
}

static struct slice write_number(int64_t value, char small[WAL_TEXT_SMALL])
{
	uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
	char *end = small + WAL_TEXT_SMALL, *p = end;

	do
		*--p = (char)('0' + left % 10);
	while ((left /= 10) > 0);
	if (value < 0)
		*--p = '-';
	return (struct slice){ p, (size_t)(end - p) };
}

/* "2026-11-15 09:45:27.25+00" is "2026-11-15T09:45:27.25Z"; the server has cut the zeros at the end. Years outside 1 to
 * 9999 have no such form: as in relay/field.c they are a number, and infinity is a word. Anything else is routing's to
 * understand, as a time without time zone is. */
static struct slice time_text(struct slice text, char small[WAL_TEXT_SMALL])
{
	size_t len = text.len;
	int64_t value;

	if (len >= sizeof("2026-11-15 09:45:27+00") - 1 && len < WAL_TEXT_SMALL && text.ptr[4] == '-' &&
	    text.ptr[10] == ' ' && memcmp(text.ptr + len - 3, "+00", 3) == 0) {
		memcpy(small, text.ptr, len - 3);
		small[10] = 'T';
		small[len - 3] = 'Z';
		return (struct slice){ small, len - 2 };
	}
	return read_time(text, &value) ? write_number(value, small) : text;
}

/* The cast shows the mask of a single address too. */
static struct slice netmask_text(struct slice text, char small[WAL_TEXT_SMALL])
{
	struct slice mask = memchr(text.ptr, ':', text.len) ? SLICE_LITERAL("/128") : SLICE_LITERAL("/32");

	if (text.len + mask.len > WAL_TEXT_SMALL || memchr(text.ptr, '/', text.len))
		return text;
	memcpy(small, text.ptr, text.len);
	memcpy(small + text.len, mask.ptr, mask.len);
	return (struct slice){ small, text.len + mask.len };
}

static struct slice without_blanks(struct slice text)
{
	while (text.len > 0 && text.ptr[text.len - 1] == ' ')
		text.len--;
	return text;
}

struct slice wal_text_convert(enum wal_conversion conversion, struct slice text, char small[WAL_TEXT_SMALL])
{
	switch (conversion) {
	case WAL_BOOLEAN:
		return slice_is(text, "t") ? SLICE_LITERAL("true") : SLICE_LITERAL("false");
	case WAL_BLANKS:
		return without_blanks(text);
	case WAL_NETMASK:
		return netmask_text(text, small);
	case WAL_TIME:
		return time_text(text, small);
	case WAL_BYTES:
	case WAL_AS_IS:
		break;
	}
	return text;
}

/* ---- Bytes ------------------------------------------------------------------------------------------------------- */

/* Of each hexadecimal digit its value and 1: what is no digit is 0. */
static const uint8_t hex_digits[256] = {
	['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
	['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
	['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

bool wal_text_bytes(struct slice text, struct buf *to, struct error *err)
{
	const unsigned char *from;
	bool wrong = false;
	size_t n;

	if (text.len < 2 || text.len % 2 || memcmp(text.ptr, "\\x", 2) != 0)
		return error_set(err, ERROR_BUG, "a payload of bytes is not in the hexadecimal form");
	from = (const unsigned char *)text.ptr + 2;
	n = text.len / 2 - 1;
	buf_clear(to);
	buf_add(to, from, n);           /* for the room: all of it is overwritten */
	if (to->overflow)
		return error_set(err, ERROR_BUG, "a payload of bytes is too large");
	for (size_t i = 0; i < n; i++) {
		uint32_t high = hex_digits[from[2 * i]], low = hex_digits[from[2 * i + 1]];

		wrong |= !high || !low;
		to->data[i] = (char)((high - 1) << 4 | (low - 1));
	}
	return !wrong || error_set(err, ERROR_BUG, "a payload of bytes has other than hexadecimal digits");
}
