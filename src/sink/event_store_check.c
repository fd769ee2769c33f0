#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "pg/exec.h"
#include "sink/event_store.h"

/* Facts about the table ($1, quoted) that one round trip finds out. */
#define FACTS_SQL                                                                                                 \
	"WITH t AS (SELECT pg_catalog.to_regclass($1)::pg_catalog.oid AS oid),"                                   \
	" keys AS ("                                                                                              \
	"  SELECT (SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY a.attname)"                    \
	"    FROM pg_catalog.pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)) AS columns" \
	"  FROM t, pg_catalog.pg_index i"                                                                         \
	"  WHERE i.indrelid = t.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL)" \
	" SELECT pg_catalog.has_table_privilege(t.oid, 'INSERT'),"                                                \
	"  pg_catalog.has_table_privilege(t.oid, 'SELECT'),"                                                      \
	"  EXISTS (SELECT FROM keys k WHERE k.columns = '{message_id}'),"                                         \
	"  EXISTS (SELECT FROM keys k WHERE k.columns = '{entity_id,entity_type,version}'),"                      \
	"  NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a"                                                     \
	"    WHERE a.attrelid = t.oid AND a.attname = 'payload' AND a.attnotnull),"                               \
	"  (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ') FROM pg_catalog.pg_attribute a" \
	"    WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull"                   \
	"     AND NOT a.atthasdef AND a.attidentity = '' AND a.attname <> ALL ($2::pg_catalog.text[])),"          \
	"  (SELECT pg_catalog.string_agg(d.objid::pg_catalog.regclass::pg_catalog.text, ', ')"                    \
	"    FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class s ON s.oid = d.objid"                           \
	"    WHERE d.refobjid = t.oid AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.deptype = 'a'" \
	"     AND CASE WHEN s.relkind = 'S' THEN NOT pg_catalog.has_sequence_privilege(s.oid, 'USAGE') END),"     \
	"  pg_catalog.quote_ident(CURRENT_USER)"                                                                  \
	" FROM t"

enum fact {
	FACT_INSERT,
	FACT_SELECT,
	FACT_UNIQUE_MESSAGE,
	FACT_UNIQUE_VERSION,
	FACT_NULL_PAYLOAD,
	FACT_UNFILLED,
	FACT_SEQUENCES,
	FACT_USER,
};

/* Facts that must hold, and what mends them; %s is the table. */
static const struct {
	enum fact fact;
	enum finding_level level;
	const char *what, *fix;
	bool for_user;                  /* the fix ends with the name of the role */
} required[] = {
	{ FACT_INSERT, FINDING_FAIL, "this role may not add events to %s", "GRANT INSERT ON %s TO ", true },
	{ FACT_SELECT, FINDING_FAIL, "this role may not read versions and message ids from %s",
	  "GRANT SELECT ON %s TO ", true },
	{ FACT_UNIQUE_MESSAGE, FINDING_FAIL, "%s has no unique index on message_id, so events could be stored twice",
	  "CREATE UNIQUE INDEX CONCURRENTLY ON %s (message_id)", false },
	{ FACT_UNIQUE_VERSION, FINDING_FAIL,
	  "%s has no unique index on entity_type, entity_id and version, so finding the next version reads all of it",
	  "CREATE UNIQUE INDEX CONCURRENTLY ON %s (entity_type, entity_id, version)", false },
	{ FACT_NULL_PAYLOAD, FINDING_WARN, "column payload of %s is NOT NULL, so an event without a payload is refused",
	  "ALTER TABLE %s ALTER COLUMN payload DROP NOT NULL", false },
};

static bool holds(const PGresult *facts, enum fact fact)
{
	return PQgetvalue(facts, 0, fact)[0] == 't';
}

static void check_required(const struct event_store *store, const PGresult *facts, struct finding_list *findings)
{
	for (size_t i = 0; i < ARRAY_SIZE(required); i++) {
		_cleanup_(buf_release) struct buf what = { 0 }, fix = { 0 };

		if (holds(facts, required[i].fact))
			continue;
		buf_init(&what, 4096);
		buf_init(&fix, 4096);
		buf_printf(&what, required[i].what, store->table);
		buf_printf(&fix, required[i].fix, store->table);
		buf_printf(&fix, "%s;", required[i].for_user ? PQgetvalue(facts, 0, FACT_USER) : "");
		finding_add(findings, required[i].level, buf_str(&fix), "%s", buf_str(&what));
	}
}

static void check_lists(const struct event_store *store, const PGresult *facts, struct finding_list *findings)
{
	_cleanup_(mem_freep) char *fix = NULL;

	if (!PQgetisnull(facts, 0, FACT_UNFILLED))
		finding_add(findings, FINDING_FAIL, "give each of them a DEFAULT, or let it be NULL",
			    "%s has columns that postrider does not fill and that must have a value: %s", store->table,
			    PQgetvalue(facts, 0, FACT_UNFILLED));
	if (PQgetisnull(facts, 0, FACT_SEQUENCES))
		return;
	fix = mem_printf("GRANT USAGE ON SEQUENCE %s TO %s;", PQgetvalue(facts, 0, FACT_SEQUENCES),
			 PQgetvalue(facts, 0, FACT_USER));
	finding_add(findings, FINDING_FAIL, fix, "this role may not use the sequence of %s", store->table);
}

/* Types of the column payload, and what they take. */
static const struct {
	const char *type, *takes;
} payload_types[] = {
	{ "json", "JSON, byte for byte" },
	{ "jsonb", "JSON, in PostgreSQL's own spelling" },
	{ "text", "text in UTF-8, byte for byte" },
	{ "character varying", "text in UTF-8, byte for byte" },
	{ "bytea", "any bytes" },
};

static void check_payload_type(const struct event_store *store, struct finding_list *findings)
{
	const char *type = store->types[STORE_PAYLOAD];
	_cleanup_(mem_freep) char *fix = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(payload_types); i++) {
		if (strcmp(payload_types[i].type, type) != 0)
			continue;
		finding_add(findings, FINDING_OK, NULL, "event store %s: payloads are stored as %s: %s", store->table,
			    type, payload_types[i].takes);
		return;
	}
	fix = mem_printf("ALTER TABLE %s ALTER COLUMN payload TYPE json USING payload::text::json;", store->table);
	finding_add(findings, FINDING_FAIL, fix, "column payload of %s is %s; it can be json, jsonb, text or bytea",
		    store->table, type);
}

void event_store_check(PGconn *conn, const struct store *base, const char *topic _unused_, struct finding_list *findings)
{
	const struct event_store *store = (const struct event_store *)base;
	_cleanup_(pg_result_clearp) PGresult *facts = NULL;
	_cleanup_(mem_freep) char *columns = event_store_column_list();
	size_t before = findings->count;
	struct error err;

	if (!pg_query(conn, "look at the event store", FACTS_SQL, 2, (const char *const[]){ store->table, columns },
		      &facts, &err)) {
		finding_add_error(findings, &err);
		return;
	}
	check_required(store, facts, findings);
	check_lists(store, facts, findings);
	if (findings->count == before)
		store_check_statement(conn, base, findings);
	check_payload_type(store, findings);
}
