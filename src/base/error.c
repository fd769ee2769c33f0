#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static const char *const kind_names[ERROR_KIND_COUNT] = {
#define X(kind, name) [kind] = name,
	ERROR_KINDS(X)
#undef X
};

const char *error_kind_name(enum error_kind kind)
{
	return kind_names[kind];
}

/* Messages of libraries end in line feeds; ours are single lines. And they are UTF-8, also where a value in them was cut
 * in the middle of a character: the database, which keeps the reason of a refusal, would refuse it otherwise. */
static void one_line(char *text)
{
	size_t len = strlen(text), n;

	while (len && (text[len - 1] == '\n' || text[len - 1] == ' '))
		text[--len] = '\0';
	for (size_t i = 0; i < len; i += MAX(n, 1)) {
		n = utf8_length((const unsigned char *)text + i, len - i);
		if (n == 0)
			text[i] = '?';
		else if ((unsigned char)text[i] < ' ')
			text[i] = ' ';
	}
}

struct error *error_copy(const struct error *err)
{
	struct error *copy = mem_new(struct error);

	*copy = *err;
	return copy;
}

bool error_set(struct error *err, enum error_kind kind, const char *fmt, ...)
{
	va_list ap;

	err->kind = kind;
	err->hint[0] = '\0';
	va_start(ap, fmt);
	vsnprintf(err->message, sizeof(err->message), fmt, ap);
	va_end(ap);
	one_line(err->message);
	return false;
}

bool error_hint(struct error *err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err->hint, sizeof(err->hint), fmt, ap);
	va_end(ap);
	return false;
}

bool error_prefix(struct error *err, const char *fmt, ...)
{
	char message[sizeof(err->message)];
	va_list ap;
	int used;

	va_start(ap, fmt);
	used = vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	if (used >= 0 && (size_t)used < sizeof(message))
		snprintf(message + used, sizeof(message) - (size_t)used, ": %s", err->message);
	memcpy(err->message, message, sizeof(message));
	one_line(err->message);
	return false;
}
