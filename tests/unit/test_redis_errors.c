#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "sink/redis_errors.h"

/* As Redis 7.0 says them, older ones where they differ. */
static const struct {
	const char *reply;
	enum error_kind kind;
} meanings[] = {
	/* this row */
	{ "WRONGTYPE Operation against a key holding the wrong kind of value", ERROR_REJECTED },
	{ "ERR Protocol error: invalid bulk length", ERROR_REJECTED },
	{ "ERR Elements are too large to be stored", ERROR_REJECTED },
	/* the server is not ready */
	{ "LOADING Redis is loading the dataset in memory", ERROR_TRANSPORT },
	{ "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ERROR_TRANSPORT },
	{ "CLUSTERDOWN The cluster is down", ERROR_TRANSPORT },
	{ "READONLY You can't write against a read only replica.", ERROR_TRANSPORT },
	{ "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", ERROR_TRANSPORT },
	{ "NOREPLICAS Not enough good replicas to write.", ERROR_TRANSPORT },
	{ "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", ERROR_TRANSPORT },
	{ "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", ERROR_TRANSPORT },
	{ "TRYAGAIN Multiple keys request during rehashing of slot", ERROR_TRANSPORT },
	{ "ERR max number of clients reached", ERROR_TRANSPORT },
	{ "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured "
	  "to be writable (which is not the default) writes to replicas are just local and are not propagated.", ERROR_TRANSPORT },
	{ "EXECABORT Transaction discarded because of: READONLY You can't write against a read only replica.", ERROR_TRANSPORT },
	{ "OOM command not allowed when used memory > 'maxmemory'.", ERROR_THROTTLED },
	{ "EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'.",
	  ERROR_THROTTLED },
	/* us */
	{ "NOAUTH Authentication required.", ERROR_AUTH },
	{ "WRONGPASS invalid username-password pair or user is disabled.", ERROR_AUTH },
	{ "ERR invalid password", ERROR_AUTH },
	{ "ERR Client sent AUTH, but no password is set", ERROR_AUTH },
	{ "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration "
	  "is correct?", ERROR_AUTH },
	{ "NOPERM this user has no permissions to run the 'xadd' command", ERROR_AUTH },
	{ "DENIED Redis is running in protected mode because protected mode is enabled", ERROR_AUTH },
	/* a setting */
	{ "MOVED 3999 127.0.0.1:6381", ERROR_CONFIG },
	{ "ASK 3999 127.0.0.1:6381", ERROR_CONFIG },
	{ "CROSSSLOT Keys in request don't hash to the same slot", ERROR_CONFIG },
	{ "ERR SELECT is not allowed in cluster mode", ERROR_CONFIG },
	{ "ERR DB index is out of range", ERROR_CONFIG },
	{ "ERR The stream has exhausted the last possible ID, unable to add more items", ERROR_CONFIG },
	{ "ERR unknown command 'XADD', with args beginning with: 'orders' '*' ", ERROR_CONFIG },
	/* nobody knows */
	{ "EXECABORT Transaction discarded because of previous errors.", ERROR_LOST },
	/* what the table does not have is nobody's fault but must be looked at */
	{ "ERR something new", ERROR_CONFIG },
	{ "READONLYISH thing", ERROR_CONFIG },
	{ "", ERROR_CONFIG },
};

static void test_each_reply_has_its_kind(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(meanings); i++) {
		enum error_kind kind = redis_error_kind(slice_of(meanings[i].reply));

		if (kind != meanings[i].kind)
			fail_msg("%s: %s, expected %s", meanings[i].reply, error_kind_name(kind),
				 error_kind_name(meanings[i].kind));
	}
}

static void test_the_message_says_what_redis_said_and_what_to_do(void **state)
{
	struct error err = { 0 };

	(void)state;
	assert_false(redis_error_set(&err, slice_of("NOAUTH Authentication required.")));
	assert_string_equal(err.message, "Redis: NOAUTH Authentication required.");
	assert_non_null(strstr(err.hint, "password_file"));
	redis_error_set(&err, slice_of("MOVED 3999 127.0.0.1:6381"));
	assert_non_null(strstr(err.hint, "Cluster is not supported"));
}

static void test_what_was_sent_is_not_repeated(void **state)
{
	struct error err = { 0 };

	(void)state;
	redis_error_set(&err, slice_of("ERR unknown command 'XADD', with args beginning with: 'orders' 'secret' "));
	assert_null(strstr(err.message, "secret"));
	assert_non_null(strstr(err.message, "unknown command 'XADD'"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_reply_has_its_kind),
		cmocka_unit_test(test_the_message_says_what_redis_said_and_what_to_do),
		cmocka_unit_test(test_what_was_sent_is_not_repeated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
