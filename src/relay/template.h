/* Text with holes: `outbox.event.{entity_type}`. A hole names a value, `{{` and `}}` stand for the braces themselves.
 *
 * Compiled once, immutable after that: any thread may expand. It knows nothing of tables: whoever compiles says which
 * number a name has, whoever expands brings the values by number. A template is NULL when one of its values is, as
 * joining text with NULL is in SQL. */
#ifndef POSTRIDER_RELAY_TEMPLATE_H
#define POSTRIDER_RELAY_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/slice.h"

#define TEMPLATE_NAME_MAX 63            /* bytes: as long as PostgreSQL lets a column's name be */

struct template;

/* Gives the number of a name, or refuses it with a reason. */
typedef bool template_resolver(void *context, const char *name, uint32_t *ret, struct error *err);

/* The caller frees *ret. A failure is an ERROR_CONFIG that begins with the place: "character 14: …". */
bool template_compile(const char *text, template_resolver *resolve, void *context, struct template **ret,
		      struct error *err);
void template_free(struct template *t);
void template_freep(struct template **t);               /* for _cleanup_ */

/* The text of a template without holes, which lives as long as the template; NULL for others. */
const char *template_constant(const struct template *t);

/* A template without holes gives its own text and one that is a single hole the very value: nothing is copied. All
 * others are put together in the arena. NULL when one of the values is. */
struct slice template_expand(const struct template *t, const struct slice *values, struct arena *arena);
/* Why it was NULL: the name of the first value that is; NULL when none is. */
const char *template_missing(const struct template *t, const struct slice *values);

#endif
