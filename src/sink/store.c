#include "sink/store.h"

#include <string.h>

#include "pg/exec.h"

bool store_was_deadlock(const PGresult *res)
{
	const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	return sqlstate && strcmp(sqlstate, "40P01") == 0; /* deadlock_detected */
}

void store_check_statement(PGconn *conn, const struct store *store, struct finding_list *findings)
{
	_cleanup_(pg_result_clearp) PGresult *res = PQprepare(conn, "", store->append, 0, NULL);
	struct error err;

	if (PQresultStatus(res) == PGRES_COMMAND_OK)
		return;
	pg_error(conn, res, "prepare to append events", &err);
	finding_add_error(findings, &err);
}
