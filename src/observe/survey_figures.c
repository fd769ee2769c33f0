#include "observe/survey_figures.h"

#include <stdlib.h>
#include <string.h>

#include "keep/node.h"
#include "pg/exec.h"

/* --- reading -------------------------------------------------------------------------------------------------------- */

enum { FIGURE_DEAD_LETTERS, FIGURE_BYTES, FIGURE_LIVE, FIGURE_DEAD };

/* All of it from small tables, an index, the catalog and statistics. $1: the table. */
static const char select_table[] =
	"WITH part AS (SELECT $1::text::pg_catalog.regclass AS id"
	"  UNION SELECT p.relid FROM pg_catalog.pg_partition_tree($1::text::pg_catalog.regclass) p)"
	" SELECT (SELECT count(*) FROM (SELECT FROM postrider.dead_letter d JOIN postrider.outbox b ON b.id = d.outbox"
	"   WHERE b.table_name = $1::text LIMIT 100000) AS s),"
	"  sum(pg_catalog.pg_total_relation_size(part.id)), sum(pg_catalog.pg_stat_get_live_tuples(part.id)),"
	"  sum(pg_catalog.pg_stat_get_dead_tuples(part.id)) FROM part";

static const char select_shards[] =
	"SELECT n.name, count(*) FROM postrider.shard s JOIN postrider.outbox b ON b.id = s.outbox"
	" LEFT JOIN postrider.node n ON n.id = s.node AND s.expires_at > pg_catalog.clock_timestamp()"
	" WHERE b.table_name = $1 GROUP BY 1 ORDER BY 1";

static const char select_nodes[] =
	"SELECT v.state, count(n.id) FROM (VALUES ('alive'), ('silent'), ('dead')) AS v(state) LEFT JOIN postrider.node n"
	" ON v.state = CASE WHEN NOT " NODE_IS_SILENT " THEN 'alive' WHEN " NODE_IS_GONE " THEN 'dead' ELSE 'silent' END"
	" GROUP BY 1 ORDER BY 1";

static const char select_oldest_transaction[] =
	"SELECT coalesce(extract(epoch FROM max(pg_catalog.clock_timestamp() - t.began)), 0) FROM"
	" (SELECT a.xact_start FROM pg_catalog.pg_stat_activity a WHERE a.datname = pg_catalog.current_database()"
	"   AND a.pid <> pg_catalog.pg_backend_pid()"
	"  UNION ALL SELECT p.prepared FROM pg_catalog.pg_prepared_xacts p"
	"   WHERE p.database = pg_catalog.current_database()) AS t(began)";

static int64_t number_at(const PGresult *res, int column)
{
	return atoll(PQgetvalue(res, 0, column));
}

bool table_figures_read(PGconn *conn, const struct outbox_config *config, const char *table, struct table_figures *ret,
			struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(table_figures_release) struct table_figures f = { .known = true, .outbox = config->name };
	const char *const params[] = { table };

	overview_read_outbox(conn, config, &f.view);
	if (f.view.error.kind != ERROR_NONE) {
		*err = f.view.error;
		return false;
	}
	if (!pg_query(conn, "read the size of an outbox", select_table, 1, params, &res, err) ||
	    !pg_query(conn, "read the owners of shards", select_shards, 1, params, &f.shards, err))
		return false;
	f.dead_letters = number_at(res, FIGURE_DEAD_LETTERS);
	f.bytes = number_at(res, FIGURE_BYTES);
	f.live_tuples = number_at(res, FIGURE_LIVE);
	f.dead_tuples = number_at(res, FIGURE_DEAD);
	*ret = f;
	f = (struct table_figures){ 0 };
	return true;
}

bool database_figures_read(PGconn *conn, struct database_figures *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *oldest = NULL;
	_cleanup_(database_figures_release) struct database_figures f = { .known = true };

	if (!pg_query(conn, "count the nodes", select_nodes, 0, NULL, &f.nodes, err) ||
	    !overview_read_slots(conn, &f.slots, err) ||
	    !pg_query(conn, "look for the oldest transaction", select_oldest_transaction, 0, NULL, &oldest, err))
		return false;
	f.oldest_transaction = atof(PQgetvalue(oldest, 0, 0));
	*ret = f;
	f = (struct database_figures){ 0 };
	return true;
}

void table_figures_release(struct table_figures *f)
{
	overview_release_outbox(&f->view);
	PQclear(f->shards);
	*f = (struct table_figures){ 0 };
}

void database_figures_release(struct database_figures *f)
{
	PQclear(f->nodes);
	PQclear(f->slots);
	*f = (struct database_figures){ 0 };
}

/* --- writing -------------------------------------------------------------------------------------------------------- */

/* Figures by which -1 means that there is none. */
static double pending(const struct table_figures *f)
{
	return (double)f->view.estimate;
}

static double estimated(const struct table_figures *f)
{
	return f->view.more;
}

static double oldest(const struct table_figures *f)
{
	if (f->view.oldest_ms < 0)
		return f->view.pending == 0 ? 0 : -1;
	return (double)f->view.oldest_ms / 1000;
}

static double scheduled(const struct table_figures *f)
{
	return (double)f->view.scheduled;
}

static double next_due(const struct table_figures *f)
{
	return f->view.next_due_ms < 0 ? -1 : (double)f->view.next_due_ms / 1000;
}

static double held(const struct table_figures *f)
{
	return (double)f->view.held;
}

static double blocked(const struct table_figures *f)
{
	return (double)f->view.blocked;
}

static double dead_letters(const struct table_figures *f)
{
	return (double)f->dead_letters;
}

static double bytes(const struct table_figures *f)
{
	return (double)f->bytes;
}

static double live_tuples(const struct table_figures *f)
{
	return (double)f->live_tuples;
}

static double dead_tuples(const struct table_figures *f)
{
	return (double)f->dead_tuples;
}

static double all_shards(const struct table_figures *f)
{
	double sum = 0;

	for (int i = 0; i < PQntuples(f->shards); i++)
		sum += atof(PQgetvalue(f->shards, i, 1));
	return sum > 0 ? sum : -1;
}

static const struct {
	enum metric_id id;
	double (*of)(const struct table_figures *);
} by_table[] = {
	{ METRIC_PENDING, pending },
	{ METRIC_PENDING_ESTIMATED, estimated },
	{ METRIC_OLDEST, oldest },
	{ METRIC_SCHEDULED, scheduled },
	{ METRIC_NEXT_DUE, next_due },
	{ METRIC_HELD, held },
	{ METRIC_BLOCKED, blocked },
	{ METRIC_DEAD_LETTERS, dead_letters },
	{ METRIC_TABLE_BYTES, bytes },
	{ METRIC_LIVE_TUPLES, live_tuples },
	{ METRIC_DEAD_TUPLES, dead_tuples },
	{ METRIC_SHARDS, all_shards },
};

static void write_owners(const struct table_figures *f, struct metrics_writer *w)
{
	for (int i = 0; i < PQntuples(f->shards); i++)
		if (!PQgetisnull(f->shards, i, 0))
			metrics_sample(w, METRIC_SHARDS_OWNED, LABELS(f->outbox, PQgetvalue(f->shards, i, 0)),
				       atof(PQgetvalue(f->shards, i, 1)));
}

static void write_slots(const PGresult *slots, struct metrics_writer *w)
{
	static const char *const states[] = { "active", "idle", "lost", "gone", "polled" };

	for (int i = 0; i < PQntuples(slots); i++)
		if (!PQgetisnull(slots, i, SLOT_RETAINED_BYTES))
			metrics_sample(w, METRIC_SLOT_RETAINED,
				       LABELS(PQgetvalue(slots, i, SLOT_TABLE), PQgetvalue(slots, i, SLOT_NAME)),
				       atof(PQgetvalue(slots, i, SLOT_RETAINED_BYTES)));
	for (int i = 0; i < PQntuples(slots); i++)
		for (size_t k = 0; k < ARRAY_SIZE(states); k++)
			metrics_sample(w, METRIC_SLOT_STATE,
				       LABELS(PQgetvalue(slots, i, SLOT_TABLE), PQgetvalue(slots, i, SLOT_NAME), states[k]),
				       strcmp(PQgetvalue(slots, i, SLOT_STATE), states[k]) == 0);
}

static void write_database(const struct database_figures *d, struct metrics_writer *w)
{
	write_slots(d->slots, w);
	for (int i = 0; i < PQntuples(d->nodes); i++)
		metrics_sample(w, METRIC_NODES, LABELS(PQgetvalue(d->nodes, i, 0)), atof(PQgetvalue(d->nodes, i, 1)));
	metrics_sample(w, METRIC_OLDEST_TRANSACTION, NO_LABELS, d->oldest_transaction);
}

void survey_figures_write(const struct table_figures *tables, size_t n, const struct database_figures *database,
			  double seconds, struct metrics_writer *w)
{
	for (size_t k = 0; k < ARRAY_SIZE(by_table); k++)
		for (const struct table_figures *f = tables; f < tables + n; f++)
			if (f->known && by_table[k].of(f) >= 0)
				metrics_sample(w, by_table[k].id, LABELS(f->outbox), by_table[k].of(f));
	for (const struct table_figures *f = tables; f < tables + n; f++)
		if (f->known)
			write_owners(f, w);
	if (!database->known)
		return;
	write_database(database, w);
	metrics_sample(w, METRIC_SURVEY_SECONDS, NO_LABELS, seconds);
}
