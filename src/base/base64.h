/* Bytes out of base64: the standard alphabet, with padding. */
#ifndef POSTRIDER_BASE_BASE64_H
#define POSTRIDER_BASE_BASE64_H

#include "base/slice.h"

/* So many bytes may be written for a text of this length. */
#define BASE64_ROOM(len) ((len) / 4 * 3 + 3)

/* Line feeds are passed over. False: it is none. */
bool base64_read(struct slice text, char *ret, size_t *ret_len);

#endif
