#include "read/session.h"

#include <string.h>

#include "base/mem.h"
#include "pg/conn.h"
#include "pg/exec.h"
#include "read/sql.h"

static bool make_statements(PGconn *conn, const struct reader_env *env, bool ordered, const struct statement *statements, int n,
			    char ***ret, char ***ret_untimed, struct error *err)
{
	int outbox;

	if (!table_number(conn, env->table, &outbox, err))
		return false;
	*ret = mem_new_array(char *, (size_t)n);
	*ret_untimed = mem_new_array(char *, (size_t)n);
	for (int i = 0; i < n; i++) {
		(*ret)[i] = sql_for_table(statements[i].sql, env->table, env->outbox, ordered, outbox);
		(*ret_untimed)[i] = sql_for_untimed_table(statements[i].sql, env->table, env->outbox, ordered, outbox);
	}
	return true;
}

/* Readers count on a new snapshot for each statement. A session of our own is told so; here it must be so already. */
static bool check_isolation(PGconn *conn, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (!pg_query(conn, "ask for the isolation level", "SELECT pg_catalog.current_setting('transaction_isolation')", 0, NULL,
		      &res, err))
		return false;
	if (strcmp(PQgetvalue(res, 0, 0), "read committed") == 0)
		return true;
	error_set(err, ERROR_CONFIG, "transactions of %s are %s by default, which cannot be changed behind a pooler",
		  PQuser(conn), PQgetvalue(res, 0, 0));
	return error_hint(err, "run `ALTER ROLE %s SET default_transaction_isolation = 'read committed'`", PQuser(conn));
}

bool session_send_settings(struct pipeline *p, int statement, const struct database_config *database, struct error *err)
{
	_cleanup_(mem_freep) char *statement_ms = mem_printf("%lld", (long long)database->statement_timeout_ms);
	_cleanup_(mem_freep) char *lock_ms = mem_printf("%lld", (long long)database->lock_timeout_ms);
	_cleanup_(mem_freep) char *idle_ms = mem_printf("%lld", (long long)database->idle_session_timeout_ms);
	const struct param params[] = { text_param(statement_ms), text_param(lock_ms), text_param(idle_ms) };

	return p->prepared || pipeline_send(p, statement, params, ARRAY_SIZE(params), false, err);
}

bool session_open(const struct reader_driver *driver, const struct reader_env *env, const struct statement *statements,
		  int n, struct pipeline *p, char **ret_identity, struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;
	bool pooled = false;
	char **sql, **untimed_sql;

	if (!pg_connect(env->database, env->purpose, env->interrupt_fd, &conn, err) ||
	    !pg_apply_reader_settings(conn, env->database, err) || !reader_check_session(driver, conn, env->database, err) ||
	    !pg_is_pooled(conn, env->database, &pooled, err) || (pooled && !check_isolation(conn, err)) ||
	    !make_statements(conn, env, reader_keeps_order(driver, env->outbox), statements, n, &sql, &untimed_sql,
			     err))
		return false;
	*ret_identity = pg_identity(conn);
	if (!pipeline_open(p, TAKE_PTR(conn), statements, sql, untimed_sql, n, !pooled, err)) {
		pipeline_close(p);
		return false;
	}
	return true;
}
