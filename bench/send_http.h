/* What bare loops over HTTP have in common: so many requests under way, each with the next messages in it. */
#ifndef POSTRIDER_BENCH_SEND_HTTP_H
#define POSTRIDER_BENCH_SEND_HTTP_H

#include <curl/curl.h>
#include <stddef.h>

#include "send.h"

struct send_request {
	CURL *easy;
	struct curl_slist *headers;     /* empty when it is to be filled */
	char *body;                     /* kept for the next time; freed at the end */
	size_t body_len, body_room;
	struct send_message message;    /* for whoever fills it, kept too */
};

struct send_http {
	const char *url;
	int in_flight;
	long per_request;               /* messages, at most */
	/* Headers and body of a request with the messages from number `first` on. */
	void (*fill)(struct send_request *, const struct load *, long first, long n);
};

void send_http_all(const struct send_http *, const struct load *);

void send_add_header(struct send_request *, const char *name, const char *value);
void send_add_body(struct send_request *, const char *bytes, size_t len);

#endif
