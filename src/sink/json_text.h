/* What kind of text some bytes are: enough to put them into a JSON document as they are. */
#ifndef POSTRIDER_SINK_JSON_TEXT_H
#define POSTRIDER_SINK_JSON_TEXT_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/slice.h"

bool text_is_utf8(struct slice s);
/* One JSON value with nothing but white space around it, as far as others can be trusted to read it: nested at most
 * JSON_SCAN_DEPTH_MAX deep, no \u0000, no halves of surrogate pairs. Bytes from 0x80 up are not looked at: ask
 * text_is_utf8 as well. */
bool text_is_json(struct slice s);

/* Adds JSON without its line breaks. Inside strings JSON has none, so only white space between tokens changes. */
void buf_add_json_line(struct buf *b, struct slice json);
/* The bytes in base64 with padding, without quotes. */
void buf_add_base64(struct buf *b, struct slice s);

#endif
