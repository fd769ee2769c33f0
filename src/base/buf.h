/* A growing byte buffer with a ceiling that its owner must name. It always ends in a NUL that `len` does not count.
 * Appending past the ceiling sets `overflow` and appends nothing; the owner asks once at the end. */
#ifndef POSTRIDER_BASE_BUF_H
#define POSTRIDER_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"
#include "base/slice.h"

struct buf {
	char *data;
	size_t len;
	size_t room;
	size_t ceiling;
	bool overflow;
};

void buf_init(struct buf *b, size_t ceiling);
void buf_release(struct buf *b);                        /* also for _cleanup_ */
void buf_clear(struct buf *b);                          /* empties it, keeps the memory */
void buf_add(struct buf *b, const void *bytes, size_t len);
void buf_add_char(struct buf *b, char c);
void buf_add_str(struct buf *b, const char *s);
void buf_add_slice(struct buf *b, struct slice s);
/* For a part of a URL: ASCII letters and digits and -._~ as they are, all else as %XX. */
void buf_add_percent_encoded(struct buf *b, struct slice s);
void buf_printf(struct buf *b, const char *fmt, ...) _printf_(2, 3);
/* A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD. */
void buf_add_json(struct buf *b, struct slice s);
/* Length of the well-formed UTF-8 sequence at `p`, or 0; `left` is at least 1. */
size_t utf8_length(const unsigned char *p, size_t left);
/* One element of a PostgreSQL array literal, quoted. */
void buf_add_array_element(struct buf *b, struct slice s);
char *buf_take(struct buf *b);                          /* the caller frees; the buffer is empty again */
const char *buf_str(const struct buf *b);               /* never NULL */

#endif
