#include "sink/branch_plan.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "pg/exec.h"
#include "pg/table.h"
#include "read/sql.h"

/* What stands before the INSERT and behind it: $1 and $2 as enum branch_way has them. Rows go in the order in which they are
 * settled, which is that of their entities.
 *
 * The test of the address is made twice. Who waits for a lock is given the row as it is then, wherever it is by then, and that
 * one is not what the reader settles. MATERIALIZED keeps the two apart. When a row is not where it was, nothing is settled
 * this way (postrider.found_all): it would come to the branch later, by key, and behind rows of its entity that follow it. */
static const struct {
	const char *lock, *pick;
} ways[BRANCH_WAYS] = {
	[BRANCH_BY_ADDRESS] = {
		"WITH branch_locked AS MATERIALIZED (SELECT o.ctid AS branch_address, o.* FROM {table} o"
		"  WHERE o.ctid = ANY ($1::tid[]) AND (o.{id} IN (SELECT unnest($2::{ids}))) IS TRUE AND {pending} FOR UPDATE),"
		" branch_picked AS MATERIALIZED (SELECT o.*, u.branch_place FROM branch_locked o"
		"  JOIN unnest($1::tid[], $2::{ids}) WITH ORDINALITY AS u(branch_address, branch_id, branch_place)"
		"  ON u.branch_id = o.{id} AND u.branch_address = o.branch_address)",
		"WHERE (SELECT postrider.found_all(count(*), cardinality($1::tid[])) FROM branch_picked) ORDER BY o.branch_place",
	},
	[BRANCH_BY_KEY] = {
		"WITH branch_locked AS MATERIALIZED (SELECT o.* FROM {table} o"
		"  WHERE o.{id} = ANY ($2::{ids}) AND {pending} FOR UPDATE),"
		" branch_picked AS (SELECT o.*, u.branch_place FROM branch_locked o"
		"  JOIN unnest($1::text[]::{key_type}[], $2::{ids}) WITH ORDINALITY AS u(branch_key, branch_id, branch_place)"
		"  ON u.branch_id = o.{id} AND u.branch_key = o.{key})",
		"ORDER BY o.branch_place",
	},
};

void branch_plan_free(struct branch_plan *plan)
{
	if (!plan)
		return;
	for (size_t i = 0; i < plan->n_branches; i++)
		for (int way = 0; way < BRANCH_WAYS; way++)
			free(plan->copies[i].sql[way]);
	free(plan->copies);
	free(plan);
}

/* When a row is due is over when it comes to a branch, and that it was published is not said of the branch. */
char *branch_own_columns(const struct outbox_config *outbox)
{
	_cleanup_(buf_release) struct buf list = { .ceiling = 1000 };
	const char *scheduled = outbox->columns.scheduled_for.name;

	buf_add_char(&list, '{');
	if (scheduled[0])
		buf_add_array_element(&list, slice_of(scheduled));
	if (outbox->published == PUBLISHED_MARK) {
		buf_add_str(&list, scheduled[0] ? "," : "");
		buf_add_array_element(&list, slice_of(outbox->columns.published_at.name));
	}
	buf_add_char(&list, '}');
	return buf_take(&list);
}

static bool missing_table(const struct outbox_config *branch, struct error *err)
{
	error_set(err, ERROR_CONFIG, "branch %s has no table yet: there is no %s", branch->name, branch->table);
	return error_hint(err, "run `postrider init`");
}

/* What both tables have, in their order: as a list, and the same behind `o.`. $1 outbox, $2 branch; no row: no such table. */
#define SELECT_SHARED                                                                                                \
	"SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum),"                   \
	" pg_catalog.string_agg('o.' || pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum)"                  \
	" FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_attribute b ON b.attrelid = pg_catalog.to_regclass($2)"  \
	"  AND b.attname = a.attname AND b.attnum > 0"                                                               \
	" WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped"                     \
	" HAVING pg_catalog.to_regclass($2) IS NOT NULL"

static bool learn_copy(PGconn *conn, const struct outbox_config *outbox, const struct table *table,
		       const struct outbox_config *branch, struct branch_copy *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pg_query(conn, "compare a branch with its outbox", SELECT_SHARED, 2,
		      (const char *const[]){ table->name, branch->table }, &res, err))
		return false;
	if (PQntuples(res) == 0)
		return missing_table(branch, err);
	for (int way = 0; way < BRANCH_WAYS; way++) {
		_cleanup_(mem_freep) char *lock = sql_for_table(ways[way].lock, table, outbox, true, 0);
		_cleanup_(mem_freep) char *pick = sql_for_table(ways[way].pick, table, outbox, true, 0);

		ret->sql[way] = mem_printf("%s INSERT INTO %s (%s) SELECT %s FROM branch_picked o %s", lock, branch->table,
					   PQgetvalue(res, 0, 0), PQgetvalue(res, 0, 1), pick);
	}
	return true;
}

bool branch_plan_learn(PGconn *conn, const struct outbox_config *outbox, struct branch_plan **ret, struct error *err)
{
	_cleanup_(table_freep) struct table *table = NULL;
	struct branch_plan *plan;

	if (!table_open(conn, outbox, NULL, 0, &table, err))
		return false;
	plan = mem_new(struct branch_plan);
	plan->copies = mem_new_array(struct branch_copy, outbox->n_branches);
	for (; plan->n_branches < outbox->n_branches; plan->n_branches++) {
		size_t i = plan->n_branches;

		if (!learn_copy(conn, outbox, table, &outbox->branches[i], &plan->copies[i], err)) {
			branch_plan_free(plan);
			return false;
		}
	}
	*ret = plan;
	return true;
}
