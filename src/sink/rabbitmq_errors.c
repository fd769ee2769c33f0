#include "sink/rabbitmq_errors.h"

#include <amqp_framing.h>
#include <string.h>

#include "base/macros.h"

static const char declare_exchange[] = "declare the exchange before the relay needs it, or mend `exchange`";
static const char bind_queue[] =
	"bind a queue for this routing key, which is `route.topic`; with the default exchange, declare a queue of that name";
static const char mend_login[] = "check `user` and `password_file`; guest may log in from the server's own host only";
static const char permit[] = "rabbitmqctl set_permissions -p VHOST USER '' EXCHANGE '': the user needs write";
static const char mend_vhost[] = "check `vhost`: it must exist, and the user needs permissions in it";
static const char mend_tls[] =
	"check `tls_ca_file`, and that the server's certificate names the host as `hosts` does (by name, not by address)";
static const char shrink[] = "raise max_message_size in rabbitmq.conf, or delete the row";

/* The first row whose code fits and whose words are in the text. Anything else is the transport's: wait and send again. */
static const struct {
	uint16_t code;
	const char *words;              /* NULL: whatever the text */
	enum error_kind kind;
	const char *hint;
} codes[] = {
	{ AMQP_CONTENT_TOO_LARGE, NULL, ERROR_REJECTED, shrink },
	{ AMQP_NO_ROUTE, NULL, ERROR_CONFIG, bind_queue },
	{ AMQP_NO_CONSUMERS, NULL, ERROR_CONFIG, NULL },
	{ AMQP_INVALID_PATH, NULL, ERROR_CONFIG, mend_vhost },
	{ AMQP_ACCESS_REFUSED, "Login", ERROR_AUTH, mend_login },
	{ AMQP_ACCESS_REFUSED, NULL, ERROR_AUTH, permit },
	{ AMQP_NOT_FOUND, "no queue", ERROR_CONFIG, bind_queue },
	{ AMQP_NOT_FOUND, NULL, ERROR_CONFIG, declare_exchange },
	{ AMQP_RESOURCE_LOCKED, NULL, ERROR_CONFIG, NULL },
	{ AMQP_PRECONDITION_FAILED, "message size", ERROR_REJECTED, shrink },
	{ AMQP_PRECONDITION_FAILED, NULL, ERROR_CONFIG, NULL },
	{ AMQP_NOT_ALLOWED, "access to vhost", ERROR_AUTH, mend_vhost },
	{ AMQP_NOT_ALLOWED, "refused", ERROR_AUTH, mend_vhost },
	{ AMQP_NOT_ALLOWED, NULL, ERROR_CONFIG, mend_vhost },
	{ AMQP_NOT_IMPLEMENTED, NULL, ERROR_CONFIG, "this server lacks what the sink needs: RabbitMQ 3.8 or newer has it" },

	/* The two sides do not understand each other any more: what was on its way is anybody's guess. */
	{ AMQP_FRAME_ERROR, NULL, ERROR_LOST, NULL },
	{ AMQP_SYNTAX_ERROR, NULL, ERROR_LOST, NULL },
	{ AMQP_COMMAND_INVALID, NULL, ERROR_LOST, NULL },
	{ AMQP_CHANNEL_ERROR, NULL, ERROR_LOST, NULL },
	{ AMQP_UNEXPECTED_FRAME, NULL, ERROR_LOST, NULL },
};

/* The same for what the library finds. */
static const struct {
	int status;
	enum error_kind kind;
	const char *hint;
	const char *words;              /* NULL: the library's */
} statuses[] = {
	{ AMQP_STATUS_SSL_ERROR, ERROR_TRANSPORT, NULL },       /* of a connection that stood: cut */
	{ AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED, ERROR_AUTH, mend_tls, "the server's certificate is for another host name" },
	{ AMQP_STATUS_SSL_PEER_VERIFY_FAILED, ERROR_AUTH, mend_tls, "the server's certificate does not verify" },
	{ AMQP_STATUS_SSL_CONNECTION_FAILED, ERROR_AUTH, mend_tls, "the TLS handshake failed, perhaps over a certificate" },
	{ AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION, ERROR_CONFIG, "`hosts` must lead to a server that speaks AMQP 0-9-1" },
	{ AMQP_STATUS_BROKER_UNSUPPORTED_SASL_METHOD, ERROR_AUTH, "the server must offer the mechanism PLAIN" },
	{ AMQP_STATUS_TABLE_TOO_BIG, ERROR_REJECTED, "the headers are too large" },
	{ AMQP_STATUS_BAD_AMQP_DATA, ERROR_LOST, NULL },
	{ AMQP_STATUS_UNKNOWN_CLASS, ERROR_LOST, NULL },
	{ AMQP_STATUS_UNKNOWN_METHOD, ERROR_LOST, NULL },
	{ AMQP_STATUS_WRONG_METHOD, ERROR_LOST, NULL },
	{ AMQP_STATUS_UNEXPECTED_STATE, ERROR_LOST, NULL },
	{ AMQP_STATUS_INVALID_PARAMETER, ERROR_BUG, NULL },
};

static bool has_words(struct slice text, const char *words)
{
	return !words || (text.len > 0 && memmem(text.ptr, text.len, words, strlen(words)));
}

bool rabbitmq_error_code(struct error *err, uint16_t code, struct slice text)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(codes) && (codes[i].code != code || !has_words(text, codes[i].words)))
		i++;
	error_set(err, i < ARRAY_SIZE(codes) ? codes[i].kind : ERROR_TRANSPORT, "%d: %.*s", code, (int)text.len,
		  text.ptr ? text.ptr : "");
	if (i < ARRAY_SIZE(codes) && codes[i].hint)
		error_hint(err, "%s", codes[i].hint);
	return false;
}

bool rabbitmq_error_status(struct error *err, int status)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(statuses) && statuses[i].status != status)
		i++;
	error_set(err, i < ARRAY_SIZE(statuses) ? statuses[i].kind : ERROR_TRANSPORT, "%s",
		  i < ARRAY_SIZE(statuses) && statuses[i].words ? statuses[i].words : amqp_error_string2(status));
	if (i < ARRAY_SIZE(statuses) && statuses[i].hint)
		error_hint(err, "%s", statuses[i].hint);
	return false;
}

static struct slice as_slice(amqp_bytes_t bytes)
{
	return (struct slice){ bytes.bytes, bytes.len };
}

bool rabbitmq_error_reply(struct error *err, amqp_rpc_reply_t reply)
{
	if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
		return rabbitmq_error_status(err, reply.library_error);
	if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
		const amqp_connection_close_t *close = reply.reply.decoded;

		return rabbitmq_error_code(err, close->reply_code, as_slice(close->reply_text));
	}
	if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
		const amqp_channel_close_t *close = reply.reply.decoded;

		return rabbitmq_error_code(err, close->reply_code, as_slice(close->reply_text));
	}
	return error_set(err, ERROR_TRANSPORT, "the server ended the connection without a word");
}
