/* A YAML document as a tree in which everything knows its line and column. Only what a settings file needs: no anchors,
 * aliases or tags, bounded depth and number of nodes, and every key once. */
#ifndef POSTRIDER_CONFIG_TREE_H
#define POSTRIDER_CONFIG_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "config/load.h"

enum tree_kind { TREE_TEXT, TREE_MAPPING, TREE_LIST };

struct tree {
	enum tree_kind kind;
	bool null;                      /* a text that stands for nothing: empty, ~ or null, without quotes */
	size_t line, column;            /* from 1 */
	char *text;                     /* TREE_TEXT; "" when null */
	char *key;                      /* NULL outside of mappings */
	size_t key_line, key_column;
	struct tree **children;
	size_t n_children;
};

/* False when the bytes cannot be made into a tree. A key given twice is an error in the list too, but the tree is there
 * and has both. An empty document gives an empty mapping. The caller frees *ret. */
bool tree_parse(const char *file, const char *bytes, size_t len, struct tree **ret, struct config_errors *errors);
void tree_free(struct tree *t);
void tree_freep(struct tree **t);

const struct tree *tree_child(const struct tree *mapping, const char *key);     /* NULL: none; accepts NULL */
/* Does an earlier child have the same key? */
bool tree_is_repeated(const struct tree *mapping, const struct tree *child);
const char *tree_kind_name(const struct tree *t);       /* "a mapping", "a list", "text", "nothing" */
char *tree_where(const char *file, size_t line, size_t column); /* "file:3:9"; the caller frees */

#endif
