#include "relay/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"

struct part {
	char *name;             /* of a hole; NULL for plain text */
	uint32_t value;         /* number of the hole's value */
	struct slice text;      /* plain text, inside the template's `plain` */
};

struct template {
	char *plain;            /* all plain text with braces unescaped, ended by a NUL */
	struct part *parts;
	size_t n_parts;
};

struct compiler {
	const char *text;
	const char *at;
	struct template *t;
	size_t used;            /* of t->plain */
	template_resolver *resolve;
	void *context;
};

/* People count characters, not bytes. */
static size_t character_at(const char *text, const char *at)
{
	size_t n = 1;

	for (const char *p = text; p < at; p++)
		n += ((unsigned char)*p & 0xc0) != 0x80;
	return n;
}

static bool refuse(const struct compiler *c, const char *at, struct error *err, const char *reason)
{
	return error_set(err, ERROR_CONFIG, "character %zu: %s", character_at(c->text, at), reason);
}

static struct part *add_part(struct template *t)
{
	t->parts = mem_resize(t->parts, sizeof(*t->parts) * (t->n_parts + 1));
	t->parts[t->n_parts] = (struct part){ 0 };
	return &t->parts[t->n_parts++];
}

static void add_plain(struct compiler *c, char byte)
{
	struct template *t = c->t;
	struct part *last = t->n_parts ? &t->parts[t->n_parts - 1] : NULL;

	if (!last || last->name) {
		last = add_part(t);
		last->text.ptr = t->plain + c->used;
	}
	t->plain[c->used++] = byte;
	last->text.len++;
}

/* Letters of any script, digits and what else PostgreSQL allows in names that people really use. A space or a dot is
 * far more often a slip than a name. */
static bool fits_name(char byte)
{
	unsigned char b = (unsigned char)byte;

	return (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') || b == '_' || b == '-' ||
	       b == '$' || b >= 0x80;
}

static bool compile_hole(struct compiler *c, struct error *err)
{
	const char *open = c->at, *name = open + 1, *end = name;
	_cleanup_(mem_freep) char *copy = NULL;
	struct part *hole;
	uint32_t value;

	while (fits_name(*end))
		end++;
	if (*end == '\0' || *end == '{') {
		refuse(c, open, err, "the brace is never closed");
		return error_hint(err, "write {{ for a brace that is part of the text");
	}
	if (*end != '}')
		return refuse(c, end, err, "a name consists of letters, digits, _, - and $");
	if (end == name)
		return refuse(c, open, err, "there is no name between the braces");
	if (end - name > TEMPLATE_NAME_MAX)
		return refuse(c, name, err, "the name is longer than the 63 bytes of a column's name");

	copy = mem_strndup(name, (size_t)(end - name));
	if (!c->resolve(c->context, copy, &value, err))
		return error_prefix(err, "character %zu", character_at(c->text, name));
	hole = add_part(c->t);
	hole->name = TAKE_PTR(copy);
	hole->value = value;
	c->at = end + 1;
	return true;
}

static bool compile_next(struct compiler *c, struct error *err)
{
	char byte = *c->at;
	bool brace = byte == '{' || byte == '}';

	if (!brace || c->at[1] == byte) {
		add_plain(c, byte);
		c->at += brace ? 2 : 1;
		return true;
	}
	if (byte == '{')
		return compile_hole(c, err);
	refuse(c, c->at, err, "the brace was never opened");
	return error_hint(err, "write }} for a brace that is part of the text");
}

bool template_compile(const char *text, template_resolver *resolve, void *context, struct template **ret,
		      struct error *err)
{
	_cleanup_(template_freep) struct template *t = mem_new(struct template);
	struct compiler c = { .text = text, .at = text, .t = t, .resolve = resolve, .context = context };

	t->plain = mem_alloc(strlen(text) + 1);
	while (*c.at)
		if (!compile_next(&c, err))
			return false;
	*ret = TAKE_PTR(t);
	return true;
}

void template_free(struct template *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_parts; i++)
		free(t->parts[i].name);
	free(t->parts);
	free(t->plain);
	free(t);
}

void template_freep(struct template **t)
{
	template_free(*t);
}

const char *template_constant(const struct template *t)
{
	return t->n_parts == 0 || (t->n_parts == 1 && !t->parts[0].name) ? t->plain : NULL;
}

static struct slice part_value(const struct part *p, const struct slice *values)
{
	return p->name ? values[p->value] : p->text;
}

struct slice template_expand(const struct template *t, const struct slice *values, struct arena *arena)
{
	size_t len = 0;
	char *text, *end;

	if (t->n_parts == 0)
		return (struct slice){ t->plain, 0 };
	if (t->n_parts == 1)
		return part_value(&t->parts[0], values);

	for (size_t i = 0; i < t->n_parts; i++) {
		struct slice s = part_value(&t->parts[i], values);

		if (!s.ptr)
			return SLICE_NULL;
		len += s.len;
	}
	text = end = arena_alloc(arena, len + 1);
	for (size_t i = 0; i < t->n_parts; i++) {
		struct slice s = part_value(&t->parts[i], values);

		memcpy(end, s.ptr, s.len);
		end += s.len;
	}
	return (struct slice){ text, len };
}

const char *template_missing(const struct template *t, const struct slice *values)
{
	for (size_t i = 0; i < t->n_parts; i++)
		if (t->parts[i].name && !values[t->parts[i].value].ptr)
			return t->parts[i].name;
	return NULL;
}
