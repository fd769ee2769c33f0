/* One HTTP request that is waited for: in threads of our own and in commands, never in a worker's loop. */
#ifndef POSTRIDER_AWS_FETCH_H
#define POSTRIDER_AWS_FETCH_H

#include "base/buf.h"
#include "sink/http.h"

/* `interrupt_fd` ends it early when it becomes readable; -1: nothing does. False: no answer came. Otherwise the status, and
 * the body is added to `ret_body`. */
bool aws_fetch(const struct http_options *options, const struct http_request *request, int interrupt_fd, int *ret_status,
	       struct buf *ret_body, struct error *err);

#endif
