/* HTTP requests of one worker, many at a time, inside its loop: libcurl's multi interface behind one descriptor.
 *
 * Nothing here blocks: names are resolved in threads of libcurl's, and what waits is an epoll set and a deadline. Redirects are
 * never followed, proxies of the environment are ignored, and certificates are verified. It belongs to one thread. */
#ifndef POSTRIDER_SINK_HTTP_H
#define POSTRIDER_SINK_HTTP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/slice.h"

enum {
	HTTP_BODY_KEPT = 64 * 1024,     /* bytes of an answer that the caller sees */
	HTTP_BODY_READ = 1024 * 1024,   /* and that are read at all: who says more is cut off, and has answered */
};

struct http;

/* Strings are borrowed and must outlive it. */
struct http_options {
	const char *user_agent;
	int64_t connect_timeout_ms;             /* name, connection and TLS */
	int64_t request_timeout_ms;             /* all of it; a large body gets more */
	uint32_t per_host;                      /* connections to one host at a time; 0: no limit. What is more waits, and its
						 * time is running: a caller had better not start it. */
	const char *ca_file;                    /* NULL or "": the system's authorities */
	const char *cert_file, *key_file;       /* NULL or "": no certificate of ours */
	bool (*address_allowed)(const struct sockaddr *address, void *data);    /* asked before each connect; NULL: any is */
	void *address_data;
};

struct http_request {
	const char *method;                     /* NULL: POST */
	const char *url;
	const char *const *headers;             /* "Name: value", or "Name;" for an empty one */
	uint32_t n_headers;
	struct slice body;
	bool connect_only;                      /* sends nothing: is there somebody whom we trust? */
};

struct http_answer {
	int status;                             /* 0: none came, and `why` says why not */
	struct slice body;                      /* its first HTTP_BODY_KEPT bytes */
	struct slice retry_after;               /* the value of that header; NULL: there is none */
	struct error why;                       /* ERROR_NONE where there is a status, or only a connection was wanted. It names
						 * scheme, host and port, and no more of the URL. */
};

/* The answer is valid during the call, which may start further requests. */
typedef void http_done(void *tag, const struct http_answer *answer);

/* False: a setting cannot be meant. */
bool http_new(const struct http_options *options, http_done *done, struct http **ret, struct error *err);
/* Requests under way end without a call. Accepts NULL. */
void http_free(struct http *h);

/* The body stays where it is until `done`; everything else is copied. The call comes from a later http_pump, or http_recall. */
bool http_start(struct http *h, const struct http_request *request, void *tag, struct error *err);
uint32_t http_under_way(const struct http *h);
/* Ends what waits for its connection: nothing of it was sent. These calls come at once, with ERROR_LOST. */
void http_recall(struct http *h);

/* As the functions of a sink. */
int http_pollfd(const struct http *h, short *ret_events, int64_t *ret_deadline_ms);
void http_pump(struct http *h, int64_t now_ms);

#endif
