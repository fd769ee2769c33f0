#include "config/errors.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum {
	ERRORS_MAX = 100,               /* nobody reads more, and a hostile file must not make us keep more */
	MESSAGE_MAX = 4096,
	VALUE_MAX = 60,
};

/* Keys and paths are quoted in messages as they are; a terminal must not be steered by them. */
static char *printable(char *text)
{
	for (unsigned char *p = (unsigned char *)text; p && *p; p++) {
		if (*p < ' ' || *p == 0x7F)
			*p = '?';
	}
	return text;
}

static bool is_told(const struct config_errors *errors, const char *where, const char *message)
{
	for (size_t i = 0; i < errors->count; i++) {
		const struct config_error *e = &errors->items[i];

		if (strcmp(e->message, message) == 0 && (where ? e->where && strcmp(e->where, where) == 0 : !e->where))
			return true;
	}
	return false;
}

/* Once is enough: a setting that branches have from their outbox is wrong for all of them. */
void config_errors_add(struct config_errors *errors, enum config_severity severity, const char *where, const char *fmt,
		       ...)
{
	char message[MESSAGE_MAX];
	struct config_error *e;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	if (is_told(errors, where, message))
		return;
	if (severity == CONFIG_ERROR)
		errors->failures++;
	if (errors->count == ERRORS_MAX)
		return;
	errors->items = mem_resize(errors->items, (errors->count + 1) * sizeof(*errors->items));
	e = &errors->items[errors->count++];
	*e = (struct config_error){ severity, printable(mem_strdup(where)), printable(mem_strdup(message)) };
}

void config_errors_print(const struct config_errors *errors, FILE *out)
{
	size_t shown = 0;

	for (size_t i = 0; i < errors->count; i++) {
		const struct config_error *e = &errors->items[i];

		if (e->where)
			fprintf(out, "%s: ", e->where);
		fprintf(out, "%s%s\n", e->severity == CONFIG_WARNING ? "warning: " : "", e->message);
		shown += e->severity == CONFIG_ERROR;
	}
	if (shown < errors->failures)
		fprintf(out, "and %zu more errors\n", errors->failures - shown);
}

void config_errors_release(struct config_errors *errors)
{
	for (size_t i = 0; i < errors->count; i++) {
		free(errors->items[i].where);
		free(errors->items[i].message);
	}
	free(errors->items);
	*errors = (struct config_errors){ 0 };
}

void config_add_quoted(struct buf *b, const char *text)
{
	size_t len = strlen(text);
	bool cut = len > VALUE_MAX;

	if (cut) {
		len = VALUE_MAX;
		while (len > 0 && ((unsigned char)text[len] & 0xC0) == 0x80)
			len--; /* not in the middle of a character */
	}
	buf_add_json(b, (struct slice){ text, len });
	if (cut)
		buf_add_str(b, "…");
}
