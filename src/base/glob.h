/* Patterns: `*` stands for any text, also for none, `?` for one character, `|` stands between alternatives. Everything else
 * stands for itself, byte for byte. */
#ifndef POSTRIDER_BASE_GLOB_H
#define POSTRIDER_BASE_GLOB_H

#include <stdbool.h>

#include "base/slice.h"

/* Does one of the alternatives fit the whole text? Takes at most as many steps as the two are long, multiplied. */
bool glob_matches(const char *patterns, struct slice text);

#endif
