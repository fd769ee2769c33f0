/* What `check` found: a list of statements, each with the way to mend it. */
#ifndef POSTRIDER_BASE_FINDING_H
#define POSTRIDER_BASE_FINDING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/macros.h"

enum finding_level { FINDING_OK, FINDING_WARN, FINDING_FAIL };

struct finding {
	enum finding_level level;
	char *what;             /* "table public.outbox: column payload is missing" */
	char *fix;              /* SQL or setting, NULL when there is nothing to mend */
};

struct finding_list {
	struct finding *items;
	size_t count;
};

void finding_add(struct finding_list *l, enum finding_level level, const char *fix, const char *fmt, ...)
	_printf_(4, 5);                                         /* fix may be NULL; both are copied */
void finding_add_error(struct finding_list *l, const struct error *err);        /* FINDING_FAIL, the hint as the fix */
bool finding_any(const struct finding_list *l, enum finding_level level);
void finding_release(struct finding_list *l);

#endif
