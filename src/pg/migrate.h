/* The versions of the schema `postrider`: migrations/NNNN_name.sql, compiled into the program by migrations/embed.py
 * and recorded in postrider.migration. Only `init` changes the schema; everybody else asks whether it fits. */
#ifndef POSTRIDER_PG_MIGRATE_H
#define POSTRIDER_PG_MIGRATE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct migration {
	int version;
	const char *name;
	const char *checksum;           /* SHA-256 of the file */
	int serves;                     /* the oldest program that can work on it, as the newest version that that one knows */
	const char *sql;
};

extern const struct migration migrations[];     /* 1, 2, 3 … */
extern const size_t n_migrations;

/* For `init`: the version that the database has, 0 where there is no schema yet. ERROR_CONFIG when it is newer than
 * this program, or when a migration was applied that reads differently from ours. */
bool migrate_version(PGconn *conn, int *ret, struct error *err);
/* For all others: may this program work on the schema that is there? Yes, when it is ours, or a newer one that still
 * serves programs as old as we are: so nodes of two versions run side by side while they are upgraded one after the other.
 * Otherwise ERROR_CONFIG, with what to do as the hint. */
bool migrate_version_served(PGconn *conn, int *ret_version, struct error *err);
bool migrate_version_check(PGconn *conn, struct error *err);    /* the same, for who does not ask which version it is */

/* One SQL statement each, to be run in this order; a second time it does nothing. The caller frees. */
char *migrate_bootstrap_sql(void);              /* the schema, and the table of versions */
char *migrate_sql(const struct migration *m);

#endif
