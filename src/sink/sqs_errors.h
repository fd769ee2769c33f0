/* What refusals of SQS mean to us: one table. */
#ifndef POSTRIDER_SINK_SQS_ERRORS_H
#define POSTRIDER_SINK_SQS_ERRORS_H

#include "aws/call.h"
#include "base/error.h"

/* Whom it concerns, besides the rows of the request. */
enum sqs_scope {
	SQS_ROW,                        /* one of these rows */
	SQS_QUEUE,                      /* their queue */
	SQS_SERVICE,                    /* whatever we may send */
	SQS_CREDENTIALS,                /* the same, and other credentials may mend it */
};

/* Fills in kind, message and hint from a status of HTTP and what the body says; `status` 200 for an entry of a batch. Where
 * the code is not known, the status decides. `queue` is for the message. Nothing that we sent is repeated. */
enum sqs_scope sqs_error_set(struct error *err, int status, const struct aws_refusal *why, struct slice queue);

#endif
