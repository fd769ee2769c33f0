/* A small HTTP/1 server in a thread of its own: one request for each connection, GET and HEAD only. Nothing that a client
 * does or leaves undone costs more than a bounded buffer for a bounded time, and nothing here touches a worker.
 *
 * A port that is taken, by the process that this one replaces perhaps, is tried again until it is free. */
#ifndef POSTRIDER_OBSERVE_HTTP_SERVER_H
#define POSTRIDER_OBSERVE_HTTP_SERVER_H

#include "base/buf.h"
#include "config/config.h"

struct http_server;

struct http_answer {
	int status;
	const char *content_type;
	struct buf body;
};

/* What is served where. The table ends with a row without a path. */
struct http_route {
	const char *path;
	bool open;                              /* needs no token: see http_guard.h */
	void (*answer)(void *arg, struct http_answer *to);      /* the server's thread calls; must not wait */
};

/* The settings, the routes and `arg` must outlive it. `http->listen` is set and sound. */
struct http_server *http_server_start(const struct http_config *http, const struct http_route *routes, void *arg);
void http_server_stop(struct http_server *s);           /* accepts NULL */

#endif
