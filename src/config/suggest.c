#include "config/suggest.h"

#include <string.h>

#include "base/macros.h"

enum { WORD_MAX = 64 };

size_t suggest_distance(const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b);
	size_t rows[3][WORD_MAX + 1];

	if (la > WORD_MAX || lb > WORD_MAX)
		return MAX(la, lb);
	for (size_t j = 0; j <= lb; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= la; i++) {
		size_t *row = rows[i % 3];
		const size_t *above = rows[(i + 2) % 3], *above_that = rows[(i + 1) % 3];

		row[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
			row[j] = MIN(row[j], above[j] + 1);
			row[j] = MIN(row[j], row[j - 1] + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = MIN(row[j], above_that[j - 2] + 1);
		}
	}
	return rows[la % 3][lb];
}

/* A third of the word may be wrong, and one letter of a short one. */
const char *suggest_nearest(const char *word, const char *const *known, size_t n)
{
	const char *nearest = NULL;
	size_t best = MAX(strlen(word) / 3, (size_t)1) + 1;

	for (size_t i = 0; i < n; i++) {
		size_t distance = suggest_distance(word, known[i]);

		if (distance < best && distance < strlen(known[i])) {
			best = distance;
			nearest = known[i];
		}
	}
	return nearest;
}
