#include "base/base64.h"

#include <stdint.h>

static int digit_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_read(struct slice text, char *ret, size_t *ret_len)
{
	size_t n_digits = 0, n_padding = 0, len = 0;
	uint32_t bits = 0, n_bits = 0;

	for (size_t i = 0; i < text.len; i++) {
		int digit = digit_of(text.ptr[i]);

		if (text.ptr[i] == '\n') {
			continue;
		} else if (text.ptr[i] == '=') {
			n_padding++;
			continue;
		} else if (digit < 0 || n_padding > 0) {
			return false;
		}
		n_digits++;
		bits = bits << 6 | (uint32_t)digit;
		n_bits += 6;
		if (n_bits >= 8) {
			n_bits -= 8;
			ret[len++] = (char)(bits >> n_bits);
		}
	}
	*ret_len = len;
	return (n_digits + n_padding) % 4 == 0 && n_padding <= 2;
}
