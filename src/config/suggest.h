/* What a mistyped word was meant to be. */
#ifndef POSTRIDER_CONFIG_SUGGEST_H
#define POSTRIDER_CONFIG_SUGGEST_H

#include <stddef.h>

/* Insertions, deletions, replacements and swaps of neighbours that turn one word into the other; words longer than 64
 * bytes are far from everything. */
size_t suggest_distance(const char *a, const char *b);
/* The nearest of the known words, or NULL when none is near enough to be what was meant. Borrowed from `known`. */
const char *suggest_nearest(const char *word, const char *const *known, size_t n);

#endif
