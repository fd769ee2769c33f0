#include "base/glob.h"

#include <stdint.h>
#include <string.h>

/* The character after this one: `?` is a character of UTF-8, not a byte of it. */
static size_t character_end(struct slice text, size_t at)
{
	do
		at++;
	while (at < text.len && ((unsigned char)text.ptr[at] & 0xC0) == 0x80);
	return at;
}

/* Only the last star needs to be remembered: what the ones before it took may stay as it is. */
static bool fits(struct slice pattern, struct slice text)
{
	size_t p = 0, t = 0, star = SIZE_MAX, taken = 0;

	while (t < text.len) {
		if (p < pattern.len && pattern.ptr[p] == '*') {
			star = p++;
			taken = t;
		} else if (p < pattern.len && pattern.ptr[p] == '?') {
			p++;
			t = character_end(text, t);
		} else if (p < pattern.len && pattern.ptr[p] == text.ptr[t]) {
			p++;
			t++;
		} else if (star != SIZE_MAX) {
			p = star + 1;
			t = taken = character_end(text, taken);
		} else {
			return false;
		}
	}
	while (p < pattern.len && pattern.ptr[p] == '*')
		p++;
	return p == pattern.len;
}

bool glob_matches(const char *patterns, struct slice text)
{
	for (;; patterns++) {
		size_t len = strcspn(patterns, "|");

		if (fits((struct slice){ patterns, len }, text))
			return true;
		patterns += len;
		if (*patterns == '\0')
			return false;
	}
}
