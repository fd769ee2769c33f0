#include "sink/sqs_errors.h"

#include <string.h>

#include "base/macros.h"

static const char check_keys[] =
	"check the credentials: access_key_id and secret_access_key_file, AWS_ACCESS_KEY_ID, the profile or the role";
static const char check_clock[] = "check the clock of this machine";
static const char check_rights[] =
	"allow the user or role sqs:SendMessage on the queue, and sqs:GetQueueUrl where it is named without its URL";
static const char check_kms[] =
	"the queue is encrypted: allow kms:GenerateDataKey and kms:Decrypt on its key, which must be enabled";
static const char check_kms_quota[] = "raise the key's quota of requests, or the queue's data key reuse period";
static const char check_endpoint[] = "check endpoint and region";
static const char create_it[] = "create it: aws sqs create-queue --queue-name ";      /* its name follows */
static const char too_large[] = "lower max_message_bytes to what the queue takes, or delete the row";

/* The first row that fits counts. `part` is a piece of the message, where the code alone is not enough. */
static const struct {
	const char *code, *part;
	enum error_kind kind;
	enum sqs_scope scope;
	const char *hint;
} codes[] = {
	{ "ThrottlingException", NULL, ERROR_THROTTLED, SQS_SERVICE, NULL },
	{ "Throttling", NULL, ERROR_THROTTLED, SQS_SERVICE, NULL },
	{ "ThrottledException", NULL, ERROR_THROTTLED, SQS_SERVICE, NULL },
	{ "RequestThrottled", NULL, ERROR_THROTTLED, SQS_SERVICE, NULL },
	{ "RequestThrottledException", NULL, ERROR_THROTTLED, SQS_SERVICE, NULL },
	{ "RequestLimitExceeded", NULL, ERROR_THROTTLED, SQS_SERVICE, NULL },
	{ "TooManyRequestsException", NULL, ERROR_THROTTLED, SQS_SERVICE, NULL },
	{ "SlowDown", NULL, ERROR_THROTTLED, SQS_SERVICE, NULL },
	{ "KmsThrottled", NULL, ERROR_THROTTLED, SQS_SERVICE, check_kms_quota },
	{ "KMS.ThrottlingException", NULL, ERROR_THROTTLED, SQS_SERVICE, check_kms_quota },

	{ "InternalError", NULL, ERROR_TRANSPORT, SQS_SERVICE, NULL },
	{ "InternalFailure", NULL, ERROR_TRANSPORT, SQS_SERVICE, NULL },
	{ "InternalServerError", NULL, ERROR_TRANSPORT, SQS_SERVICE, NULL },
	{ "ServiceUnavailable", NULL, ERROR_TRANSPORT, SQS_SERVICE, NULL },
	{ "ServiceUnavailableException", NULL, ERROR_TRANSPORT, SQS_SERVICE, NULL },
	{ "RequestTimeout", NULL, ERROR_TRANSPORT, SQS_SERVICE, NULL },

	{ "InvalidSignatureException", "expired", ERROR_AUTH, SQS_CREDENTIALS, check_clock },
	{ "InvalidSignatureException", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "SignatureDoesNotMatch", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "IncompleteSignature", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "InvalidClientTokenId", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "UnrecognizedClientException", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "InvalidAccessKeyId", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "MissingAuthenticationToken", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "MissingAuthenticationTokenException", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "NotAuthorized", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "ExpiredToken", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "ExpiredTokenException", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ "RequestExpired", NULL, ERROR_AUTH, SQS_CREDENTIALS, check_clock },
	{ "OptInRequired", NULL, ERROR_AUTH, SQS_SERVICE, "the account may not use SQS in this region" },
	{ "AccessDenied", NULL, ERROR_AUTH, SQS_QUEUE, check_rights },
	{ "AccessDeniedException", NULL, ERROR_AUTH, SQS_QUEUE, check_rights },
	{ "KmsAccessDenied", NULL, ERROR_AUTH, SQS_QUEUE, check_kms },

	{ "QueueDoesNotExist", NULL, ERROR_CONFIG, SQS_QUEUE, create_it },
	{ "NonExistentQueue", NULL, ERROR_CONFIG, SQS_QUEUE, create_it },
	{ "QueueDeletedRecently", NULL, ERROR_CONFIG, SQS_QUEUE, "a queue can be made again a minute after it was deleted" },
	{ "InvalidAddress", NULL, ERROR_CONFIG, SQS_QUEUE, check_endpoint },
	{ "InvalidSecurity", NULL, ERROR_CONFIG, SQS_SERVICE, "the service wants TLS: write endpoint as https://" },
	{ "KmsDisabled", NULL, ERROR_CONFIG, SQS_QUEUE, check_kms },
	{ "KmsInvalidKeyUsage", NULL, ERROR_CONFIG, SQS_QUEUE, check_kms },
	{ "KmsInvalidState", NULL, ERROR_CONFIG, SQS_QUEUE, check_kms },
	{ "KmsNotFound", NULL, ERROR_CONFIG, SQS_QUEUE, check_kms },
	{ "KmsOptInRequired", NULL, ERROR_CONFIG, SQS_QUEUE, check_kms },
	{ "UnsupportedOperation", NULL, ERROR_CONFIG, SQS_QUEUE, NULL },
	{ "UnknownOperationException", NULL, ERROR_CONFIG, SQS_SERVICE, check_endpoint },

	{ "BatchRequestTooLong", NULL, ERROR_REJECTED, SQS_ROW, too_large },
	{ "InvalidAttributeValue", "MessageTooLong", ERROR_REJECTED, SQS_ROW, too_large },
	{ "InvalidParameterValue", "too long", ERROR_REJECTED, SQS_ROW, too_large },
	{ "InvalidParameterValue", "must be shorter than", ERROR_REJECTED, SQS_ROW, too_large },
	{ "InvalidMessageContents", NULL, ERROR_REJECTED, SQS_ROW, NULL },
	{ "InvalidAttributeValue", NULL, ERROR_REJECTED, SQS_ROW, NULL },
	{ "InvalidAttributeName", NULL, ERROR_REJECTED, SQS_ROW, NULL },
	{ "InvalidParameterValue", NULL, ERROR_REJECTED, SQS_ROW, NULL },
	{ "InvalidParameterValueException", NULL, ERROR_REJECTED, SQS_ROW, NULL },
	{ "InvalidParameterCombination", NULL, ERROR_REJECTED, SQS_ROW, NULL },
	{ "MissingParameter", NULL, ERROR_REJECTED, SQS_ROW, NULL },
};

/* For codes that are not above, and answers without one, such as those of a proxy. */
static const struct {
	int from, to;
	enum error_kind kind;
	enum sqs_scope scope;
	const char *hint;
} statuses[] = {
	{ 401, 401, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ 403, 403, ERROR_AUTH, SQS_CREDENTIALS, check_keys },
	{ 408, 408, ERROR_TRANSPORT, SQS_SERVICE, NULL },
	{ 413, 413, ERROR_REJECTED, SQS_ROW, too_large },
	{ 429, 429, ERROR_THROTTLED, SQS_SERVICE, NULL },
	{ 503, 503, ERROR_THROTTLED, SQS_SERVICE, NULL },
	{ 500, 599, ERROR_TRANSPORT, SQS_SERVICE, NULL },
	/* Somebody must look at it, and it is not the row's fault. */
	{ 0, 999, ERROR_CONFIG, SQS_QUEUE, check_endpoint },
};

static bool has_part(const char *message, const char *part)
{
	return !part || strcasestr(message, part);
}

/* To a wrong signature the service repeats what it would have signed, and that may have a session's token in it. */
static void say(struct error *err, enum error_kind kind, enum sqs_scope scope, int status, const struct aws_refusal *why,
		struct slice queue)
{
	const char *message = scope == SQS_CREDENTIALS ? "" : why->message;

	if (why->code[0] || message[0])
		error_set(err, kind, "queue %.*s: SQS: %s%s%s", (int)MIN(queue.len, 200), queue.ptr, why->code,
			  why->code[0] && message[0] ? ": " : "", message);
	else
		error_set(err, kind, "queue %.*s: the endpoint answers with status %d", (int)MIN(queue.len, 200), queue.ptr, status);
}

static void hint(struct error *err, const char *text, struct slice queue)
{
	bool fifo = queue.len > 5 && memcmp(queue.ptr + queue.len - 5, ".fifo", 5) == 0;

	if (text == create_it)
		error_hint(err, "%s%.*s%s", text, (int)MIN(queue.len, 200), queue.ptr, fifo ? " --attributes FifoQueue=true" : "");
	else if (text)
		error_hint(err, "%s", text);
}

enum sqs_scope sqs_error_set(struct error *err, int status, const struct aws_refusal *why, struct slice queue)
{
	size_t i = 0, k = 0;

	while (i < ARRAY_SIZE(codes) && !(strcmp(codes[i].code, why->code) == 0 && has_part(why->message, codes[i].part)))
		i++;
	if (i < ARRAY_SIZE(codes)) {
		say(err, codes[i].kind, codes[i].scope, status, why, queue);
		hint(err, codes[i].hint, queue);
		return codes[i].scope;
	}
	while (k + 1 < ARRAY_SIZE(statuses) && (status < statuses[k].from || status > statuses[k].to))
		k++;
	say(err, statuses[k].kind, statuses[k].scope, status, why, queue);
	hint(err, statuses[k].hint, queue);
	return statuses[k].scope;
}
