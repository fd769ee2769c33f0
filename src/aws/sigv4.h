/* Signature Version 4, by which AWS knows who sends a request and that nobody has changed it.
 *
 * Our own rather than libcurl's: which headers that one signs, and how, has changed between versions, and what it signs
 * cannot be seen by a test. Requests go to the path "/" without a query; more of the scheme nobody here needs. */
#ifndef POSTRIDER_AWS_SIGV4_H
#define POSTRIDER_AWS_SIGV4_H

#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

/* "20150830T123600Z", for the header x-amz-date. */
#define SIGV4_TIME_BYTES 17

struct sigv4_header {
	const char *name;               /* in small letters */
	const char *value;              /* without blanks at its ends */
};

struct sigv4_request {
	const char *method;
	const struct sigv4_header *headers;     /* all that are to be signed, by name; host and x-amz-date among them */
	uint32_t n_headers;
	struct slice body;
};

struct sigv4_signer {
	const char *key_id, *secret;
	const char *region, *service;
};

void sigv4_time(int64_t unix_seconds, char ret[SIGV4_TIME_BYTES]);
/* Adds the value of the header Authorization. `time` is that of x-amz-date. */
void buf_add_sigv4(struct buf *b, const struct sigv4_signer *signer, const struct sigv4_request *request, const char *time);

#endif
