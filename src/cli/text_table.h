/* A table of text for people: columns as wide as what is in them, up to a limit of their own. */
#ifndef POSTRIDER_CLI_TEXT_TABLE_H
#define POSTRIDER_CLI_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define TEXT_TABLE_COLUMNS_MAX 12

struct text_column {
	const char *title;
	bool right;                     /* aligned, as numbers are */
	size_t max;                     /* characters; what is longer is cut and ends in an ellipsis. At least the title's */
};

struct text_table {
	const struct text_column *columns;
	size_t n_columns;
	char **cells;                   /* row by row */
	size_t n_cells;
};

void text_table_init(struct text_table *t, const struct text_column *columns, size_t n);
void text_table_release(struct text_table *t);          /* also for _cleanup_ */
void text_table_add(struct text_table *t, const char *const cells[]);   /* one row, copied; NULL is a dash */
void text_table_write(const struct text_table *t, struct buf *out);     /* titles and rows, a line each */

/* Short forms, into `to`, which is also returned. */
struct text_short {
	char text[24];
};
const char *text_count(struct text_short *to, int64_t n);               /* 950  12,345  1.2M */
const char *text_duration(struct text_short *to, int64_t ms);           /* 0.4 s  12 s  3 min  2 h  5 d */

#endif
