#include "relay/rfc3339.h"

#include <string.h>

#define SECONDS_LEN (sizeof("2026-11-15 09:45:27") - 1)

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* A digit where the shape has a 0, the same character elsewhere. */
static bool has_shape(const char *text, const char *shape)
{
	for (; *shape; text++, shape++)
		if (*shape == '0' ? !is_digit(*text) : *text != *shape)
			return false;
	return true;
}

static size_t fraction_length(struct slice rest)
{
	size_t len = 1;

	if (rest.len < 2 || rest.ptr[0] != '.' || !is_digit(rest.ptr[1]))
		return 0;
	while (len < rest.len && is_digit(rest.ptr[len]))
		len++;
	return len;
}

/* PostgreSQL prints "+00", or "+05:30" where minutes matter; RFC 3339 wants "Z" or both parts. Writes up to 6 bytes. */
static bool write_offset(struct slice given, char *to, size_t *ret_len)
{
	bool sign = given.len && (given.ptr[0] == '+' || given.ptr[0] == '-');
	bool hours = sign && given.len == 3 && has_shape(given.ptr + 1, "00");
	bool minutes = sign && given.len == 6 && has_shape(given.ptr + 1, "00:00");

	if (given.len == 0 || slice_is(given, "Z") || (hours && memcmp(given.ptr + 1, "00", 2) == 0) ||
	    (minutes && memcmp(given.ptr + 1, "00:00", 5) == 0)) {
		*to = 'Z';
		*ret_len = 1;
		return true;
	}
	if (!hours && !minutes)
		return false;
	memcpy(to, given.ptr, 3);
	memcpy(to + 3, minutes ? given.ptr + 3 : ":00", 3);
	*ret_len = 6;
	return true;
}

bool rfc3339_from_postgres(struct slice text, struct arena *arena, struct slice *ret)
{
	size_t local_len, offset_len;
	char offset[6], *made;

	if (text.len < SECONDS_LEN || !has_shape(text.ptr, "0000-00-00") || !has_shape(text.ptr + 11, "00:00:00") ||
	    (text.ptr[10] != ' ' && text.ptr[10] != 'T'))
		return false;
	/* Already what it should be. */
	if (text.ptr[10] == 'T' && text.ptr[text.len - 1] == 'Z') {
		*ret = text;
		return true;
	}
	local_len = SECONDS_LEN + fraction_length((struct slice){ text.ptr + SECONDS_LEN, text.len - SECONDS_LEN });
	if (!write_offset((struct slice){ text.ptr + local_len, text.len - local_len }, offset, &offset_len))
		return false;

	made = arena_alloc(arena, local_len + offset_len + 1);
	memcpy(made, text.ptr, local_len);
	made[10] = 'T';
	memcpy(made + local_len, offset, offset_len);
	*ret = (struct slice){ made, local_len + offset_len };
	return true;
}

static int64_t digits(const char *text, size_t n)
{
	int64_t value = 0;

	for (size_t i = 0; i < n; i++)
		value = value * 10 + (text[i] - '0');
	return value;
}

/* Days since 1970, with years that begin in March: then the day that leap years add is the last of its year. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
	year -= month <= 2;
	return year * 365 + year / 4 - year / 100 + year / 400 + (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1 -
	       719468;
}

static int64_t fraction_us(struct slice fraction)
{
	int64_t us = 0;

	for (size_t i = 1; i <= 6; i++)
		us = us * 10 + (i < fraction.len ? fraction.ptr[i] - '0' : 0);
	return us;
}

bool rfc3339_parse(struct slice text, int64_t *ret_us)
{
	size_t local_len, offset_len;
	char offset[6];
	int64_t seconds, away = 0;

	if (text.len < SECONDS_LEN || !has_shape(text.ptr, "0000-00-00") || !has_shape(text.ptr + 11, "00:00:00") ||
	    (text.ptr[10] != ' ' && text.ptr[10] != 'T'))
		return false;
	local_len = SECONDS_LEN + fraction_length((struct slice){ text.ptr + SECONDS_LEN, text.len - SECONDS_LEN });
	if (!write_offset((struct slice){ text.ptr + local_len, text.len - local_len }, offset, &offset_len))
		return false;
	if (offset_len == sizeof(offset))
		away = (digits(offset + 1, 2) * 60 + digits(offset + 4, 2)) * (offset[0] == '-' ? -60 : 60);
	seconds = days_of(digits(text.ptr, 4), digits(text.ptr + 5, 2), digits(text.ptr + 8, 2)) * 86400 +
		  digits(text.ptr + 11, 2) * 3600 + digits(text.ptr + 14, 2) * 60 + digits(text.ptr + 17, 2) - away;
	*ret_us = seconds * 1000000 + fraction_us((struct slice){ text.ptr + SECONDS_LEN, local_len - SECONDS_LEN });
	return true;
}
