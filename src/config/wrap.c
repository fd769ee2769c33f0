#include "config/wrap.h"

#include <string.h>

void wrap_text(FILE *out, const char *prefix, size_t columns, const char *text)
{
	size_t used = 0; /* columns of the line that is being written */

	for (const char *word = text; *word; word += strspn(word, " ")) {
		size_t len = strcspn(word, " ");

		if (used > 0 && used + 1 + len <= columns) {
			fprintf(out, " %.*s", (int)len, word);
			used += 1 + len;
		} else {
			fprintf(out, "%s%s%.*s", used > 0 ? "\n" : "", prefix, (int)len, word);
			used = strlen(prefix) + len;
		}
		word += len;
	}
	fputc('\n', out);
}
