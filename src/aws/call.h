/* One call of a service that speaks AWS's JSON protocol: a signed POST, and what an error in its answer says. */
#ifndef POSTRIDER_AWS_CALL_H
#define POSTRIDER_AWS_CALL_H

#include <stdint.h>

#include "aws/credentials.h"
#include "aws/endpoint.h"
#include "base/slice.h"
#include "sink/http.h"

enum { AWS_CALL_HEADERS = 6 };

/* The headers of a call, which it owns. */
struct aws_call {
	char *headers[AWS_CALL_HEADERS];
	struct http_request request;
};

/* `target` is "AmazonSQS.SendMessageBatch". The body is borrowed. `unix_seconds` is the time of day: a server refuses a
 * request whose time is some minutes off. */
void aws_call_init(struct aws_call *c, const struct aws_endpoint *endpoint, const struct aws_credentials *credentials,
		   const char *target, struct slice body, int64_t unix_seconds);
void aws_call_release(struct aws_call *c);      /* also for _cleanup_ */

/* What a service says when it refuses. */
struct aws_refusal {
	char code[96];                  /* without its namespace: "QueueDoesNotExist"; "": none */
	char message[256];
};

/* From the body of an answer that is not 200; empty where it has neither. */
void aws_refusal_read(struct slice body, struct aws_refusal *ret);
/* Cuts the namespace from a code: "com.amazonaws.sqs#X" and "AWS.SimpleQueueService.X" are both "X". */
void aws_refusal_trim(struct aws_refusal *r);

#endif
