#include "relay/json_scan.h"

#include <stdint.h>
#include <string.h>

bool json_scan_problem(struct json_scan *j, const char *what)
{
	j->problem = what;
	return false;
}

int json_scan_peek(const struct json_scan *j)
{
	return j->at < j->end ? (unsigned char)*j->at : -1;
}

bool json_scan_accept(struct json_scan *j, char c)
{
	if (json_scan_peek(j) != c)
		return false;
	j->at++;
	return true;
}

void json_scan_space(struct json_scan *j)
{
	for (int c; (c = json_scan_peek(j)) == ' ' || c == '\t' || c == '\n' || c == '\r';)
		j->at++;
}

/* ---- Strings: first checked, then turned into text --------------------------------------------------------------- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits at p, or -1. */
static int32_t hex4(const char *p, const char *end)
{
	int32_t code = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int digit = hex_digit(p[i]);

		if (digit < 0)
			return -1;
		code = code << 4 | digit;
	}
	return code;
}

static bool is_high_surrogate(int32_t code)
{
	return code >= 0xd800 && code <= 0xdbff;
}

static bool is_low_surrogate(int32_t code)
{
	return code >= 0xdc00 && code <= 0xdfff;
}

/* After "\u": one character of four digits, or of two times four. */
static bool check_unicode(struct json_scan *j)
{
	int32_t code = hex4(j->at, j->end);

	if (code < 0)
		return json_scan_problem(j, "\\u without four hexadecimal digits");
	if (code == 0)
		return json_scan_problem(j, "the character \\u0000");
	if (is_low_surrogate(code))
		return json_scan_problem(j, "half of a surrogate pair");
	j->at += 4;
	if (!is_high_surrogate(code))
		return true;
	if (j->end - j->at < 6 || j->at[0] != '\\' || j->at[1] != 'u' || !is_low_surrogate(hex4(j->at + 2, j->end)))
		return json_scan_problem(j, "half of a surrogate pair");
	j->at += 6;
	return true;
}

static bool check_escape(struct json_scan *j)
{
	if (json_scan_accept(j, 'u'))
		return check_unicode(j);
	if (json_scan_peek(j) <= 0 || !strchr("\"\\/bfnrt", json_scan_peek(j)))
		return json_scan_problem(j, "an unknown escape");
	j->at++;
	return true;
}

/* Moves past a string; *ret is what stands between its quotes. */
static bool check_string(struct json_scan *j, struct slice *ret, bool *ret_escaped)
{
	const char *first;

	*ret_escaped = false;
	if (!json_scan_accept(j, '"'))
		return json_scan_problem(j, "a string was expected");
	for (first = j->at; !json_scan_accept(j, '"');) {
		if (j->at == j->end)
			return json_scan_problem(j, "a string is not closed");
		if ((unsigned char)*j->at < ' ')
			return json_scan_problem(j, "a control character in a string");
		if (*j->at++ != '\\')
			continue;
		*ret_escaped = true;
		if (!check_escape(j))
			return false;
	}
	*ret = (struct slice){ first, (size_t)(j->at - 1 - first) };
	return true;
}

static char *write_utf8(char *to, int32_t code)
{
	if (code < 0x80) {
		*to++ = (char)code;
		return to;
	}
	if (code < 0x800) {
		*to++ = (char)(0xc0 | code >> 6);
	} else {
		if (code < 0x10000) {
			*to++ = (char)(0xe0 | code >> 12);
		} else {
			*to++ = (char)(0xf0 | code >> 18);
			*to++ = (char)(0x80 | (code >> 12 & 0x3f));
		}
		*to++ = (char)(0x80 | (code >> 6 & 0x3f));
	}
	*to++ = (char)(0x80 | (code & 0x3f));
	return to;
}

/* `from` is behind "\u" of a checked string. */
static const char *decode_unicode(const char *from, const char *end, char **to)
{
	int32_t code = hex4(from, end);

	from += 4;
	if (is_high_surrogate(code)) {
		code = 0x10000 + ((code - 0xd800) << 10) + (hex4(from + 2, end) - 0xdc00);
		from += 6;
	}
	*to = write_utf8(*to, code);
	return from;
}

static char decode_letter(char letter)
{
	switch (letter) {
	case 'b': return '\b';
	case 'f': return '\f';
	case 'n': return '\n';
	case 'r': return '\r';
	case 't': return '\t';
	default: return letter;
	}
}

/* No escape is shorter than what it stands for. */
static struct slice decode(struct slice checked, struct arena *arena)
{
	const char *from = checked.ptr, *end = checked.ptr + checked.len;
	char *text = arena_alloc(arena, checked.len + 1), *to = text;

	while (from < end) {
		if (*from != '\\') {
			*to++ = *from++;
		} else if (from[1] == 'u') {
			from = decode_unicode(from + 2, end, &to);
		} else {
			*to++ = decode_letter(from[1]);
			from += 2;
		}
	}
	return (struct slice){ text, (size_t)(to - text) };
}

bool json_scan_string(struct json_scan *j, struct arena *arena, struct slice *ret)
{
	struct slice raw;
	bool escaped;

	if (!check_string(j, &raw, &escaped))
		return false;
	*ret = escaped ? decode(raw, arena) : raw;
	return true;
}

/* ---- Other values: only checked ---------------------------------------------------------------------------------- */

static bool check_digits(struct json_scan *j)
{
	const char *first = j->at;

	while (json_scan_peek(j) >= '0' && json_scan_peek(j) <= '9')
		j->at++;
	return j->at > first || json_scan_problem(j, "a digit was expected");
}

static bool check_number(struct json_scan *j)
{
	json_scan_accept(j, '-');
	if (!json_scan_accept(j, '0') && !check_digits(j))
		return false;
	if (json_scan_accept(j, '.') && !check_digits(j))
		return false;
	if (!json_scan_accept(j, 'e') && !json_scan_accept(j, 'E'))
		return true;
	if (!json_scan_accept(j, '+'))
		json_scan_accept(j, '-');
	return check_digits(j);
}

static bool check_word(struct json_scan *j, const char *word)
{
	size_t len = strlen(word);

	if ((size_t)(j->end - j->at) < len || memcmp(j->at, word, len) != 0)
		return json_scan_problem(j, "not a JSON value");
	j->at += len;
	return true;
}

static bool check_member(struct json_scan *j, int depth)
{
	struct slice name;
	bool escaped;

	if (!check_string(j, &name, &escaped))
		return false;
	json_scan_space(j);
	if (!json_scan_accept(j, ':'))
		return json_scan_problem(j, "a colon was expected");
	json_scan_space(j);
	return json_scan_value(j, depth);
}

/* Behind the opening bracket: items with commas between them, up to `close`. */
static bool check_items(struct json_scan *j, char close, bool (*check_item)(struct json_scan *, int), int depth)
{
	json_scan_space(j);
	if (json_scan_accept(j, close))
		return true;
	for (;;) {
		if (!check_item(j, depth))
			return false;
		json_scan_space(j);
		if (json_scan_accept(j, close))
			return true;
		if (!json_scan_accept(j, ','))
			return json_scan_problem(j, "a comma was expected");
		json_scan_space(j);
	}
}

bool json_scan_value(struct json_scan *j, int depth)
{
	struct slice text;
	bool escaped;

	if (depth > JSON_SCAN_DEPTH_MAX)
		return json_scan_problem(j, "nested too deeply");
	switch (json_scan_peek(j)) {
	case '"': return check_string(j, &text, &escaped);
	case '{': j->at++; return check_items(j, '}', check_member, depth + 1);
	case '[': j->at++; return check_items(j, ']', json_scan_value, depth + 1);
	case 't': return check_word(j, "true");
	case 'f': return check_word(j, "false");
	case 'n': return check_word(j, "null");
	default: return check_number(j);
	}
}

/* ---- Values that the caller reads himself ------------------------------------------------------------------------ */

static bool begin(struct json_scan *j, char open, const char *problem)
{
	if (!json_scan_accept(j, open))
		return json_scan_problem(j, problem);
	json_scan_space(j);
	return true;
}

/* True when another item follows. */
static bool another(struct json_scan *j)
{
	bool comma;

	json_scan_space(j);
	comma = json_scan_accept(j, ',');
	json_scan_space(j);
	return comma;
}

static bool end(struct json_scan *j, char close)
{
	return json_scan_accept(j, close) || json_scan_problem(j, "a comma was expected");
}

static bool take_name(struct json_scan *j, struct arena *arena, struct slice *ret)
{
	if (!json_scan_string(j, arena, ret))
		return false;
	json_scan_space(j);
	if (!json_scan_accept(j, ':'))
		return json_scan_problem(j, "a colon was expected");
	json_scan_space(j);
	return true;
}

bool json_scan_members(struct json_scan *j, struct arena *arena, bool (*take)(void *data, struct slice name), void *data)
{
	struct slice name;

	if (!begin(j, '{', "an object was expected"))
		return false;
	if (json_scan_accept(j, '}'))
		return true;
	do {
		if (!take_name(j, arena, &name) || !take(data, name))
			return false;
	} while (another(j));
	return end(j, '}');
}

bool json_scan_elements(struct json_scan *j, bool (*take)(void *data), void *data)
{
	if (!begin(j, '[', "an array was expected"))
		return false;
	if (json_scan_accept(j, ']'))
		return true;
	do {
		if (!take(data))
			return false;
	} while (another(j));
	return end(j, ']');
}
