/* The user's outbox table: which columns it has, of which types, and the SQL fragments that read them.
 *
 * Readers put these fragments into their statements; routing reads the fields by the numbers below. All fields are
 * asked for in binary format, and come as text or as one of the types that relay/field.c writes as text. So json, jsonb,
 * text and bytea arrive byte for byte as PostgreSQL stores them. */
#ifndef POSTRIDER_PG_TABLE_H
#define POSTRIDER_PG_TABLE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/finding.h"
#include "config/config.h"

enum field {
	FIELD_ID,
	FIELD_ENTITY,
	FIELD_PAYLOAD,
	FIELD_MESSAGE_ID,
	FIELD_ENTITY_TYPE,
	FIELD_EVENT_TYPE,
	FIELD_HEADERS,
	FIELD_TOPIC,
	FIELD_CREATED_AT,
	FIELD_TRACEPARENT,
	FIELD_EXTRA,            /* the first of the columns that only templates name */
};

struct table_column {
	char *name;             /* as in the catalogue; NULL: the table has none */
	char *quoted;           /* fit for SQL */
	char *type;             /* format_type(): "bigint", "character varying(255)" */
	bool nullable;
};

/* What stands before `WHERE scheduled IS NULL` in an index of rows without a time. */
enum table_partial { PARTIAL_ENTITY, PARTIAL_ORDER, PARTIAL_SHARD, PARTIAL_COUNT };

struct table {
	char *name;             /* qualified, and quoted where needed: format('%I.%I'), as in postrider.outbox */
	uint32_t oid;
	uint32_t toast_oid;     /* of the table that holds values too large for a page; 0: none */
	bool partitioned;
	bool drawn_in_order;    /* the order comes from a sequence and has an index: what is lower is older */
	struct table_column columns[FIELD_EXTRA];
	struct table_column order;      /* the column of order */
	struct table_column published_at; /* with `published: mark` only */
	char *archive;                  /* with `published: archive` only: where rows go, qualified and quoted … */
	char *archive_columns;          /* … and the columns that both have, as a list */
	struct table_column scheduled;  /* before which time a row is not published; a name of NULL: rows go at once */
	bool partial[PARTIAL_COUNT];    /* which of these indexes there are */
	struct table_column *extra;     /* named by templates, in the order in which route_columns gives them */
	size_t n_extra;
	/* "o.id, o.entity_id, o.price::text, …": FIELD_EXTRA + n_extra expressions, NULL::text for what is missing; `o` is
	 * the alias of the table. */
	char *select_list;
};

/* The parts of a row, and the setting below `columns` that names the column which plays each. */
struct table_mapping {
	enum field field;
	const char *key;                /* "entity_id" */
	size_t offset;                  /* of its struct column_config in struct columns_config */
	bool required;
};
extern const struct table_mapping table_mappings[FIELD_EXTRA];

static inline const struct column_config *table_mapped_column(const struct table_mapping *m, const struct columns_config *c)
{
	return (const void *)((const char *)c + m->offset);
}

/* The column of a field, also of one that only templates name. */
static inline const struct table_column *table_column_of(const struct table *t, size_t field)
{
	return field < FIELD_EXTRA ? &t->columns[field] : &t->extra[field - FIELD_EXTRA];
}

/* For who makes a struct table of his own: the columns of a relation as the catalogue has them, one of them by name (false:
 * there is none), and its expression at the end of a select list. */
bool table_read_columns(PGconn *conn, uint32_t oid, PGresult **ret, struct error *err);
bool table_find_column(PGconn *conn, const PGresult *columns, const char *name, struct table_column *ret);
void table_add_expression(struct buf *list, const struct table_column *c, enum field field);
void table_column_release(struct table_column *c);

/* Looks the table up and compares it with the settings. `extra` are column names that templates use. What is missing
 * (table, id, entity, payload, any column that the user named or a template uses) is an ERROR_CONFIG whose message
 * names the setting with file:line:column and whose hint is the SQL or setting that mends it. */
bool table_open(PGconn *conn, const struct outbox_config *outbox, const char *const *extra, size_t n_extra,
		struct table **ret, struct error *err);
/* The same for a table of which nothing is settled, and whose ids may therefore be missing. */
bool table_open_history(PGconn *conn, const struct outbox_config *outbox, const char *const *extra, size_t n_extra,
			struct table **ret, struct error *err);
void table_free(struct table *t);
/* Test, as SQL, that a row `o` is still to be published. The caller frees. */
char *table_pending(const struct table *t);
/* True when the select list has the column as it is, not cast to text. */
bool table_is_uncast(const struct table_column *c, enum field field);
void table_freep(struct table **t);

/* The number of the table in postrider.outbox: the key of postrider.retry, the payload of its notifications and the end of
 * its bell's name, postrider.bell_<number>. ERROR_CONFIG where `init` has not been. */
bool table_number(PGconn *conn, const struct table *t, int *ret, struct error *err);

/* ERROR_CONFIG where rows are marked as published and the settings would have them published again. */
bool table_check_marks(PGconn *conn, const struct outbox_config *outbox, const struct table *t, struct error *err);

/* For `check`: privileges on the table and on the schema postrider, types that can be ordered, the indexes that readers
 * walk, nullable keys, sequence cache, the wake-up trigger. Whether the schema's version fits (migrate_version_check)
 * is the caller's to say, once for all tables. */
void table_check(PGconn *conn, const struct outbox_config *outbox, const struct table *t,
		 struct finding_list *findings);
/* A part of it, in a file of its own: what keeps the table from being lean, and what the setting `published` needs. */
void table_check_lean(PGconn *conn, const struct outbox_config *outbox, const struct table *t, struct finding_list *findings);

#endif
