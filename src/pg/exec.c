#include "pg/exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

/* What a SQLSTATE means for us. The first row whose code is a prefix of the server's decides, so exact codes stand
 * before their classes. */
struct sqlstate_meaning {
	const char *code;
	enum error_kind kind;
	const char *hint;               /* %s: the role that we are */
};

static const struct sqlstate_meaning meanings[] = {
	/* Our own: postrider.insist found that claims have ended. */
	{ "PR001", ERROR_LOST, NULL },

	/* The server, or the way to it, is away. */
	{ "08", ERROR_TRANSPORT, NULL },
	{ "53300", ERROR_TRANSPORT, "raise max_connections, or run fewer workers" },
	{ "53200", ERROR_TRANSPORT, "if the lock table is full: raise max_locks_per_transaction, or run fewer workers" },
	{ "53", ERROR_TRANSPORT, NULL },
	{ "57P04", ERROR_CONFIG, "the database was dropped: see database.url" },
	{ "57P", ERROR_TRANSPORT, NULL },
	{ "25006", ERROR_TRANSPORT, "this server is a standby; see the hosts in database.url" },
	{ "57014", ERROR_TRANSPORT, "see database.statement_timeout" },
	{ "55P03", ERROR_TRANSPORT, "another session locks the table, for DDL perhaps; see database.lock_timeout" },
	{ "25P03", ERROR_TRANSPORT, NULL },
	{ "25P04", ERROR_TRANSPORT, NULL },
	{ "40", ERROR_TRANSPORT, NULL },
	{ "58", ERROR_TRANSPORT, NULL },
	{ "XX", ERROR_TRANSPORT, NULL },

	/* We are refused. */
	{ "28P01", ERROR_AUTH, "see database.password_file and the user in database.url" },
	{ "28", ERROR_AUTH, "see the user in database.url and pg_hba.conf of the server" },

	/* A setting or an object is wrong, and stays so until somebody mends it. */
	{ "3D000", ERROR_CONFIG, "see the database's name in database.url" },
	{ "3F000", ERROR_CONFIG, "run `postrider init`" },
	{ "42501", ERROR_CONFIG, "run `postrider init --role %s` as the owner of the table" },
	{ "42P01", ERROR_CONFIG, "run `postrider check`" },
	{ "42703", ERROR_CONFIG, "run `postrider check`" },
	{ "42", ERROR_CONFIG, NULL },
	{ "55", ERROR_CONFIG, NULL },
	{ "0A", ERROR_CONFIG, NULL },

	/* This row is refused. */
	{ "22", ERROR_REJECTED, NULL },
	{ "23", ERROR_REJECTED, NULL },
	{ "54", ERROR_REJECTED, NULL },       /* too long, too large, nested too deeply */
	{ "P0", ERROR_REJECTED, NULL },
};

enum error_kind pg_sqlstate_kind(const char *sqlstate, const char **ret_hint)
{
	*ret_hint = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(meanings); i++) {
		if (strncmp(sqlstate, meanings[i].code, strlen(meanings[i].code)) != 0)
			continue;
		*ret_hint = meanings[i].hint;
		return meanings[i].kind;
	}
	return ERROR_TRANSPORT;
}

bool pg_error(PGconn *conn, const PGresult *res, const char *doing, struct error *err)
{
	const char *sqlstate = res ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;
	const char *message = res ? PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	enum error_kind kind = ERROR_TRANSPORT;
	const char *hint = NULL;

	/* Without a SQLSTATE it was libpq that failed, and it fails when the connection does. */
	if (sqlstate)
		kind = pg_sqlstate_kind(sqlstate, &hint);
	if (!message)
		message = res ? PQresultErrorMessage(res) : PQerrorMessage(conn);
	if (!message[0])
		message = "the connection is gone";
	error_set(err, kind, "could not %s: %s", doing, message);
	if (hint && strstr(hint, "%s")) {
		const char *hole = strstr(hint, "%s");

		error_hint(err, "%.*s%s%s", (int)(hole - hint), hint, PQuser(conn), hole + 2);
	} else if (hint) {
		error_hint(err, "%s", hint);
	}
	return false;
}

static bool succeeded(const PGresult *res)
{
	ExecStatusType status = PQresultStatus(res);

	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY;
}

static bool finish(PGconn *conn, const char *doing, PGresult *result, PGresult **ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = result;

	if (!succeeded(res))
		return pg_error(conn, res, doing, err);
	if (ret)
		*ret = TAKE_PTR(res);
	return true;
}

bool pg_query(PGconn *conn, const char *doing, const char *sql, int n_params, const char *const *params,
	      PGresult **ret, struct error *err)
{
	return finish(conn, doing, PQexecParams(conn, sql, n_params, NULL, params, NULL, NULL, 0), ret, err);
}

bool pg_script(PGconn *conn, const char *doing, const char *sql, struct error *err)
{
	return finish(conn, doing, PQexec(conn, sql), NULL, err);
}

void pg_result_clearp(PGresult **res)
{
	PQclear(*res);
	*res = NULL;
}

/* One part of a qualified name: up to the next dot, or between double quotes, where "" is a quote. */
static bool split_part(const char **text, char **ret)
{
	_cleanup_(buf_release) struct buf part = { 0 };
	const char *p = *text;

	buf_init(&part, 1024);
	if (*p == '"') {
		for (p++; *p && (*p != '"' || p[1] == '"'); p++) {
			p += *p == '"';
			buf_add_char(&part, *p);
		}
		if (*p++ != '"')
			return false;
	} else {
		for (; *p && *p != '.' && *p != '"'; p++)
			buf_add_char(&part, *p);
	}
	if (part.overflow || !part.len || (*p && *p != '.'))
		return false;
	*text = p;
	*ret = buf_take(&part);
	return true;
}

bool pg_split_qualified(const char *name, char **ret_schema, char **ret_table, struct error *err)
{
	_cleanup_(mem_freep) char *schema = NULL, *table = NULL;
	const char *p = name;

	if (!split_part(&p, &schema) || *p++ != '.' || !split_part(&p, &table) || *p) {
		error_set(err, ERROR_CONFIG, "\"%s\" is not the name of a table", name);
		return error_hint(err, "write schema.table, public.outbox for example");
	}
	*ret_schema = TAKE_PTR(schema);
	*ret_table = TAKE_PTR(table);
	return true;
}

/* As PQescapeIdentifier does in UTF-8, without a connection. The server refuses text that is not UTF-8 as a whole. */
static char *quote_without_connection(const char *name)
{
	_cleanup_(buf_release) struct buf quoted = { 0 };

	buf_init(&quoted, 2 * strlen(name) + 3);
	buf_add_char(&quoted, '"');
	for (; *name; name++) {
		if (*name == '"')
			buf_add_char(&quoted, '"');
		buf_add_char(&quoted, *name);
	}
	buf_add_char(&quoted, '"');
	return buf_take(&quoted);
}

char *pg_quote_name(PGconn *conn, const char *name)
{
	char *quoted, *copy;

	if (!conn)
		return quote_without_connection(name);
	quoted = PQescapeIdentifier(conn, name, strlen(name));
	/* NULL: the name is not UTF-8. Quoted plainly it names nothing, and the server says so. */
	if (!quoted)
		return quote_without_connection(name);
	copy = mem_strdup(quoted);
	PQfreemem(quoted);
	return copy;
}

bool pg_quote_qualified(PGconn *conn, const char *name, char **ret, struct error *err)
{
	_cleanup_(mem_freep) char *schema = NULL, *table = NULL, *quoted_schema = NULL, *quoted_table = NULL;

	if (!pg_split_qualified(name, &schema, &table, err))
		return false;
	quoted_schema = pg_quote_name(conn, schema);
	quoted_table = pg_quote_name(conn, table);
	*ret = mem_printf("%s.%s", quoted_schema, quoted_table);
	return true;
}
