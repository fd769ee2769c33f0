#include "config/units.h"

#include <inttypes.h>
#include <string.h>

struct unit {
	const char *name;
	int64_t factor;
};

/* Largest last: printing takes the last one that divides. */
static const struct unit duration_units[] = {
	{ "ms", 1 },
	{ "s", 1000 },
	{ "m", 60 * 1000 },
	{ "h", 60 * 60 * 1000 },
	{ "d", 24 * 60 * 60 * 1000 },
};
static const struct unit size_units[] = {
	{ "B", 1 },
	{ "KiB", 1024 },
	{ "MiB", 1024 * 1024 },
	{ "GiB", 1024 * 1024 * 1024 },
};

/* Digits up to *ret_rest. A leading zero is refused because YAML readers disagree on whether it means octal. */
static bool parse_digits(const char *text, int64_t *ret, const char **ret_rest)
{
	int64_t value = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *p - '0', &value))
			return false;
	}
	if (p == text || (text[0] == '0' && p - text > 1))
		return false;
	*ret = value;
	*ret_rest = p;
	return true;
}

bool units_integer(const char *text, int64_t *ret)
{
	const char *rest;
	int64_t value;

	if (!parse_digits(text, &value, &rest) || *rest != '\0')
		return false;
	*ret = value;
	return true;
}

bool units_boolean(const char *text, bool *ret)
{
	bool is_true = strcmp(text, "true") == 0;

	if (!is_true && strcmp(text, "false") != 0)
		return false;
	*ret = is_true;
	return true;
}

static bool parse_quantity(const char *text, const struct unit *units, size_t n, int64_t *ret)
{
	const char *rest;
	int64_t value;

	if (!parse_digits(text, &value, &rest))
		return false;
	if (value == 0 && *rest == '\0') {
		*ret = 0;
		return true;
	}
	for (size_t i = 0; i < n; i++) {
		if (strcmp(rest, units[i].name) != 0)
			continue;
		if (__builtin_mul_overflow(value, units[i].factor, &value))
			return false;
		*ret = value;
		return true;
	}
	return false;
}

bool units_duration(const char *text, int64_t *ret_ms)
{
	return parse_quantity(text, duration_units, ARRAY_SIZE(duration_units), ret_ms);
}

bool units_size(const char *text, int64_t *ret_bytes)
{
	return parse_quantity(text, size_units, ARRAY_SIZE(size_units), ret_bytes);
}

static void add_quantity(struct buf *b, int64_t value, const struct unit *units, size_t n)
{
	const struct unit *best = &units[0];

	for (size_t i = 0; i < n; i++) {
		if (value % units[i].factor == 0)
			best = &units[i];
	}
	if (value == 0)
		buf_add_char(b, '0');
	else
		buf_printf(b, "%" PRId64 "%s", value / best->factor, best->name);
}

void units_add_duration(struct buf *b, int64_t ms)
{
	add_quantity(b, ms, duration_units, ARRAY_SIZE(duration_units));
}

void units_add_size(struct buf *b, int64_t bytes)
{
	add_quantity(b, bytes, size_units, ARRAY_SIZE(size_units));
}
