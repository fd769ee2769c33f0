#include "verify/moment.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "config/units.h"
#include "pg/exec.h"

/* $1: a time, or NULL and $2: milliseconds ago. */
#define READ_TIME                                                                                               \
	"SELECT t, (extract(epoch FROM t) * 1000)::pg_catalog.int8"                                             \
	" FROM (SELECT CASE WHEN $2::pg_catalog.int8 IS NULL THEN $1::pg_catalog.timestamptz"                   \
	"       ELSE pg_catalog.now() - $2 * interval '1 millisecond' END) AS m(t)"

void moment_release(struct moment *m)
{
	free(m->text);
	*m = (struct moment){ 0 };
}

bool moment_read(PGconn *conn, const char *flag, const char *text, struct moment *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *ago = NULL;
	int64_t ms;

	if (!text)
		return true;
	if (units_duration(text, &ms))
		ago = mem_printf("%" PRId64, ms);
	if (!pg_query(conn, "read it", READ_TIME, 2, (const char *const[]){ ago ? NULL : text, ago }, &res, err)) {
		if (err->kind == ERROR_REJECTED) {
			err->kind = ERROR_CONFIG;
			error_hint(err, "write --%s 2026-11-15T09:30:00Z, or --%s 10m for ten minutes ago", flag, flag);
		}
		return error_prefix(err, "--%s", flag);
	}
	ret->text = mem_strdup(PQgetvalue(res, 0, 0));
	ret->ms = strtoll(PQgetvalue(res, 0, 1), NULL, 10);
	return true;
}
