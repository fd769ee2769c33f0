/* The head of an HTTP/1 request, as far as we serve it. Strict: what a sane client does not send is refused, so that nobody
 * else on the way can understand it differently. Reads untrusted bytes; tests/fuzz/fuzz_http_request.c. */
#ifndef POSTRIDER_OBSERVE_HTTP_REQUEST_H
#define POSTRIDER_OBSERVE_HTTP_REQUEST_H

#include "base/slice.h"

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_OTHER };

/* Slices point into the bytes that were parsed. */
struct http_request {
	enum http_method method;
	struct slice path;              /* from the first / to the ? */
	struct slice query;             /* behind the ?; NULL: none */
	struct slice host;              /* NULL: not said, which only HTTP/1.0 may */
	struct slice token;             /* of `Authorization: Bearer`; NULL: none */
};

enum http_parsed {
	HTTP_UNFINISHED,                /* the blank line that ends the head has not come yet */
	HTTP_COMPLETE,
	HTTP_MALFORMED,
};

/* *ret is written only when complete. */
enum http_parsed http_request_parse(struct slice bytes, struct http_request *ret);

#endif
