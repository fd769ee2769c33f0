/* The figures of one survey: read from the database, and written as metrics. */
#ifndef POSTRIDER_OBSERVE_SURVEY_FIGURES_H
#define POSTRIDER_OBSERVE_SURVEY_FIGURES_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "config/config.h"
#include "keep/overview.h"
#include "observe/metrics.h"

struct table_figures {
	bool known;                     /* we read it, and could */
	const char *outbox;             /* its name */
	struct outbox_overview view;
	int64_t dead_letters, bytes, live_tuples, dead_tuples;
	PGresult *shards;               /* node or NULL, and how many it owns */
};

struct database_figures {
	bool known;
	PGresult *nodes;                /* state, and how many */
	PGresult *slots;                /* as in struct overview */
	double oldest_transaction;      /* seconds */
};

/* `table` as it is registered. On failure what was read is released, and `known` is false. */
bool table_figures_read(PGconn *conn, const struct outbox_config *config, const char *table, struct table_figures *ret,
			struct error *err);
bool database_figures_read(PGconn *conn, struct database_figures *ret, struct error *err);
void table_figures_release(struct table_figures *f);
void database_figures_release(struct database_figures *f);

void survey_figures_write(const struct table_figures *tables, size_t n, const struct database_figures *database,
			  double seconds, struct metrics_writer *w);

#endif
