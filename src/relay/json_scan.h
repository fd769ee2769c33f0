/* Walks over JSON text from value to value without building anything.
 *
 * Its own rather than a JSON library's, for three reasons: this is on the path of a row, and most strings can be handed
 * on without a copy; numbers must leave as they were written, whatever their size (jsonb keeps all digits of numeric);
 * and nobody here needs a tree. Bytes from 0x80 up pass unseen: PostgreSQL has checked the encoding. */
#ifndef POSTRIDER_RELAY_JSON_SCAN_H
#define POSTRIDER_RELAY_JSON_SCAN_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/slice.h"

#define JSON_SCAN_DEPTH_MAX 64

/* All functions that return bool move `at` behind what they found, or stop where it is wrong. */
struct json_scan {
	const char *at;
	const char *end;
	const char *problem;    /* why it stopped: a constant */
};

/* Says what is wrong at `at`; always false. */
bool json_scan_problem(struct json_scan *j, const char *what);
/* The next byte, or -1 at the end. */
int json_scan_peek(const struct json_scan *j);
/* True when this byte comes next. That it does not is no problem yet. */
bool json_scan_accept(struct json_scan *j, char c);
void json_scan_space(struct json_scan *j);
/* A string as its text: a slice of the JSON where it has no escapes, otherwise in the arena. */
bool json_scan_string(struct json_scan *j, struct arena *arena, struct slice *ret);
/* Any value, only checked; `depth` is 1 for the outermost. */
bool json_scan_value(struct json_scan *j, int depth);
/* An object, whose members' values are left to `take`: it is called with `j` in front of each, and must move behind it. */
bool json_scan_members(struct json_scan *j, struct arena *arena, bool (*take)(void *data, struct slice name), void *data);
/* The same with the elements of an array. */
bool json_scan_elements(struct json_scan *j, bool (*take)(void *data), void *data);

#endif
