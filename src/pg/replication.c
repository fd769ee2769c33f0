#include "pg/replication.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/mem.h"
#include "pg/conn.h"
#include "pg/exec.h"
#include "pg/install.h"

#define COMMAND_CEILING 4096
#define SECONDS_TO_2000 946684800LL             /* from 1970, where our clock begins, to where PostgreSQL's does */
#define FIRST_WITH_FAILOVER 170000

/* A new slot begins when all transactions that are open have ended; so long we wait for the next of them. */
enum { CREATE_WAIT_MS = 60000 };

/* --- opening -------------------------------------------------------------------------------------------------- */

#define NEEDS_REPLICATION "the user of database.url needs the attribute REPLICATION: run `postrider check`"

/* What a server or a pooler says to who wants to replicate, and may not. */
static const struct refusal {
	const char *text;
	enum error_kind kind;
	const char *hint;
} refusals[] = {
	{ "walsender", ERROR_CONFIG, NEEDS_REPLICATION },       /* PostgreSQL 15 */
	{ "WAL sender", ERROR_CONFIG, NEEDS_REPLICATION },      /* and later ones */
	{ "max_wal_senders", ERROR_TRANSPORT, "raise max_wal_senders, and restart the server" },
	{ "startup parameter", ERROR_CONFIG, "a pooler stands before the database: connect to PostgreSQL itself" },
};

static bool explain_refusal(struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++) {
		if (!strstr(err->message, refusals[i].text))
			continue;
		err->kind = refusals[i].kind;
		return error_hint(err, "%s", refusals[i].hint);
	}
	return false;
}

/* How pgoutput prints values depends on the session, and must not depend on who runs it, nor on his environment. Set
 * here and not in the options of the connection, because libpq sends PGTZ and PGDATESTYLE after those. And nothing of
 * the role's defaults may end a stream, which can be one transaction for hours. */
static const struct pg_setting settings[] = {
	PG_VALUE_SETTINGS(PG_SETTING)
	{ "search_path", "pg_catalog", 0 },
	{ "statement_timeout", "0", 0 },
	{ "lock_timeout", "0", 0 },
	{ "idle_in_transaction_session_timeout", "0", 0 },
	{ "idle_session_timeout", "0", 140000 },
	{ "transaction_timeout", "0", 170000 },
};

/* One simple query, because a connection that replicates takes nothing else. */
static bool apply_settings(PGconn *conn, int64_t sender_timeout_ms, struct error *err)
{
	_cleanup_(buf_release) struct buf sql = { 0 };

	buf_init(&sql, COMMAND_CEILING);
	buf_printf(&sql, "SET wal_sender_timeout = %lld", (long long)sender_timeout_ms);
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (PQserverVersion(conn) >= settings[i].since)
			buf_printf(&sql, "; SET %s = '%s'", settings[i].name, settings[i].value);
	return pg_script(conn, "set up the replication connection", buf_str(&sql), err);
}

bool replication_open(struct replication *r, const struct database_config *db, const char *purpose,
		      int64_t sender_timeout_ms, int interrupt_fd, struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;

	*r = (struct replication){ 0 };
	if (!pg_connect_replication(db, purpose, interrupt_fd, &conn, err))
		return explain_refusal(err);
	if (!apply_settings(conn, sender_timeout_ms, err))
		return false;
	r->conn = TAKE_PTR(conn);
	return true;
}

void replication_close(struct replication *r)
{
	PQfreemem(r->message);
	PQfinish(r->conn);
	*r = (struct replication){ 0 };
}

/* --- commands ------------------------------------------------------------------------------------------------- */

static bool unexpected(const char *doing, struct error *err)
{
	return error_set(err, ERROR_BUG, "could not %s: the server's answer has another form than expected", doing);
}

bool replication_identify(struct replication *r, struct replication_system *ret, struct error *err)
{
	static const char doing[] = "ask which server it is";
	_cleanup_(pg_result_clearp) PGresult *res = PQexec(r->conn, "IDENTIFY_SYSTEM");
	struct replication_system system = { 0 };
	int len;

	if (PQresultStatus(res) != PGRES_TUPLES_OK)
		return pg_error(r->conn, res, doing, err);
	if (PQntuples(res) != 1 || PQnfields(res) < 3 || !wal_lsn_parse(PQgetvalue(res, 0, 2), &system.flushed_lsn))
		return unexpected(doing, err);
	len = snprintf(system.identifier, sizeof(system.identifier), "%s", PQgetvalue(res, 0, 0));
	if (len <= 0 || (size_t)len >= sizeof(system.identifier))
		return unexpected(doing, err);
	system.timeline = (uint32_t)strtoul(PQgetvalue(res, 0, 1), NULL, 10);
	*ret = system;
	return true;
}

static bool create_error(PGconn *conn, const PGresult *res, const char *doing, struct error *err)
{
	const char *sqlstate = res ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;

	pg_error(conn, res, doing, err);
	if (sqlstate && strcmp(sqlstate, "55P03") == 0)
		error_hint(err, "it begins when all transactions that were open have ended: see SELECT pid, xact_start,"
				" query FROM pg_stat_activity ORDER BY xact_start, and pg_prepared_xacts");
	return false;
}

bool replication_create_slot(struct replication *r, const char *slot, char **ret_snapshot, uint64_t *ret_lsn,
			     struct error *err)
{
	static const char doing[] = "make the replication slot";
	bool failover = PQserverVersion(r->conn) >= FIRST_WITH_FAILOVER;
	_cleanup_(mem_freep) char *quoted = pg_quote_name(NULL, slot);
	_cleanup_(mem_freep) char *wait = mem_printf("SET lock_timeout = %d", CREATE_WAIT_MS);
	_cleanup_(mem_freep) char *create =
		mem_printf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput (SNAPSHOT 'export'%s)", quoted,
			   failover ? ", FAILOVER true" : "");
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	uint64_t lsn;

	if (!pg_script(r->conn, doing, wait, err))
		return false;
	res = PQexec(r->conn, create);
	if (PQresultStatus(res) != PGRES_TUPLES_OK)
		return create_error(r->conn, res, doing, err);
	if (PQntuples(res) != 1 || PQnfields(res) < 3 || PQgetisnull(res, 0, 2) ||
	    !wal_lsn_parse(PQgetvalue(res, 0, 1), &lsn))
		return unexpected(doing, err);
	*ret_snapshot = mem_strdup(PQgetvalue(res, 0, 2));
	*ret_lsn = lsn;
	return true;
}

/* --- the stream ----------------------------------------------------------------------------------------------- */

#define RECREATE "`postrider init --recreate-slot` makes another slot, and publishes what is in the table"

/* What errors of a slot mean. The server looks for the slot when a stream begins, and for the publication when the
 * first change comes by, so the same code means one or the other. */
static const struct stream_failure {
	const char *sqlstate;
	enum error_kind kind;
	const char *at_start, *later;
} stream_failures[] = {
	{ "55006", ERROR_TRANSPORT, "somebody else reads from it: SELECT active_pid FROM pg_replication_slots", NULL },
	{ "42704", ERROR_CONFIG, "find out why the slot is gone; " RECREATE,
	  "the publication is gone, or was not there yet when rows were written: run `postrider init`, and if that does"
	  " not help, `postrider init --recreate-slot`" },
	{ "55000", ERROR_CONFIG, "run `postrider check`; when the server has given up the slot, " RECREATE,
	  "run `postrider check`; when the server has given up the slot, " RECREATE },
	/* The log that the slot needs was removed. */
	{ "58P01", ERROR_CONFIG, RECREATE, RECREATE },
};

static bool stream_error(PGconn *conn, const PGresult *res, const char *doing, bool at_start, struct error *err)
{
	const char *sqlstate = res ? PQresultErrorField(res, PG_DIAG_SQLSTATE) : NULL;

	pg_error(conn, res, doing, err);
	for (size_t i = 0; sqlstate && i < ARRAY_SIZE(stream_failures); i++) {
		const struct stream_failure *f = &stream_failures[i];
		const char *hint = at_start ? f->at_start : f->later;

		if (strcmp(sqlstate, f->sqlstate) != 0)
			continue;
		err->kind = f->kind;
		if (hint)
			error_hint(err, "%s", hint);
		break;
	}
	return false;
}

bool replication_start(struct replication *r, const char *slot, const char *publication, bool messages,
		       uint64_t from_lsn, struct error *err)
{
	static const char doing[] = "follow the replication slot";
	_cleanup_(mem_freep) char *quoted_slot = pg_quote_name(NULL, slot);
	_cleanup_(mem_freep) char *quoted_publication = pg_quote_name(NULL, publication);
	_cleanup_(mem_freep) char *list = install_literal(quoted_publication);
	_cleanup_(mem_freep) char *command = NULL;
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	char lsn[WAL_LSN_TEXT];

	wal_lsn_write(lsn, from_lsn);
	command = mem_printf("START_REPLICATION SLOT %s LOGICAL %s (proto_version '1', publication_names %s%s)",
			     quoted_slot, lsn, list, messages ? ", messages 'true'" : "");
	/* Creating a slot has set one. */
	if (!pg_script(r->conn, doing, "SET lock_timeout = 0", err))
		return false;
	res = PQexec(r->conn, command);
	if (PQresultStatus(res) != PGRES_COPY_BOTH)
		return stream_error(r->conn, res, doing, true, err);
	if (PQsetnonblocking(r->conn, 1) != 0)
		return pg_error(r->conn, NULL, doing, err);
	return true;
}

int replication_pollfd(const struct replication *r, short *ret_events)
{
	*ret_events = (short)(POLLIN | (r->unflushed ? POLLOUT : 0));
	return PQsocket(r->conn);
}

bool replication_read(struct replication *r, struct error *err)
{
	return PQconsumeInput(r->conn) ? true : pg_error(r->conn, NULL, "read from the replication slot", err);
}

/* The server has sent its last frame, and behind it why: an error, or nothing when it shuts down. */
static bool end_of_stream(struct replication *r, struct error *err)
{
	static const char doing[] = "read from the replication slot";
	_cleanup_(pg_result_clearp) PGresult *res = PQgetResult(r->conn);

	if (PQresultStatus(res) == PGRES_FATAL_ERROR)
		return stream_error(r->conn, res, doing, false, err);
	return error_set(err, ERROR_TRANSPORT, "could not %s: the server ended the stream", doing);
}

bool replication_next(struct replication *r, bool *ret_any, struct wal_frame *ret, struct error *err)
{
	int len;

	PQfreemem(r->message);
	r->message = NULL;
	len = PQgetCopyData(r->conn, &r->message, 1);
	if (len == -1)
		return end_of_stream(r, err);
	if (len < 0)
		return pg_error(r->conn, NULL, "read from the replication slot", err);
	*ret_any = len > 0;
	return len == 0 || wal_frame_decode((struct slice){ r->message, (size_t)len }, ret, err);
}

static int64_t microseconds_since_2000(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (now.tv_sec - SECONDS_TO_2000) * 1000000 + now.tv_nsec / 1000;
}

bool replication_confirm(struct replication *r, uint64_t lsn, struct error *err)
{
	char status[WAL_STATUS_SIZE];

	wal_status_encode(status, lsn, microseconds_since_2000());
	/* Zero: libpq has no room, because the server does not read. A later confirmation says what this one would. */
	if (PQputCopyData(r->conn, status, sizeof(status)) < 0)
		return pg_error(r->conn, NULL, "confirm to the replication slot", err);
	return replication_flush(r, err);
}

bool replication_flush(struct replication *r, struct error *err)
{
	int left = PQflush(r->conn);

	if (left < 0)
		return pg_error(r->conn, NULL, "send to the replication slot", err);
	r->unflushed = left > 0;
	return true;
}
