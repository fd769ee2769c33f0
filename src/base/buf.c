#include "base/buf.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void buf_init(struct buf *b, size_t ceiling)
{
	*b = (struct buf){ .ceiling = ceiling };
}

void buf_release(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ .ceiling = b->ceiling };
}

void buf_clear(struct buf *b)
{
	b->len = 0;
	b->overflow = false;
	if (b->data)
		b->data[0] = '\0';
}

/* Makes room for `more` bytes and the NUL. */
static bool grow(struct buf *b, size_t more)
{
	size_t want, room;

	if (b->overflow || more > b->ceiling || b->len > b->ceiling - more) {
		b->overflow = true;
		return false;
	}
	want = b->len + more + 1;
	if (want <= b->room)
		return true;
	room = b->room ? b->room : 64;
	while (room < want)
		room *= 2;
	b->data = mem_resize(b->data, room);
	b->room = room;
	return true;
}

void buf_add(struct buf *b, const void *bytes, size_t len)
{
	if (!grow(b, len))
		return;
	if (len)
		memcpy(b->data + b->len, bytes, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void buf_add_char(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_add_str(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_add_slice(struct buf *b, struct slice s)
{
	buf_add(b, s.ptr, s.len);
}

void buf_add_percent_encoded(struct buf *b, struct slice s)
{
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.ptr[i];

		if (c < 0x80 && (isalnum(c) || memchr("-._~", c, 4)))
			buf_add_char(b, s.ptr[i]);
		else
			buf_printf(b, "%%%02X", c);
	}
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len < 0 || !grow(b, (size_t)len))
		return;
	va_start(ap, fmt);
	vsnprintf(b->data + b->len, (size_t)len + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)len;
}

size_t utf8_length(const unsigned char *p, size_t left)
{
	static const struct {
		unsigned char first, last, low, high; /* of the lead byte, and of the byte after it */
		unsigned char length;
	} forms[] = {
		{ 0xC2, 0xDF, 0x80, 0xBF, 2 }, { 0xE0, 0xE0, 0xA0, 0xBF, 3 }, { 0xE1, 0xEC, 0x80, 0xBF, 3 },
		{ 0xED, 0xED, 0x80, 0x9F, 3 }, { 0xEE, 0xEF, 0x80, 0xBF, 3 }, { 0xF0, 0xF0, 0x90, 0xBF, 4 },
		{ 0xF1, 0xF3, 0x80, 0xBF, 4 }, { 0xF4, 0xF4, 0x80, 0x8F, 4 },
	};

	if (p[0] < 0x80)
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		if (p[0] < forms[i].first || p[0] > forms[i].last)
			continue;
		if (left < forms[i].length || p[1] < forms[i].low || p[1] > forms[i].high)
			return 0;
		for (size_t k = 2; k < forms[i].length; k++)
			if ((p[k] & 0xC0) != 0x80)
				return 0;
		return forms[i].length;
	}
	return 0;
}

void buf_add_json(struct buf *b, struct slice s)
{
	const unsigned char *p = (const unsigned char *)s.ptr;
	size_t i = 0;

	buf_add_char(b, '"');
	while (i < s.len) {
		size_t n = utf8_length(p + i, s.len - i);

		if (n == 0) {
			buf_add_str(b, "\\ufffd");
			n = 1;
		} else if (p[i] == '"' || p[i] == '\\') {
			buf_add_char(b, '\\');
			buf_add_char(b, (char)p[i]);
		} else if (p[i] < ' ' || p[i] == 0x7F) {
			buf_printf(b, "\\u%04x", p[i]);
		} else {
			buf_add(b, p + i, n);
		}
		i += n;
	}
	buf_add_char(b, '"');
}

void buf_add_array_element(struct buf *b, struct slice s)
{
	buf_add_char(b, '"');
	for (size_t i = 0, from = 0; i <= s.len; i++) {
		if (i < s.len && s.ptr[i] != '"' && s.ptr[i] != '\\')
			continue;
		buf_add(b, s.ptr + from, i - from);
		if (i < s.len)
			buf_add_char(b, '\\');
		from = i;
	}
	buf_add_char(b, '"');
}

char *buf_take(struct buf *b)
{
	char *data = b->data ? b->data : mem_strdup("");

	*b = (struct buf){ .ceiling = b->ceiling };
	return data;
}

const char *buf_str(const struct buf *b)
{
	return b->data ? b->data : "";
}
