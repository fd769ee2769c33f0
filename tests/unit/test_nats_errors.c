#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/macros.h"
#include "sink/nats_errors.h"

static const struct {
	natsStatus status;
	enum error_kind kind;
} statuses[] = {
	/* this row */
	{ NATS_MAX_PAYLOAD, ERROR_REJECTED },
	{ NATS_INVALID_SUBJECT, ERROR_REJECTED },
	{ NATS_INVALID_ARG, ERROR_REJECTED },
	/* the stream, or a setting */
	{ NATS_NO_RESPONDERS, ERROR_CONFIG },
	{ NATS_NO_SERVER_SUPPORT, ERROR_CONFIG },
	{ NATS_SECURE_CONNECTION_WANTED, ERROR_CONFIG },
	{ NATS_SECURE_CONNECTION_REQUIRED, ERROR_CONFIG },
	{ NATS_ADDRESS_MISSING, ERROR_CONFIG },
	/* us */
	{ NATS_CONNECTION_AUTH_FAILED, ERROR_AUTH },
	{ NATS_NOT_PERMITTED, ERROR_AUTH },
	{ NATS_SSL_ERROR, ERROR_AUTH },
	/* nobody knows */
	{ NATS_TIMEOUT, ERROR_LOST },
	{ NATS_CONNECTION_DISCONNECTED, ERROR_LOST },
};

static const struct {
	int code, class;
	enum error_kind kind;
} codes[] = {
	/* this row */
	{ 10054, 400, ERROR_REJECTED },         /* message size exceeds maximum allowed */
	{ 10097, 400, ERROR_REJECTED },         /* header size exceeds maximum allowed of 64k */
	{ 10070, 400, ERROR_REJECTED },         /* wrong last msg ID */
	{ 10071, 400, ERROR_REJECTED },         /* wrong last sequence */
	{ 10063, 503, ERROR_REJECTED },         /* expected stream sequence does not match */
	{ 10111, 500, ERROR_REJECTED },         /* rollup not permitted */
	/* the stream, or a setting */
	{ 10059, 404, ERROR_CONFIG },           /* stream not found */
	{ 10060, 400, ERROR_CONFIG },           /* expected stream does not match */
	{ 10056, 400, ERROR_CONFIG },           /* stream name in subject does not match request */
	{ 10109, 400, ERROR_CONFIG },           /* sealed */
	{ 10076, 503, ERROR_CONFIG },           /* JetStream not enabled */
	{ 10039, 503, ERROR_CONFIG },           /* … for account */
	{ 10035, 503, ERROR_CONFIG },           /* account not found */
	{ 10120, 400, ERROR_CONFIG },           /* no applicable limit */
	/* full */
	{ 10077, 503, ERROR_THROTTLED },        /* maximum messages or bytes exceeded */
	{ 10053, 500, ERROR_THROTTLED },
	{ 10023, 503, ERROR_THROTTLED },        /* insufficient resources */
	{ 10002, 400, ERROR_THROTTLED },
	{ 10028, 500, ERROR_THROTTLED },
	{ 10047, 500, ERROR_THROTTLED },
	{ 10167, 429, ERROR_THROTTLED },
	/* nobody knows */
	{ 10158, 409, ERROR_LOST },             /* the same message id is being stored */
	/* a cluster that is looking for a leader */
	{ 10008, 503, ERROR_TRANSPORT },
	{ 10009, 500, ERROR_TRANSPORT },
	{ 10118, 500, ERROR_TRANSPORT },
	/* codes of a server that is newer than we are */
	{ 19999, 400, ERROR_REJECTED },
	{ 19999, 500, ERROR_TRANSPORT },
	{ 19999, 503, ERROR_TRANSPORT },
	{ 19999, 0, ERROR_TRANSPORT },
};

static void every_code_means_what_it_should(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (nats_code_kind(codes[i].code, codes[i].class) != codes[i].kind)
			fail_msg("%d is %s", codes[i].code, error_kind_name(nats_code_kind(codes[i].code, codes[i].class)));
}

/* Those that the table does not have are waited for: that loses nothing. */
static void every_status_means_what_it_should(void **state _unused_)
{
	for (int s = NATS_ERR; s < 100; s++) {
		enum error_kind kind = ERROR_TRANSPORT;

		for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
			if ((int)statuses[i].status == s)
				kind = statuses[i].kind;
		if (nats_status_kind((natsStatus)s) != kind)
			fail_msg("status %d is %s", s, error_kind_name(nats_status_kind((natsStatus)s)));
	}
}

static void an_error_says_what_was_said_and_what_to_do(void **state _unused_)
{
	struct error err = { 0 };

	assert_false(nats_code_error(&err, 10077, 503, "maximum messages exceeded"));
	assert_string_equal(err.message, "JetStream said: maximum messages exceeded (10077)");
	assert_non_null(strstr(err.hint, "max_msgs"));
	assert_false(nats_status_error(&err, NATS_SSL_ERROR, "SSL handshake error"));
	assert_string_equal(err.message, "SSL handshake error");
	assert_non_null(strstr(err.hint, "tls_ca_file"));
	assert_false(nats_status_error(&err, NATS_NO_SERVER, NULL));
	assert_string_not_equal(err.message, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_means_what_it_should),
		cmocka_unit_test(every_status_means_what_it_should),
		cmocka_unit_test(an_error_says_what_was_said_and_what_to_do),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
