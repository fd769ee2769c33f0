#include "cli/text_table.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"

static bool continues(char byte)
{
	return ((unsigned char)byte & 0xC0) == 0x80;
}

static size_t characters(const char *s)
{
	size_t n = 0;

	for (; *s; s++)
		n += !continues(*s);
	return n;
}

void text_table_init(struct text_table *t, const struct text_column *columns, size_t n)
{
	assert(n <= TEXT_TABLE_COLUMNS_MAX);
	*t = (struct text_table){ .columns = columns, .n_columns = n };
}

void text_table_release(struct text_table *t)
{
	for (size_t i = 0; i < t->n_cells; i++)
		free(t->cells[i]);
	free(t->cells);
}

/* At most `max` characters. */
static char *cut(const char *s, size_t max)
{
	size_t end = 0, n = 0;

	if (characters(s) <= max)
		return mem_strdup(s);
	while (n < max - 1 || continues(s[end])) {
		n += !continues(s[end]);
		end++;
	}
	return mem_printf("%.*s…", (int)end, s);
}

void text_table_add(struct text_table *t, const char *const cells[])
{
	t->cells = mem_resize(t->cells, (t->n_cells + t->n_columns) * sizeof(*t->cells));
	for (size_t i = 0; i < t->n_columns; i++)
		t->cells[t->n_cells++] = cut(cells[i] ? cells[i] : "-", t->columns[i].max);
}

static void write_row(const struct text_table *t, const char *const *cells, const size_t widths[], struct buf *out)
{
	for (size_t i = 0; i < t->n_columns; i++) {
		int pad = (int)(widths[i] - characters(cells[i]));
		bool last = i + 1 == t->n_columns;

		buf_add_str(out, "  ");
		if (t->columns[i].right)
			buf_printf(out, "%*s%s", pad, "", cells[i]);
		else
			buf_printf(out, "%s%*s", cells[i], last ? 0 : pad, "");
	}
	buf_add_char(out, '\n');
}

void text_table_write(const struct text_table *t, struct buf *out)
{
	const char *titles[TEXT_TABLE_COLUMNS_MAX];
	size_t widths[TEXT_TABLE_COLUMNS_MAX];

	for (size_t i = 0; i < t->n_columns; i++) {
		titles[i] = t->columns[i].title;
		widths[i] = characters(titles[i]);
		for (size_t k = i; k < t->n_cells; k += t->n_columns)
			widths[i] = MAX(widths[i], characters(t->cells[k]));
	}
	write_row(t, titles, widths, out);
	for (size_t k = 0; k < t->n_cells; k += t->n_columns)
		write_row(t, (const char *const *)&t->cells[k], widths, out);
}

const char *text_count(struct text_short *to, int64_t n)
{
	if (n < 1000)
		snprintf(to->text, sizeof(to->text), "%lld", (long long)n);
	else if (n < 1000 * 1000)
		snprintf(to->text, sizeof(to->text), "%lld,%03lld", (long long)(n / 1000), (long long)(n % 1000));
	else if (n < 1000 * 1000 * 1000)
		snprintf(to->text, sizeof(to->text), "%.1fM", (double)n / 1e6);
	else
		snprintf(to->text, sizeof(to->text), "%.1fG", (double)n / 1e9);
	return to->text;
}

const char *text_duration(struct text_short *to, int64_t ms)
{
	/* The largest unit of which there are at least two, so that nothing is rounded by more than half. */
	static const struct {
		int64_t ms;
		const char *name;
	} units[] = { { 24 * 3600 * 1000, "d" }, { 3600 * 1000, "h" }, { 60 * 1000, "min" }, { 1000, "s" } };

	if (ms < 10000) {
		snprintf(to->text, sizeof(to->text), "%.1f s", (double)ms / 1000);
		return to->text;
	}
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (ms < 2 * units[i].ms)
			continue;
		snprintf(to->text, sizeof(to->text), "%lld %s", (long long)(ms / units[i].ms), units[i].name);
		break;
	}
	return to->text;
}
