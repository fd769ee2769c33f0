/* Values as people write them: 5s, 250ms, 4MiB, 100, true. Strict: no sign, no blank, no leading zero, no overflow. */
#ifndef POSTRIDER_CONFIG_UNITS_H
#define POSTRIDER_CONFIG_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* False, and *ret untouched, when the text is anything else than the whole of one value. */
bool units_integer(const char *text, int64_t *ret);
bool units_boolean(const char *text, bool *ret);
bool units_duration(const char *text, int64_t *ret_ms);        /* ms, s, m, h, d; a plain 0 */
bool units_size(const char *text, int64_t *ret_bytes);         /* B, KiB, MiB, GiB; a plain 0 */

/* The shortest way to write it. */
void units_add_duration(struct buf *b, int64_t ms);
void units_add_size(struct buf *b, int64_t bytes);

#endif
