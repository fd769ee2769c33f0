/* How long an endpoint asks us to wait: never less than nothing, never more than a year, and digits are what strtoull reads. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sink/webhook_answer.h"

#define NOW ((time_t)1794798000)
#define YEAR_S (365ull * 24 * 3600)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_digits(const char *text)
{
	return text[0] && strspn(text, "0123456789") == strlen(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int64_t ms = webhook_retry_after_ms((struct slice){ (const char *)data, size }, NOW);
	char text[32] = "";

	if (ms < -1 || ms > (int64_t)YEAR_S * 1000 || (ms > 0 && ms % 1000 != 0))
		abort();
	if (size < sizeof(text) && !memchr(data, '\0', size)) {
		memcpy(text, data, size);
		if (is_digits(text) && ms != (int64_t)(MIN(strtoull(text, NULL, 10), YEAR_S) * 1000))
			abort();
	}
	return 0;
}
