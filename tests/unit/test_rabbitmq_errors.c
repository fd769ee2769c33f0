#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <amqp.h>
#include <amqp_framing.h>
#include <string.h>

#include "base/macros.h"
#include "sink/rabbitmq_errors.h"

/* As a server says them. */
static const struct {
	uint16_t code;
	const char *text;
	enum error_kind kind;
	const char *hint;
} codes[] = {
	/* this row */
	{ 311, "CONTENT_TOO_LARGE", ERROR_REJECTED, "max_message_size" },
	{ 406, "PRECONDITION_FAILED - message size 7000012 is larger than configured max size 6000000", ERROR_REJECTED,
	  "max_message_size" },
	/* what is there */
	{ 312, "NO_ROUTE", ERROR_CONFIG, "bind a queue" },
	{ 404, "NOT_FOUND - no exchange 'events' in vhost '/'", ERROR_CONFIG, "declare the exchange" },
	{ 404, "NOT_FOUND - no queue 'orders' in vhost '/'", ERROR_CONFIG, "declare a queue" },
	{ 406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'events'", ERROR_CONFIG, "" },
	{ 402, "INVALID_PATH", ERROR_CONFIG, "vhost" },
	{ 405, "RESOURCE_LOCKED", ERROR_CONFIG, "" },
	{ 530, "NOT_ALLOWED - vhost shop not found", ERROR_CONFIG, "vhost" },
	{ 540, "NOT_IMPLEMENTED", ERROR_CONFIG, "RabbitMQ" },
	/* us */
	{ 403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.", ERROR_AUTH, "password_file" },
	{ 403, "ACCESS_REFUSED - access to exchange 'events' in vhost '/' refused for user 'relay'", ERROR_AUTH, "set_permissions" },
	{ 530, "NOT_ALLOWED - access to vhost 'shop' refused for user 'relay'", ERROR_AUTH, "vhost" },
	/* nobody knows */
	{ 501, "FRAME_ERROR", ERROR_LOST, "" },
	{ 502, "SYNTAX_ERROR", ERROR_LOST, "" },
	{ 503, "COMMAND_INVALID", ERROR_LOST, "" },
	{ 504, "CHANNEL_ERROR", ERROR_LOST, "" },
	{ 505, "UNEXPECTED_FRAME", ERROR_LOST, "" },
	/* the server is away, or will be: no row is to blame, and none is held */
	{ 320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", ERROR_TRANSPORT, "" },
	{ 506, "RESOURCE_ERROR", ERROR_TRANSPORT, "" },
	{ 541, "INTERNAL_ERROR", ERROR_TRANSPORT, "" },
	{ 999, "a code of tomorrow", ERROR_TRANSPORT, "" },
};

static const struct {
	int status;
	enum error_kind kind;
} statuses[] = {
	{ AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED, ERROR_AUTH },
	{ AMQP_STATUS_SSL_PEER_VERIFY_FAILED, ERROR_AUTH },
	{ AMQP_STATUS_SSL_CONNECTION_FAILED, ERROR_AUTH },
	{ AMQP_STATUS_BROKER_UNSUPPORTED_SASL_METHOD, ERROR_AUTH },
	{ AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION, ERROR_CONFIG },
	{ AMQP_STATUS_TABLE_TOO_BIG, ERROR_REJECTED },
	{ AMQP_STATUS_BAD_AMQP_DATA, ERROR_LOST },
	{ AMQP_STATUS_UNKNOWN_CLASS, ERROR_LOST },
	{ AMQP_STATUS_UNKNOWN_METHOD, ERROR_LOST },
	{ AMQP_STATUS_WRONG_METHOD, ERROR_LOST },
	{ AMQP_STATUS_UNEXPECTED_STATE, ERROR_LOST },
	{ AMQP_STATUS_INVALID_PARAMETER, ERROR_BUG },
	{ AMQP_STATUS_SSL_ERROR, ERROR_TRANSPORT },
	{ AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED, ERROR_TRANSPORT },
	{ AMQP_STATUS_CONNECTION_CLOSED, ERROR_TRANSPORT },
	{ AMQP_STATUS_SOCKET_ERROR, ERROR_TRANSPORT },
	{ AMQP_STATUS_SOCKET_CLOSED, ERROR_TRANSPORT },
	{ AMQP_STATUS_TCP_ERROR, ERROR_TRANSPORT },
	{ AMQP_STATUS_TIMEOUT, ERROR_TRANSPORT },
	{ AMQP_STATUS_HEARTBEAT_TIMEOUT, ERROR_TRANSPORT },
	{ -0x7fff, ERROR_TRANSPORT },
};

static void every_code_means_what_it_should(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		struct error err = { 0 };

		assert_false(rabbitmq_error_code(&err, codes[i].code, slice_of(codes[i].text)));
		if (err.kind != codes[i].kind)
			fail_msg("%d %s is %s", codes[i].code, codes[i].text, error_kind_name(err.kind));
		assert_non_null(strstr(err.message, codes[i].text));
		if (codes[i].hint[0] ? !strstr(err.hint, codes[i].hint) : err.hint[0] != '\0')
			fail_msg("%d %s has the hint \"%s\"", codes[i].code, codes[i].text, err.hint);
	}
}

static void every_status_of_the_library_means_what_it_should(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		struct error err = { 0 };

		assert_false(rabbitmq_error_status(&err, statuses[i].status));
		if (err.kind != statuses[i].kind)
			fail_msg("%s is %s", amqp_error_string2(statuses[i].status), error_kind_name(err.kind));
		assert_string_not_equal(err.message, "");
	}
}

static void a_certificate_that_is_refused_has_a_hint(void **state _unused_)
{
	struct error err = { 0 };

	rabbitmq_error_status(&err, AMQP_STATUS_SSL_PEER_VERIFY_FAILED);
	assert_string_equal(err.message, "the server's certificate does not verify");
	assert_non_null(strstr(err.hint, "tls_ca_file"));
}

static void a_reply_is_read_whoever_speaks(void **state _unused_)
{
	amqp_channel_close_t channel = { .reply_code = 404, .reply_text = amqp_cstring_bytes("no exchange") };
	amqp_connection_close_t connection = { .reply_code = 403, .reply_text = amqp_cstring_bytes("Login was refused") };
	amqp_rpc_reply_t reply = { .reply_type = AMQP_RESPONSE_SERVER_EXCEPTION };
	struct error err;

	reply.reply = (amqp_method_t){ .id = AMQP_CHANNEL_CLOSE_METHOD, .decoded = &channel };
	assert_false(rabbitmq_error_reply(&err, reply));
	assert_string_equal(err.message, "404: no exchange");
	reply.reply = (amqp_method_t){ .id = AMQP_CONNECTION_CLOSE_METHOD, .decoded = &connection };
	rabbitmq_error_reply(&err, reply);
	assert_int_equal(err.kind, ERROR_AUTH);
	rabbitmq_error_reply(&err, (amqp_rpc_reply_t){ .reply_type = AMQP_RESPONSE_LIBRARY_EXCEPTION,
						       .library_error = AMQP_STATUS_TIMEOUT });
	assert_int_equal(err.kind, ERROR_TRANSPORT);
	rabbitmq_error_reply(&err, (amqp_rpc_reply_t){ .reply_type = AMQP_RESPONSE_NONE });
	assert_int_equal(err.kind, ERROR_TRANSPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_code_means_what_it_should),
		cmocka_unit_test(every_status_of_the_library_means_what_it_should),
		cmocka_unit_test(a_certificate_that_is_refused_has_a_hint),
		cmocka_unit_test(a_reply_is_read_whoever_speaks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
