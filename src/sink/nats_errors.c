#include "sink/nats_errors.h"

#include <string.h>

/* Codes of JetStream that libnats 3.4 has no name for. */
enum {
	HEADER_TOO_LARGE = 10097,
	TOO_MANY_IN_PROCESS = 10167,            /* the server's own queue for the stream is full */
	DUPLICATE_IN_PROCESS = 10158,           /* the same message id is just being stored */
};

static const char no_stream[] = "create a stream whose subjects cover it, for example: nats stream add";
static const char is_full[] = "raise max_msgs or max_bytes of the stream, or let it discard old messages; rows wait meanwhile";
static const char no_jetstream[] = "start the server with JetStream enabled (-js), and enable it for the account";
static const char resources[] = "the server or the account is out of memory or storage for streams; rows wait meanwhile";
static const char credentials[] = "check user, password_file, token_file or credentials_file";

static const struct {
	int code;                               /* a natsStatus, or JetStream's: those begin at 10000 */
	enum error_kind kind;
	const char *hint;
} codes[] = {
	/* This row. */
	{ NATS_MAX_PAYLOAD, ERROR_REJECTED, "raise max_payload of the server, which counts headers too" },
	{ NATS_INVALID_SUBJECT, ERROR_REJECTED, NULL },
	{ NATS_INVALID_ARG, ERROR_REJECTED, NULL },
	{ JSStreamMessageExceedsMaximumErr, ERROR_REJECTED, "raise max_msg_size of the stream" },
	{ HEADER_TOO_LARGE, ERROR_REJECTED, "JetStream takes 64 KiB of headers at most" },
	{ JSStreamWrongLastMsgIDErr, ERROR_REJECTED, "a header of the row expects another state of the stream" },
	{ JSStreamWrongLastSequenceErr, ERROR_REJECTED, "a header of the row expects another state of the stream" },
	{ JSStreamSequenceNotMatchErr, ERROR_REJECTED, "a header of the row expects another state of the stream" },
	{ JSStreamRollupFailedErr, ERROR_REJECTED, "the stream does not allow the header Nats-Rollup" },

	/* The stream, or a setting. */
	{ NATS_NO_RESPONDERS, ERROR_CONFIG, no_stream },
	{ NATS_NO_SERVER_SUPPORT, ERROR_CONFIG, "the server is too old: JetStream needs headers" },
	{ NATS_SECURE_CONNECTION_WANTED, ERROR_CONFIG, "the server offers no TLS: enable it there, or set tls to off" },
	{ NATS_SECURE_CONNECTION_REQUIRED, ERROR_CONFIG, "the server wants TLS: set tls to on" },
	{ NATS_ADDRESS_MISSING, ERROR_CONFIG, "check servers" },
	{ JSStreamNotFoundErr, ERROR_CONFIG, no_stream },
	{ JSStreamNotMatchErr, ERROR_CONFIG, "the subject belongs to another stream: check stream, or the subjects of the streams" },
	{ JSStreamMismatchErr, ERROR_CONFIG, "check stream" },
	{ JSStreamSealedErr, ERROR_CONFIG, "the stream is sealed and takes nothing more" },
	{ JSNotEnabledErr, ERROR_CONFIG, no_jetstream },
	{ JSNotEnabledForAccountErr, ERROR_CONFIG, no_jetstream },
	{ JSNoAccountErr, ERROR_CONFIG, no_jetstream },
	{ JSNoLimitsErr, ERROR_CONFIG, no_jetstream },

	/* Us. */
	{ NATS_CONNECTION_AUTH_FAILED, ERROR_AUTH, credentials },
	{ NATS_NOT_PERMITTED, ERROR_AUTH, "allow the user to publish to the subject, and to subscribe to _INBOX.>" },
	{ NATS_SSL_ERROR, ERROR_AUTH, "check tls_ca_file: the server's certificate must verify for its host name" },

	/* Full, for now. */
	{ JSStreamStoreFailedErr, ERROR_THROTTLED, is_full },
	{ JSStreamLimitsErr, ERROR_THROTTLED, is_full },
	{ JSInsufficientResourcesErr, ERROR_THROTTLED, resources },
	{ JSAccountResourcesExceededErr, ERROR_THROTTLED, resources },
	{ JSMemoryResourcesExceededErr, ERROR_THROTTLED, resources },
	{ JSStorageResourcesExceededErr, ERROR_THROTTLED, resources },
	{ TOO_MANY_IN_PROCESS, ERROR_THROTTLED, NULL },

	/* Stored or not, nobody knows. Sent again, it is stored once: it has the same Nats-Msg-Id. */
	{ NATS_TIMEOUT, ERROR_LOST, NULL },
	{ NATS_CONNECTION_DISCONNECTED, ERROR_LOST, NULL },
	{ DUPLICATE_IN_PROCESS, ERROR_LOST, NULL },
};

static size_t find(int code)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(codes) && codes[i].code != code)
		i++;
	return i;
}

enum error_kind nats_status_kind(natsStatus status)
{
	size_t i = find((int)status);

	return i < ARRAY_SIZE(codes) ? codes[i].kind : ERROR_TRANSPORT;
}

/* What we do not know: a request that was wrong stays wrong, everything else may pass. */
enum error_kind nats_code_kind(int code, int class)
{
	size_t i = find(code);

	if (i < ARRAY_SIZE(codes))
		return codes[i].kind;
	return class >= 400 && class < 500 ? ERROR_REJECTED : ERROR_TRANSPORT;
}

static bool add_hint(struct error *err, int code)
{
	size_t i = find(code);

	if (i < ARRAY_SIZE(codes) && codes[i].hint)
		error_hint(err, "%s", codes[i].hint);
	return false;
}

bool nats_status_error(struct error *err, natsStatus status, const char *detail)
{
	error_set(err, nats_status_kind(status), "%s", detail && detail[0] ? detail : natsStatus_GetText(status));
	return add_hint(err, (int)status);
}

bool nats_code_error(struct error *err, int code, int class, const char *description)
{
	error_set(err, nats_code_kind(code, class), "JetStream said: %s (%d)", description, code);
	return add_hint(err, code);
}
