#include "sink/json_text.h"

#include <stdint.h>

#include "relay/json_scan.h"

bool text_is_utf8(struct slice s)
{
	size_t i = 0;

	while (i < s.len) {
		size_t n = utf8_length((const unsigned char *)s.ptr + i, s.len - i);

		if (n == 0)
			return false;
		i += n;
	}
	return true;
}

bool text_is_json(struct slice s)
{
	struct json_scan j = { .at = s.ptr, .end = s.ptr + s.len };

	json_scan_space(&j);
	if (!json_scan_value(&j, 1))
		return false;
	json_scan_space(&j);
	return j.at == j.end;
}

void buf_add_json_line(struct buf *b, struct slice json)
{
	size_t from = 0;

	for (size_t i = 0; i < json.len; i++) {
		if (json.ptr[i] != '\n' && json.ptr[i] != '\r')
			continue;
		buf_add(b, json.ptr + from, i - from);
		buf_add_char(b, ' ');
		from = i + 1;
	}
	buf_add(b, json.ptr + from, json.len - from);
}

void buf_add_base64(struct buf *b, struct slice s)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = (const unsigned char *)s.ptr;

	for (size_t i = 0; i < s.len; i += 3) {
		size_t left = s.len - i;
		uint32_t bits = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
				(left > 2 ? p[i + 2] : 0);
		char four[4] = {
			digits[bits >> 18],
			digits[bits >> 12 & 63],
			left > 1 ? digits[bits >> 6 & 63] : '=',
			left > 2 ? digits[bits & 63] : '=',
		};

		buf_add(b, four, sizeof(four));
	}
}
