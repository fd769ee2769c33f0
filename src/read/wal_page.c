#include "read/wal_page.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "base/macros.h"
#include "base/mem.h"
#include "pg/array.h"
#include "read/wal_message.h"

#define SCRATCH_CEILING ((size_t)1 << 30)       /* no value of PostgreSQL is larger */
#define SCRATCH_KEPT ((size_t)64 * 1024)        /* from page to page */

/* ---- Which column is which field --------------------------------------------------------------------------------- */

static int32_t find_column(const struct pgoutput_relation *relation, const char *name)
{
	struct slice wanted = slice_of(name);

	for (uint32_t i = 0; i < relation->n_columns; i++)
		if (slice_equal(relation->columns[i].name, wanted))
			return (int32_t)i;
	return -1;
}

static bool missing_column(const struct table *t, const struct table_column *c, struct error *err)
{
	error_set(err, ERROR_CONFIG, "the log has no column %s of table %s", c->name, t->name);
	return error_hint(err, "it was dropped or renamed, or the publication has a list of columns without it: put it"
			       " there, or name the column that is there instead");
}

bool wal_mapping_make(struct wal_mapping *m, const struct table *table, const struct pgoutput_relation *relation,
		      struct error *err)
{
	size_t n = FIELD_EXTRA + table->n_extra;
	_cleanup_(wal_mapping_release) struct wal_mapping made = {
		.relation = relation->oid,
		.n_columns = relation->n_columns,
		.column_of = mem_new_array(int32_t, n),
		.types = mem_new_array(uint32_t, n),
		.conversions = mem_new_array(enum wal_conversion, n),
		.scheduled = table->scheduled.name ? find_column(relation, table->scheduled.name) : -1,
	};

	for (size_t i = 0; i < n; i++) {
		const struct table_column *c = table_column_of(table, i);

		made.column_of[i] = c->name ? find_column(relation, c->name) : -1;
		if (made.column_of[i] < 0) {
			if (c->name)
				return missing_column(table, c, err);
			continue;
		}
		made.types[i] = relation->columns[made.column_of[i]].type;
		made.conversions[i] = wal_text_conversion(made.types[i], c->type, MIN(i, FIELD_EXTRA));
	}
	*m = made;
	made = (struct wal_mapping){ 0 };
	return true;
}

void wal_mapping_release(struct wal_mapping *m)
{
	free(m->column_of);
	free(m->types);
	free(m->conversions);
	*m = (struct wal_mapping){ 0 };
}

/* ---- Pages ------------------------------------------------------------------------------------------------------- */

void wal_page_init(struct wal_page *p, const struct table *table)
{
	*p = (struct wal_page){
		.table = table,
		.n_fields = FIELD_EXTRA + (int)table->n_extra,
	};
	buf_init(&p->scratch, SCRATCH_CEILING);
}

void wal_page_release(struct wal_page *p)
{
	PQclear(p->rows);
	p->rows = NULL;
	buf_release(&p->scratch);
}

PGresult *wal_page_take(struct wal_page *p)
{
	PGresult *rows = TAKE_PTR(p->rows);

	p->n_rows = 0;
	p->bytes = 0;
	if (p->scratch.room > SCRATCH_KEPT)
		buf_release(&p->scratch);
	return rows;
}

static void begin(struct wal_page *p)
{
	int n = p->n_fields + 2;
	_cleanup_(mem_freep) PGresAttDesc *fields = mem_new_array(PGresAttDesc, (size_t)n);

	for (int i = 0; i < n; i++)
		fields[i] = (PGresAttDesc){ .name = (char *)"", .format = 1, .typid = TYPE_TEXT, .typlen = -1 };
	if (strcmp(p->table->columns[FIELD_PAYLOAD].type, "bytea") == 0)
		fields[FIELD_PAYLOAD].typid = TYPE_BYTEA;
	fields[p->n_fields].typid = TYPE_INT4;
	p->rows = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	mem_must(p->rows && PQsetResultAttrs(p->rows, n, fields));
}

/* libpq only reads the value. */
static void set_value(struct wal_page *p, int field, struct slice value)
{
	mem_must(PQsetvalue(p->rows, (int)p->n_rows, field, (char *)value.ptr, (int)value.len));
	p->bytes += value.len;
}

/* The first value that is set begins the row, with all others NULL: those are not set at all. */
static void end_row(struct wal_page *p, int32_t part, struct slice address)
{
	uint32_t bytes = htonl((uint32_t)part);

	set_value(p, p->n_fields, (struct slice){ (const char *)&bytes, sizeof(bytes) });
	set_value(p, p->n_fields + 1, address);
	p->n_rows++;
}

void wal_page_add_fields(struct wal_page *p, const struct slice *fields, int32_t part, struct slice address)
{
	if (!p->rows)
		begin(p);
	for (int i = 0; i < p->n_fields; i++)
		if (fields[i].ptr)
			set_value(p, i, fields[i]);
	end_row(p, part, address);
}

static struct slice value_of(const struct wal_mapping *m, const struct pgoutput_insert *insert, int field)
{
	return m->column_of[field] < 0 ? SLICE_NULL : insert->values[m->column_of[field]];
}

bool wal_page_add(struct wal_page *p, const struct wal_mapping *m, const struct pgoutput_insert *insert, int32_t part,
		  struct error *err)
{
	struct slice payload;
	char small[WAL_TEXT_SMALL];

	if (insert->relation != m->relation || insert->n_values != m->n_columns)
		return error_set(err, ERROR_BUG, "a row of relation %u has %u columns, and relation %u has %u",
				 insert->relation, insert->n_values, m->relation, m->n_columns);
	/* Before anything is set: half a row could not be taken back. */
	payload = value_of(m, insert, FIELD_PAYLOAD);
	if (m->conversions[FIELD_PAYLOAD] == WAL_BYTES && payload.ptr) {
		if (!wal_text_bytes(payload, &p->scratch, err))
			return false;
		payload = (struct slice){ p->scratch.data, p->scratch.len };
	}
	if (!p->rows)
		begin(p);
	for (int i = 0; i < p->n_fields; i++) {
		struct slice value = i == FIELD_PAYLOAD ? payload : value_of(m, insert, i);

		if (value.ptr)
			set_value(p, i, wal_text_convert(m->conversions[i], value, small));
	}
	end_row(p, part, SLICE_LITERAL(""));
	return true;
}

bool wal_page_add_message(struct wal_page *p, struct slice json, const char *outbox, uint64_t lsn, int32_t part,
			  bool *ret_foreign, struct error *err)
{
	_cleanup_(wal_message_release) struct wal_message m = { 0 };

	if (!wal_message_read(&m, p->table, json, outbox, lsn, ret_foreign, err))
		return false;
	if (!*ret_foreign)
		wal_page_add_fields(p, m.fields, part, SLICE_LITERAL(""));
	return true;
}
