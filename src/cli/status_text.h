/* An overview as tables for people, in lines of at most 100 characters but for what other programs say. */
#ifndef POSTRIDER_CLI_STATUS_TEXT_H
#define POSTRIDER_CLI_STATUS_TEXT_H

#include "base/buf.h"
#include "cli/rates.h"
#include "keep/overview.h"

/* A value of one of its tables, or NULL for SQL NULL. */
static inline const char *cell(const PGresult *res, int row, int column)
{
	return PQgetisnull(res, row, column) ? NULL : PQgetvalue(res, row, column);
}

void status_write(const struct overview *view, struct buf *out);
/* What matters most comes first, since a screen may be small; with columns for the rates. */
void status_write_live(const struct overview *view, const struct rates *rates, struct buf *out);

#endif
