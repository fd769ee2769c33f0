/* An outbox of the settings as the database has it: what every command that steers one begins with. Belongs to who opened it;
 * the settings outlive it. */
#ifndef POSTRIDER_STEER_TARGET_H
#define POSTRIDER_STEER_TARGET_H

#include <libpq-fe.h>
#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"
#include "pg/table.h"
#include "read/reader.h"

struct target {
	const struct outbox_config *config;
	const struct reader_driver *driver;
	bool ordered;                   /* by entity; otherwise each row stands for itself */
	struct table *table;
	int number;                     /* in postrider.outbox */
};

/* The caller releases, also after failure. */
bool target_open(struct target *t, PGconn *conn, const struct outbox_config *config, struct error *err);
void target_release(struct target *t);          /* also for _cleanup_ */

/* As sql_for_table; the caller frees. */
char *target_sql(const struct target *t, const char *sql);
/* As pg_query, with the statement made for the table. */
bool target_query(const struct target *t, PGconn *conn, const char *doing, const char *sql, int n_params,
		  const char *const *params, PGresult **ret, struct error *err);

/* Tells all nodes that something has changed; inside a transaction, when that commits. */
bool target_notify(const struct target *t, PGconn *conn, struct error *err);

/* Retry entries that a person has made, and how far ahead those are that nobody tries, as SQL over an entry `r`. */
#define TARGET_IS_PARKED "(r.row_id IS NULL AND r.blocked_at IS NOT NULL)"
#define TARGET_NEVER "clock_timestamp() + interval '100 years'"

#endif
