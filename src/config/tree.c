#include "config/tree.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/mem.h"
#include "config/errors.h"

enum {
	DEPTH_MAX = 16,
	NODES_MAX = 5000,
};

struct builder {
	const char *file;
	const char *bytes;
	size_t len;
	struct config_errors *errors;
	yaml_parser_t parser;
	struct tree *root;
	struct tree *stack[DEPTH_MAX];  /* open mappings and lists; borrowed, they hang on the root */
	size_t depth;
	size_t nodes;
	char *key;                      /* read, and waiting for its value */
	size_t key_line, key_column;
};

void tree_free(struct tree *t)
{
	if (!t)
		return;
	/* Depth is bounded by DEPTH_MAX. */
	for (size_t i = 0; i < t->n_children; i++)
		tree_free(t->children[i]);
	free(t->children);
	free(t->text);
	free(t->key);
	free(t);
}

void tree_freep(struct tree **t)
{
	tree_free(*t);
}

const struct tree *tree_child(const struct tree *mapping, const char *key)
{
	if (!mapping || mapping->kind != TREE_MAPPING)
		return NULL;
	for (size_t i = 0; i < mapping->n_children; i++) {
		if (strcmp(mapping->children[i]->key, key) == 0)
			return mapping->children[i];
	}
	return NULL;
}

bool tree_is_repeated(const struct tree *mapping, const struct tree *child)
{
	return tree_child(mapping, child->key) != child;
}

const char *tree_kind_name(const struct tree *t)
{
	if (t->kind == TREE_MAPPING)
		return "a mapping";
	if (t->kind == TREE_LIST)
		return "a list";
	return t->null ? "nothing" : "text";
}

char *tree_where(const char *file, size_t line, size_t column)
{
	return mem_printf("%s:%zu:%zu", file, line, column);
}

static bool complain(struct builder *b, size_t line, size_t column, const char *message)
{
	_cleanup_(mem_freep) char *where = tree_where(b->file, line, column);

	config_errors_add(b->errors, CONFIG_ERROR, where, "%s", message);
	return false;
}

static bool complain_at(struct builder *b, const yaml_mark_t *mark, const char *message)
{
	return complain(b, mark->line + 1, mark->column + 1, message);
}

static bool complain_syntax(struct builder *b)
{
	const yaml_parser_t *p = &b->parser;
	_cleanup_(mem_freep) char *message =
		mem_printf("not valid YAML: %s%s%s", p->context ? p->context : "", p->context ? ", " : "",
			   p->problem ? p->problem : "cannot be read");
	size_t line = 1, column = 1;

	if (p->error != YAML_READER_ERROR)
		return complain_at(b, &p->problem_mark, message);
	/* The reader of bytes knows offsets only. */
	for (size_t i = 0; i < p->problem_offset && i < b->len; i++) {
		column = b->bytes[i] == '\n' ? 1 : column + 1;
		line += b->bytes[i] == '\n';
	}
	return complain(b, line, column, message);
}

static bool is_null(const yaml_event_t *ev)
{
	static const char *const nulls[] = { "", "~", "null", "Null", "NULL" };

	if (ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(nulls); i++) {
		if (strcmp((const char *)ev->data.scalar.value, nulls[i]) == 0)
			return true;
	}
	return false;
}

static bool take_key(struct builder *b, const yaml_event_t *ev)
{
	if (ev->type != YAML_SCALAR_EVENT)
		return complain_at(b, &ev->start_mark, "a key must be plain text");
	b->key = mem_strdup((const char *)ev->data.scalar.value);
	b->key_line = ev->start_mark.line + 1;
	b->key_column = ev->start_mark.column + 1;
	return true;
}

/* Hangs the node below the innermost open one. A key that is there already is an error; its value is kept, so that
 * what is wrong below it can be told as well. */
static void attach(struct builder *b, struct tree *node)
{
	struct tree *parent;

	if (b->depth == 0) {
		b->root = node;
		return;
	}
	parent = b->stack[b->depth - 1];
	if (parent->kind == TREE_MAPPING) {
		const struct tree *first = tree_child(parent, b->key);

		if (first) {
			_cleanup_(mem_freep) char *message = NULL;
			_cleanup_(buf_release) struct buf quoted = { .ceiling = 1024 };

			config_add_quoted(&quoted, b->key);
			message = mem_printf("key %s is given twice; the first is at line %zu", buf_str(&quoted),
					     first->key_line);
			complain(b, b->key_line, b->key_column, message);
		}
		node->key = TAKE_PTR(b->key);
		node->key_line = b->key_line;
		node->key_column = b->key_column;
	}
	parent->children = mem_resize(parent->children, (parent->n_children + 1) * sizeof(*parent->children));
	parent->children[parent->n_children++] = node;
}

static bool take_value(struct builder *b, const yaml_event_t *ev)
{
	struct tree *node;

	if (++b->nodes > NODES_MAX)
		return complain_at(b, &ev->start_mark, "too many values for a settings file");
	if (ev->type != YAML_SCALAR_EVENT && b->depth == DEPTH_MAX)
		return complain_at(b, &ev->start_mark, "nested too deeply for a settings file");
	node = mem_new(struct tree);
	node->line = ev->start_mark.line + 1;
	node->column = ev->start_mark.column + 1;
	attach(b, node);
	if (ev->type == YAML_SCALAR_EVENT) {
		node->kind = TREE_TEXT;
		node->null = is_null(ev);
		node->text = mem_strdup(node->null ? "" : (const char *)ev->data.scalar.value);
		return true;
	}
	node->kind = ev->type == YAML_MAPPING_START_EVENT ? TREE_MAPPING : TREE_LIST;
	b->stack[b->depth++] = node;
	return true;
}

/* What YAML has and a settings file does not: aliases could multiply a small file into a huge one, and a tag would ask
 * for a meaning that we do not give. */
static bool refuse_extras(struct builder *b, const yaml_event_t *ev)
{
	const yaml_char_t *anchor = NULL, *tag = NULL;

	switch (ev->type) {
	case YAML_ALIAS_EVENT:
		anchor = ev->data.alias.anchor;
		break;
	case YAML_SCALAR_EVENT:
		anchor = ev->data.scalar.anchor;
		tag = ev->data.scalar.tag;
		if (strlen((const char *)ev->data.scalar.value) != ev->data.scalar.length)
			return complain_at(b, &ev->start_mark, "a value must not contain a NUL character");
		break;
	case YAML_SEQUENCE_START_EVENT:
		anchor = ev->data.sequence_start.anchor;
		tag = ev->data.sequence_start.tag;
		break;
	case YAML_MAPPING_START_EVENT:
		anchor = ev->data.mapping_start.anchor;
		tag = ev->data.mapping_start.tag;
		break;
	default:
		break;
	}
	if (anchor)
		return complain_at(b, &ev->start_mark, "anchors and aliases are not supported; write the value out");
	if (tag)
		return complain_at(b, &ev->start_mark, "tags are not supported; write the value without it");
	return true;
}

static bool take_event(struct builder *b, const yaml_event_t *ev)
{
	const struct tree *open = b->depth ? b->stack[b->depth - 1] : NULL;

	if (!refuse_extras(b, ev))
		return false;
	switch (ev->type) {
	case YAML_DOCUMENT_START_EVENT:
		if (b->root)
			return complain_at(b, &ev->start_mark, "only one YAML document is expected");
		return true;
	case YAML_SCALAR_EVENT:
	case YAML_SEQUENCE_START_EVENT:
	case YAML_MAPPING_START_EVENT:
		if (open && open->kind == TREE_MAPPING && !b->key)
			return take_key(b, ev);
		return take_value(b, ev);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		b->depth--;
		return true;
	default:
		return true;
	}
}

static bool build(struct builder *b)
{
	yaml_event_t ev;
	bool ok = true, ended = false;

	while (ok && !ended) {
		if (!yaml_parser_parse(&b->parser, &ev))
			return complain_syntax(b);
		ended = ev.type == YAML_STREAM_END_EVENT;
		ok = take_event(b, &ev);
		yaml_event_delete(&ev);
	}
	return ok;
}

bool tree_parse(const char *file, const char *bytes, size_t len, struct tree **ret, struct config_errors *errors)
{
	struct builder b = { .file = file, .bytes = bytes, .len = len, .errors = errors };
	bool ok;

	if (!yaml_parser_initialize(&b.parser))
		abort(); /* out of memory */
	yaml_parser_set_input_string(&b.parser, (const unsigned char *)bytes, len);
	ok = build(&b);
	yaml_parser_delete(&b.parser);
	free(b.key);
	if (!ok) {
		tree_free(b.root);
		return false;
	}
	if (!b.root || b.root->null) {
		tree_free(b.root);
		b.root = mem_new(struct tree);
		b.root->kind = TREE_MAPPING;
		b.root->line = b.root->column = 1;
	}
	*ret = b.root;
	return true;
}
