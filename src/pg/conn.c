#include "pg/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "pg/conninfo.h"
#include "pg/exec.h"

void pg_closep(PGconn **conn)
{
	PQfinish(*conn);
	*conn = NULL;
}

/* libpq prints notices to standard error by itself; only owners of work write there. */
static void ignore_notice(_unused_ void *arg, _unused_ const char *message)
{
}

/* What libpq says when it, not the server, gives up; these messages carry no SQLSTATE. */
struct client_failure {
	const char *text;
	enum error_kind kind;
	const char *hint;
};

static const struct client_failure client_failures[] = {
	{ "certificate verify failed", ERROR_CONFIG,
	  "name the authority that signed the server's certificate: ?sslrootcert=FILE in database.url" },
	{ "does not match host name", ERROR_CONFIG, "use the host name of the server's certificate in database.url" },
	{ "server does not support SSL", ERROR_CONFIG,
	  "turn on ssl at the server; or, on a network you trust, set database.tls: off" },
	{ "root certificate file", ERROR_CONFIG, "install ca-certificates, or add ?sslrootcert=FILE to database.url" },
	{ "no password supplied", ERROR_AUTH, "set database.password_file, PGPASSFILE or PGPASSWORD" },
	{ "authentication", ERROR_AUTH, NULL },
	{ "session is read-only", ERROR_TRANSPORT, NULL },
	{ "invalid port number", ERROR_CONFIG, "see database.url" },
	{ "invalid integer value", ERROR_CONFIG, "see database.url" },
	{ "invalid sslmode value", ERROR_CONFIG, "see database.url" },
	{ "invalid value", ERROR_CONFIG, "see database.url" },
	{ "service file", ERROR_CONFIG, "see PGSERVICE and PGSERVICEFILE" },
};

/* The SQLSTATE in a message of verbosity VERBOSE ("FATAL:  28P01: password …"), or NULL. The last one: of several hosts
 * that is the one which was tried last. */
static const char *find_sqlstate(const char *message)
{
	static const char alphabet[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	const char *found = NULL;

	for (const char *p = strstr(message, ":  "); p; p = strstr(p + 1, ":  "))
		if (strspn(p + 3, alphabet) == 5 && strncmp(p + 8, ": ", 2) == 0)
			found = p + 3;
	return found;
}

/* The message without SQLSTATEs and without the lines that follow a server's primary message: of these LOCATION is
 * noise, and DETAIL not for logs. */
static char *readable(const char *message)
{
	_cleanup_(buf_release) struct buf text = { 0 };
	const char *line = message;

	buf_init(&text, 1 << 16);
	while (*line) {
		size_t len = strcspn(line, "\n");
		const char *state = find_sqlstate(line);

		if (state && state < line + len) {
			buf_add(&text, line, (size_t)(state - line) - 1);
			buf_add(&text, state + 7, len - (size_t)(state + 7 - line));
		} else if (strncmp(line, "LOCATION:", 9) != 0 && strncmp(line, "DETAIL:", 7) != 0) {
			buf_add(&text, line, len);
		}
		line += len;
		if (*line && line++)
			buf_add_char(&text, '\n');
	}
	return buf_take(&text);
}

static bool connect_error(PGconn *conn, struct error *err)
{
	const char *message = PQerrorMessage(conn);
	const char *sqlstate = find_sqlstate(message);
	_cleanup_(mem_freep) char *text = readable(message);
	enum error_kind kind = ERROR_TRANSPORT;
	const char *hint = NULL;

	if (sqlstate)
		kind = pg_sqlstate_kind(sqlstate, &hint);
	for (size_t i = 0; !sqlstate && i < ARRAY_SIZE(client_failures); i++) {
		if (!strstr(message, client_failures[i].text))
			continue;
		kind = client_failures[i].kind;
		hint = client_failures[i].hint;
		break;
	}
	error_set(err, kind, "could not connect to the database: %s", text);
	if (hint)
		error_hint(err, "%s", hint);
	return false;
}

/* Waits until libpq's socket is ready for `want`; false when the deadline passed or the caller was interrupted. */
static bool wait_for(PGconn *conn, short want, int interrupt_fd, int64_t deadline_ms, struct error *err)
{
	struct pollfd fds[2] = {
		{ .fd = PQsocket(conn), .events = want },
		{ .fd = interrupt_fd, .events = POLLIN },
	};
	int ready;

	do {
		int64_t left = deadline_ms - clock_ms();

		if (left <= 0)
			return error_set(err, ERROR_TRANSPORT, "could not connect to the database: no answer in time");
		ready = poll(fds, 2, (int)MIN(left, 60000));
	} while (ready == 0 || (ready < 0 && errno == EINTR));
	if (ready < 0)
		return error_set(err, ERROR_BUG, "could not wait for the database: %s", strerror(errno));
	if (fds[1].revents)
		return error_set(err, ERROR_LOST, "could not connect to the database: interrupted");
	return true;
}

static bool finish_connecting(PGconn *conn, int interrupt_fd, int64_t deadline_ms, struct error *err)
{
	PostgresPollingStatusType state = PGRES_POLLING_WRITING;

	if (PQstatus(conn) == CONNECTION_BAD)
		return connect_error(conn, err);
	for (;;) {
		short want = state == PGRES_POLLING_READING ? POLLIN : POLLOUT;

		if (!wait_for(conn, want, interrupt_fd, deadline_ms, err))
			return false;
		state = PQconnectPoll(conn);
		if (state == PGRES_POLLING_OK)
			return true;
		if (state == PGRES_POLLING_FAILED)
			return connect_error(conn, err);
	}
}

/* Behind a pooler in transaction mode a setting would stay on a server connection and reach other clients of the pool
 * (an empty search_path, say): there, nothing is set unless the user says that sessions are ours. */
#define APPLY_SETTINGS                                                                                          \
	"SELECT pg_catalog.set_config(s.name, s.setting, false)"                                                \
	" FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]))"  \
	" AS s(name, setting)"                                                                                  \
	" WHERE $3::pg_catalog.bool OR pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) $4::pg_catalog.int4"

static bool apply(PGconn *conn, const struct database_config *db, const struct pg_setting *settings, size_t n,
		  struct error *err)
{
	_cleanup_(buf_release) struct buf names = { 0 }, values = { 0 };
	char pid[16];
	const char *params[4];

	buf_init(&names, 4096);
	buf_init(&values, 4096);
	for (size_t i = 0; i < n; i++) {
		if (PQserverVersion(conn) < settings[i].since)
			continue;
		buf_add_char(&names, names.len ? ',' : '{');
		buf_add_array_element(&names, slice_of(settings[i].name));
		buf_add_char(&values, values.len ? ',' : '{');
		buf_add_array_element(&values, slice_of(settings[i].value));
	}
	buf_add_char(&names, '}');
	buf_add_char(&values, '}');
	snprintf(pid, sizeof(pid), "%d", PQbackendPID(conn));
	params[0] = buf_str(&names);
	params[1] = buf_str(&values);
	params[2] = db->pooler == DATABASE_POOLER_SESSION ? "true" : "false";
	params[3] = pid;
	return pg_query(conn, "set up the session", APPLY_SETTINGS, 4, params, NULL, err);
}

struct milliseconds {
	char text[24];
};

static const char *milliseconds(struct milliseconds *ms, int64_t value)
{
	snprintf(ms->text, sizeof(ms->text), "%lld", (long long)value);
	return ms->text;
}

static bool apply_common_settings(PGconn *conn, const struct database_config *db, struct error *err)
{
	struct milliseconds statement, lock;
	const struct pg_setting settings[] = {
		{ "statement_timeout", milliseconds(&statement, db->statement_timeout_ms), 0 },
		{ "lock_timeout", milliseconds(&lock, db->lock_timeout_ms), 0 },
		PG_VALUE_SETTINGS(PG_SETTING)
		/* Types are known by their names as the server writes them. */
		{ "quote_all_identifiers", "off", 0 },
		/* Names are qualified everywhere; nobody slips a function of his own under them. */
		{ "search_path", "pg_catalog", 0 },
		/* Readers count on a new snapshot for each statement, whatever the role's default is. */
		{ "default_transaction_isolation", "read committed", 0 },
	};

	return apply(conn, db, settings, ARRAY_SIZE(settings), err);
}

bool pg_apply_reader_settings(PGconn *conn, const struct database_config *db, struct error *err)
{
	struct milliseconds idle;
	const struct pg_setting settings[] = {
		/* A settle that a crash of the server forgets costs a duplicate, never a loss: no fsync in the path. */
		{ "synchronous_commit", "off", 0 },
		/* A frozen process keeps its connection and its locks; this ends both. */
		{ "idle_session_timeout", milliseconds(&idle, db->idle_session_timeout_ms), 140000 },
		{ "idle_in_transaction_session_timeout", idle.text, 0 },
		/* An outbox is empty one minute and full the next, so statistics of it are always wrong. Plans must not
		 * depend on them: one plan per statement, along the index. */
		{ "plan_cache_mode", "force_generic_plan", 0 },
		{ "enable_seqscan", "off", 0 },
		{ "enable_bitmapscan", "off", 0 },
		{ "max_parallel_workers_per_gather", "0", 0 },
		{ "jit", "off", 0 },
	};

	return apply(conn, db, settings, ARRAY_SIZE(settings), err);
}

static bool connect_with(const struct conninfo *info, const struct database_config *db, int interrupt_fd, PGconn **ret,
			 struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;
	int64_t deadline_ms = clock_ms() + db->connect_timeout_ms;

	conn = PQconnectStartParams((const char *const *)info->keywords, (const char *const *)info->values, 0);
	if (!conn)
		return error_set(err, ERROR_BUG, "could not connect to the database: out of memory");
	/* Verbose, because only then do messages of a failed connect carry their SQLSTATE. */
	PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
	PQsetNoticeProcessor(conn, ignore_notice, NULL);
	if (!finish_connecting(conn, interrupt_fd, deadline_ms, err))
		return false;
	PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
	*ret = TAKE_PTR(conn);
	return true;
}

bool pg_connect(const struct database_config *db, const char *purpose, int interrupt_fd, PGconn **ret,
		struct error *err)
{
	_cleanup_(conninfo_release) struct conninfo info = { 0 };
	_cleanup_(pg_closep) PGconn *conn = NULL;

	if (!conninfo_build(db, purpose, &info, err) || !connect_with(&info, db, interrupt_fd, &conn, err) ||
	    !apply_common_settings(conn, db, err))
		return false;
	*ret = TAKE_PTR(conn);
	return true;
}

bool pg_connect_replication(const struct database_config *db, const char *purpose, int interrupt_fd, PGconn **ret,
			    struct error *err)
{
	_cleanup_(conninfo_release) struct conninfo info = { 0 };

	if (!conninfo_build(db, purpose, &info, err))
		return false;
	conninfo_set(&info, "replication", "database");
	return connect_with(&info, db, interrupt_fd, ret, err);
}

char *pg_identity(PGconn *conn)
{
	return mem_printf("%s:%s/%s", PQhost(conn), PQport(conn), PQdb(conn));
}

bool pg_is_pooled(PGconn *conn, const struct database_config *db, bool *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	*ret = false;
	if (db->pooler == DATABASE_POOLER_SESSION)
		return true;
	if (!pg_query(conn, "ask for the backend's pid", "SELECT pg_catalog.pg_backend_pid()", 0, NULL, &res, err))
		return false;
	*ret = atoi(PQgetvalue(res, 0, 0)) != PQbackendPID(conn);
	return true;
}

bool pg_require_session(PGconn *conn, const struct database_config *db, const char *who, struct error *err)
{
	bool pooled;

	if (!pg_is_pooled(conn, db, &pooled, err))
		return false;
	if (!pooled)
		return true;
	error_set(err, ERROR_CONFIG, "a pooler stands before the database, and %s needs a session of its own", who);
	return error_hint(err, "connect to PostgreSQL itself; or, where the pooler of the outbox's own database is in session"
			  " mode, set database.pooler: session");
}
