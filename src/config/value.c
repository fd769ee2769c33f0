#include "config/value.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/errors.h"
#include "config/units.h"

static void *field(const struct option *o, const void *object)
{
	return (char *)object + o->offset;
}

/* Text goes into SQL, log lines and protocol headers: a stray newline of a YAML block has no business there. */
static bool has_control_character(const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if (*p < ' ' || *p == 0x7F)
			return true;
	}
	return false;
}

static bool find_word(const char *const *words, const char *text, uint32_t *ret)
{
	for (uint32_t i = 0; words[i]; i++) {
		if (strcmp(words[i], text) == 0) {
			*ret = i;
			return true;
		}
	}
	return false;
}

static bool text_fits(const struct option *o, const char *text)
{
	uint32_t ignored;

	if (o->flags & (OPTION_NOT_EMPTY | OPTION_REQUIRED) && text[0] == '\0')
		return false;
	if (o->words && text[0] != '\0' && !find_word(o->words, text, &ignored))
		return false;
	return !has_control_character(text);
}

static bool store_number(const struct option *o, const char *text, bool (*parse)(const char *, int64_t *), void *target)
{
	int64_t number;

	if (!parse(text, &number) || number < o->min || number > o->max)
		return false;
	memcpy(target, &number, sizeof(number));
	return true;
}

static void replace_text(char **target, const char *text)
{
	free(*target);
	*target = mem_strdup(text);
}

static bool store(const struct option *o, void *target, const char *text, const char *where)
{
	uint32_t word;

	switch (o->type) {
	case OPTION_TEXT:
		if (!text_fits(o, text))
			return false;
		replace_text(target, text);
		return true;
	case OPTION_COLUMN:
		if (!text_fits(o, text))
			return false;
		replace_text(&((struct column_config *)target)->name, text);
		replace_text(&((struct column_config *)target)->where, where);
		return true;
	case OPTION_INTEGER:
		return store_number(o, text, units_integer, target);
	case OPTION_DURATION:
		return store_number(o, text, units_duration, target);
	case OPTION_SIZE:
		return store_number(o, text, units_size, target);
	case OPTION_BOOLEAN:
		return units_boolean(text, target);
	case OPTION_WORD:
		if (!find_word(o->words, text, &word))
			return false;
		memcpy(target, &word, sizeof(word));
		return true;
	case OPTION_MAP:
		break;
	}
	return false;
}

/* An example of each unit, because "a duration" alone does not say how to write one. */
static const char *example(const struct option *o)
{
	if (o->type == OPTION_DURATION)
		return ", such as 5s";
	return o->type == OPTION_SIZE ? ", such as 4MiB" : "";
}

static bool refuse(const struct option *o, const char *text, struct error *err)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 1024 };

	option_describe(&b, o);
	buf_add_str(&b, example(o));
	if (has_control_character(text) && (o->type == OPTION_TEXT || o->type == OPTION_COLUMN))
		return error_set(err, ERROR_CONFIG, "must be %s without line breaks or control characters",
				 buf_str(&b));
	if (o->flags & OPTION_URL)
		return error_set(err, ERROR_CONFIG, "must be %s", buf_str(&b));
	buf_add_str(&b, ", not ");
	if (text[0] == '\0')
		buf_add_str(&b, "empty");
	else
		config_add_quoted(&b, text);
	return error_set(err, ERROR_CONFIG, "must be %s", buf_str(&b));
}

bool value_set(const struct option *o, void *object, const char *text, const char *where, struct error *err)
{
	if (!store(o, field(o, object), text, where))
		return refuse(o, text, err);
	return true;
}

bool value_set_pair(const struct option *o, void *object, const char *key, const char *text, const char *where,
		    struct error *err)
{
	struct config_map *map = field(o, object);
	struct config_pair *pair = NULL;

	if (key[0] == '\0' || has_control_character(key))
		return error_set(err, ERROR_CONFIG,
				 "must have names that are not empty and without control characters");
	for (size_t i = 0; i < map->count && !pair; i++) {
		if (strcmp(map->pairs[i].key, key) == 0)
			pair = &map->pairs[i];
	}
	if (!pair) {
		map->pairs = mem_resize(map->pairs, (map->count + 1) * sizeof(*map->pairs));
		pair = &map->pairs[map->count++];
		*pair = (struct config_pair){ .key = mem_strdup(key) };
	}
	replace_text(&pair->value, text);
	replace_text(&pair->where, where);
	return true;
}

static void copy_pairs(const struct option *o, const struct config_map *from, void *to)
{
	const struct config_map *own = field(o, to);
	size_t n_own = own->count;
	struct error impossible;

	for (size_t i = 0; i < from->count; i++) {
		bool has = false;

		for (size_t k = 0; k < n_own && !has; k++)
			has = strcmp(own->pairs[k].key, from->pairs[i].key) == 0;
		if (!has)
			value_set_pair(o, to, from->pairs[i].key, from->pairs[i].value, from->pairs[i].where, &impossible);
	}
}

void value_copy(const struct option *o, const void *from, void *to)
{
	const struct column_config *column;

	switch (o->type) {
	case OPTION_TEXT:
		replace_text(field(o, to), *(char *const *)field(o, from));
		break;
	case OPTION_COLUMN:
		column = field(o, from);
		replace_text(&((struct column_config *)field(o, to))->name, column->name);
		replace_text(&((struct column_config *)field(o, to))->where, column->where);
		break;
	case OPTION_MAP:
		copy_pairs(o, field(o, from), to);
		break;
	case OPTION_INTEGER:
	case OPTION_BOOLEAN:
	case OPTION_DURATION:
	case OPTION_SIZE:
	case OPTION_WORD:
		memcpy(field(o, to), field(o, from), o->size);
		break;
	}
}

const char *value_text(const struct option *o, const void *object)
{
	return *(char *const *)field(o, object); /* the name is a column's first member */
}

static void map_release(struct config_map *map)
{
	for (size_t i = 0; i < map->count; i++) {
		free(map->pairs[i].key);
		free(map->pairs[i].value);
		free(map->pairs[i].where);
	}
	free(map->pairs);
}

void value_release(const struct option *o, void *object)
{
	struct column_config *column;

	switch (o->type) {
	case OPTION_TEXT:
		free(*(char **)field(o, object));
		break;
	case OPTION_COLUMN:
		column = field(o, object);
		free(column->name);
		free(column->where);
		break;
	case OPTION_MAP:
		map_release(field(o, object));
		break;
	case OPTION_INTEGER:
	case OPTION_BOOLEAN:
	case OPTION_DURATION:
	case OPTION_SIZE:
	case OPTION_WORD:
		break;
	}
}
