/* What an outbox has kept of what it published: the archive beside its table, or the rows in the table itself that are
 * marked with the time when they were published. Looks only; nothing here writes. */
#ifndef POSTRIDER_READ_HISTORY_H
#define POSTRIDER_READ_HISTORY_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "pg/table.h"

enum history_source {
	HISTORY_ANY,                    /* the archive where there is one */
	HISTORY_ARCHIVE,                /* <table>_archive */
	HISTORY_TABLE,
};

/* Which rows; NULL: any. Values are text, for the server to read. */
struct history_filter {
	const char *since, *until;      /* when they were published: from the first on, before the second */
	const char *first_id, *last_id; /* both included */
	const char *start;              /* value of the order column, included */
	const char *entities, *types;   /* literals of arrays */
};

enum { HISTORY_PARAMS_MAX = 7, HISTORY_COUNTED_MAX = 100000 };

struct history {
	enum history_source source;     /* never HISTORY_ANY */
	const char *published;          /* the column that says when a row was */
	struct table *table;            /* as routing knows tables */
	bool ordered_by_id;             /* the order column is the id itself */
	bool ordered;                   /* rows of an entity keep their order */
	char *where;                    /* condition on a row `o`, over the parameters $1 … */
	const char *params[HISTORY_PARAMS_MAX]; /* the filter's */
	int n_params;
};

/* How much it is. */
struct history_size {
	int64_t rows;
	bool exact;                     /* otherwise what the server's planner expects */
	bool indexed;                   /* pages are read along an index; otherwise each one reads the whole table */
};

/* `extra` are columns that templates name. `filter` outlives the history. ERROR_CONFIG when nothing is kept, or a
 * column is missing that the filter is about; the hint says what to set. The caller frees *ret. */
bool history_open(PGconn *conn, const struct outbox_config *outbox, const char *const *extra, size_t n_extra,
		  enum history_source source, const struct history_filter *filter, struct history **ret, struct error *err);
void history_free(struct history *h);
void history_freep(struct history **h);         /* for _cleanup_ */

/* Counts up to HISTORY_COUNTED_MAX rows for some seconds, and estimates what is beyond. Waits. */
bool history_measure(PGconn *conn, const struct history *h, struct history_size *ret, struct error *err);

/* The statement that reads a page, from the beginning (`next` false) or behind a row. Parameters follow those of the
 * filter: */
enum {
	HISTORY_PAGE_ROWS,              /* at most */
	HISTORY_PAGE_BYTES,             /* of payload; at least one row comes */
	HISTORY_PAGE_LANES,             /* rows of these are left out */
	HISTORY_PAGE_AHEAD,             /* and these rows, by id */
	HISTORY_PAGE_ID,                /* only `next`: the row that the page comes behind … */
	HISTORY_PAGE_ORDER,             /* … and where it stands, unless the order is that of ids */
	HISTORY_PAGE_PARAMS,
};
char *history_page_sql(const struct history *h, bool next);

/* What stands behind the fields of the table, counted from the end. */
enum {
	HISTORY_FIELD_ADDRESS = 1,      /* NULL: nobody goes back there */
	HISTORY_FIELD_PART,
	HISTORY_FIELD_LANE,
	HISTORY_FIELD_ID,
	HISTORY_FIELD_ORDER,
};

#endif
