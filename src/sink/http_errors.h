/* Why no answer came: one table for the codes of libcurl. */
#ifndef POSTRIDER_SINK_HTTP_ERRORS_H
#define POSTRIDER_SINK_HTTP_ERRORS_H

#include <curl/curl.h>

#include "base/error.h"

/* `detail` is what libcurl says of it, or "". Names scheme, host and port of `url`, because the rest may hold secrets. Always
 * false. */
bool http_error_set(struct error *err, CURLcode code, const char *detail, const char *url);
/* The same for an address that we would not connect to. */
bool http_error_refused(struct error *err, const char *url);

/* "https://host:port", the port where the URL names one; "" where it is none. */
void http_origin(const char *url, char *ret, size_t room);

#endif
