/* One request of `struct http`, and what is read of its answer. Handles are used again: a new one costs more than a small
 * request does. */
#ifndef POSTRIDER_SINK_HTTP_TRANSFER_H
#define POSTRIDER_SINK_HTTP_TRANSFER_H

#include <curl/curl.h>

#include "base/buf.h"
#include "sink/http.h"

struct transfer {
	const struct http_options *options;
	CURL *easy;
	void *tag;
	char *url;
	struct curl_slist *headers;
	struct buf body;
	size_t read;                    /* bytes of the answer, kept or not */
	char retry_after[64];
	bool has_retry_after;
	bool connect_only;
	bool tried, refused;            /* some address of its host */
	char detail[CURL_ERROR_SIZE];
	struct transfer *next, **self;  /* for the lists of its owner */
};

struct transfer *transfer_new(const struct http_options *options);
void transfer_free(struct transfer *t);

/* False: there is no such URL. */
bool transfer_prepare(struct transfer *t, const struct http_request *request, void *tag, struct error *err);
/* Keeps the handle, and nothing of its request. */
void transfer_clear(struct transfer *t);

/* Whether anything of the request may have left. */
bool transfer_has_begun(const struct transfer *t);
struct transfer *transfer_of(CURL *easy);
/* What `code` comes to, when it is over. Valid until the transfer is cleared. */
struct http_answer transfer_answer(const struct transfer *t, CURLcode code);

#endif
