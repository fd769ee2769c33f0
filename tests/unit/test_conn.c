#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/mem.h"
#include "pg/conn.h"
#include "pg/conninfo.h"
#include "pg/exec.h"

/* The environment of whoever runs the tests must not decide them. */
static int clear_environment(_unused_ void **state)
{
	static const char *const names[] = { "PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGSSLROOTCERT", "PGSERVICE" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	setenv("HOME", "/nonexistent", 1);
	return 0;
}

static struct conninfo build(const char *url, enum database_tls tls)
{
	_cleanup_(mem_freep) char *copy = mem_strdup(url);
	char none[] = "";
	struct database_config db = { .url = copy, .password_file = none, .tls = tls };
	struct conninfo info = { 0 };
	struct error err;

	assert_true(conninfo_build(&db, "test", &info, &err));
	return info;
}

static void assert_parameter(const char *url, enum database_tls tls, const char *keyword, const char *expected)
{
	_cleanup_(conninfo_release) struct conninfo info = build(url, tls);
	const char *value = conninfo_get(&info, keyword);

	if (expected)
		assert_string_equal(value, expected);
	else
		assert_null(value);
}

static void off_loopback_the_certificate_must_verify(_unused_ void **state)
{
	assert_parameter("postgresql://u@db.example.com/shop", DATABASE_TLS_AUTO, "sslmode", "verify-full");
	assert_parameter("postgresql://u@10.0.0.7/shop", DATABASE_TLS_AUTO, "sslmode", "verify-full");
	assert_parameter("postgresql://u@[2001:db8::1]/shop", DATABASE_TLS_AUTO, "sslmode", "verify-full");
	assert_parameter("host=db.example.com dbname=shop", DATABASE_TLS_AUTO, "sslmode", "verify-full");
	/* One remote host of several is enough. */
	assert_parameter("postgresql://u@127.0.0.1,db.example.com/shop", DATABASE_TLS_AUTO, "sslmode", "verify-full");
	/* A name that looks local does not make its address local. */
	assert_parameter("host=localhost hostaddr=10.0.0.7", DATABASE_TLS_AUTO, "sslmode", "verify-full");
	assert_parameter("service=shop", DATABASE_TLS_AUTO, "sslmode", "verify-full");
}

static void on_this_machine_nothing_is_forced(_unused_ void **state)
{
	static const char *const urls[] = {
		"", "postgresql:///shop", "postgresql://u@localhost/shop", "postgresql://u@127.0.0.1:6432/shop",
		"postgresql://u@127.8.9.1/shop", "postgresql://u@[::1]/shop", "postgresql://u@localhost,127.0.0.1/shop",
		"host=/run/postgresql",
	};

	for (size_t i = 0; i < ARRAY_SIZE(urls); i++)
		assert_parameter(urls[i], DATABASE_TLS_AUTO, "sslmode", NULL);
}

static void what_the_user_asks_for_is_kept(_unused_ void **state)
{
	assert_parameter("postgresql://u@h/shop?sslmode=require", DATABASE_TLS_AUTO, "sslmode", "require");
	assert_parameter("postgresql://u@h/shop?sslrootcert=/my.crt", DATABASE_TLS_AUTO, "sslrootcert", "/my.crt");
	assert_parameter("postgresql://u@h/shop?keepalives_idle=3", DATABASE_TLS_AUTO, "keepalives_idle", "3");
	assert_parameter("postgresql://u@h/shop", DATABASE_TLS_OFF, "sslmode", "disable");
	setenv("PGSSLMODE", "require", 1);
	assert_parameter("postgresql://u@h/shop", DATABASE_TLS_AUTO, "sslmode", NULL);
}

static void the_host_may_come_from_the_environment(_unused_ void **state)
{
	setenv("PGHOST", "db.example.com", 1);
	assert_parameter("", DATABASE_TLS_AUTO, "sslmode", "verify-full");
	setenv("PGHOST", "127.0.0.1", 1);
	assert_parameter("", DATABASE_TLS_AUTO, "sslmode", NULL);
}

static void every_connection_notices_a_dead_peer_and_says_who_it_is(_unused_ void **state)
{
	assert_parameter("", DATABASE_TLS_AUTO, "keepalives_idle", "10");
	assert_parameter("", DATABASE_TLS_AUTO, "tcp_user_timeout", "15000");
	assert_parameter("", DATABASE_TLS_AUTO, "application_name", "postrider test");
	assert_parameter("", DATABASE_TLS_AUTO, "client_encoding", "UTF8");
	assert_parameter("", DATABASE_TLS_AUTO, "options", NULL);
}

static void a_broken_url_is_refused_without_showing_its_password(_unused_ void **state)
{
	static const char *const urls[] = {
		"postgresql://u:xyzzy%zz@h/shop", "postgresql://u:xyz@zy@h/shop", "postgresql://u:xyzzy/@h/shop",
		"postgresql://u:xyz/zy@h/shop",   "postgresql://u:12/zy@h/shop",  "postgresql://u:xyzzy@h:x/shop",
		"postgresql://u:xyzzy@h/shop?xyzzy=1", "password=xyzzy host", "password='xyzzy",
	};

	for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
		_cleanup_(mem_freep) char *url = mem_strdup(urls[i]);
		char none[] = "";
		struct database_config db = { .url = url, .password_file = none };
		struct conninfo info;
		struct error err = { 0 };

		assert_false(conninfo_build(&db, "test", &info, &err));
		assert_int_equal(err.kind, ERROR_CONFIG);
		assert_null(strstr(err.message, "zy"));
		assert_null(strstr(err.message, "xy"));
		assert_true(err.hint[0]);
	}
}

/* Takes connections and never says a word. Returns the URL; the caller frees it and closes the socket. */
static char *silent_server(int *ret_socket)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int s = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(s >= 0);
	assert_int_equal(bind(s, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(s, 4), 0);
	assert_int_equal(getsockname(s, (struct sockaddr *)&address, &len), 0);
	*ret_socket = s;
	return mem_printf("postgresql://u@127.0.0.1:%d/shop?sslmode=disable", ntohs(address.sin_port));
}

static enum error_kind connect_to_silence(int64_t timeout_ms, int interrupt_fd)
{
	int server;
	_cleanup_(mem_freep) char *url = silent_server(&server);
	char none[] = "";
	struct database_config db = { .url = url, .password_file = none, .connect_timeout_ms = timeout_ms };
	struct error err = { 0 };
	PGconn *conn = NULL;

	assert_false(pg_connect(&db, "test", interrupt_fd, &conn, &err));
	assert_null(conn);
	close(server);
	return err.kind;
}

static void a_silent_server_is_away_when_the_time_is_over(_unused_ void **state)
{
	assert_int_equal(connect_to_silence(50, -1), ERROR_TRANSPORT);
}

static void an_attempt_to_connect_can_be_interrupted(_unused_ void **state)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], "x", 1), 1);
	assert_int_equal(connect_to_silence(60000, ends[0]), ERROR_LOST);
	close(ends[0]);
	close(ends[1]);
}

static void sqlstates_have_their_kinds(_unused_ void **state)
{
	static const struct {
		const char *sqlstate;
		enum error_kind kind;
	} cases[] = {
		{ "08006", ERROR_TRANSPORT }, { "57P01", ERROR_TRANSPORT }, { "53300", ERROR_TRANSPORT },
		{ "55P03", ERROR_TRANSPORT }, { "57014", ERROR_TRANSPORT }, { "40001", ERROR_TRANSPORT },
		{ "40P01", ERROR_TRANSPORT }, { "25006", ERROR_TRANSPORT }, { "28P01", ERROR_AUTH },
		{ "28000", ERROR_AUTH },      { "42501", ERROR_CONFIG },    { "42P01", ERROR_CONFIG },
		{ "42703", ERROR_CONFIG },    { "3F000", ERROR_CONFIG },    { "3D000", ERROR_CONFIG },
		{ "57P04", ERROR_CONFIG },    { "22P02", ERROR_REJECTED },  { "23505", ERROR_REJECTED },
		{ "54000", ERROR_REJECTED },  { "54001", ERROR_REJECTED },  { "ZZZZZ", ERROR_TRANSPORT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *hint;

		assert_int_equal(pg_sqlstate_kind(cases[i].sqlstate, &hint), cases[i].kind);
	}
}

static void qualified_names_are_taken_apart_and_quoted(_unused_ void **state)
{
	static const struct {
		const char *name, *quoted;
	} cases[] = {
		{ "public.outbox", "\"public\".\"outbox\"" },
		{ "public.Outbox", "\"public\".\"Outbox\"" },
		{ "\"a.b\".\"c\"\"d\"", "\"a.b\".\"c\"\"d\"" },
		{ "public.\"x; DROP TABLE y\"", "\"public\".\"x; DROP TABLE y\"" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mem_freep) char *quoted = NULL;
		struct error err;

		assert_true(pg_quote_qualified(NULL, cases[i].name, &quoted, &err));
		assert_string_equal(quoted, cases[i].quoted);
	}
}

static void what_is_not_a_qualified_name_is_refused(_unused_ void **state)
{
	static const char *const names[] = { "", "outbox", ".", "public.", ".outbox",
					     "a.b.c", "\"a.b", "a.\"b\"c", "a\"b.c" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char *quoted = NULL;
		struct error err;

		assert_false(pg_quote_qualified(NULL, names[i], &quoted, &err));
		assert_int_equal(err.kind, ERROR_CONFIG);
		assert_null(quoted);
	}
}

#define environment_test(f) cmocka_unit_test_setup(f, clear_environment)

int main(void)
{
	const struct CMUnitTest tests[] = {
		environment_test(off_loopback_the_certificate_must_verify),
		environment_test(on_this_machine_nothing_is_forced),
		environment_test(what_the_user_asks_for_is_kept),
		environment_test(the_host_may_come_from_the_environment),
		environment_test(every_connection_notices_a_dead_peer_and_says_who_it_is),
		environment_test(a_broken_url_is_refused_without_showing_its_password),
		environment_test(a_silent_server_is_away_when_the_time_is_over),
		environment_test(an_attempt_to_connect_can_be_interrupted),
		cmocka_unit_test(sqlstates_have_their_kinds),
		cmocka_unit_test(qualified_names_are_taken_apart_and_quoted),
		cmocka_unit_test(what_is_not_a_qualified_name_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
