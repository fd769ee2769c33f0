#include "observe/http_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/mem.h"
#include "config/listen.h"
#include "observe/http_guard.h"

enum {
	CONNECTIONS_MAX = 32,           /* when one more comes, the oldest has to go */
	HEAD_MAX = 8 * 1024,
	REQUEST_MS = 5000,              /* for the head, and again for the answer to be taken */
	LINGER_MS = 1000,               /* for the client to read the answer before the connection is reset */
	BIND_AGAIN_MS = 5000,
};
#define BODY_MAX ((size_t)16 << 20)

enum connection_state { READING, WRITING, LINGERING };

struct connection {
	int fd;                         /* -1: free */
	enum connection_state state;
	int64_t deadline_ms;
	size_t n_head;
	size_t sent;
	struct buf out;
	char head[HEAD_MAX];
};

struct http_server {
	const struct http_config *config;
	const struct http_route *routes;
	void *arg;
	pthread_t thread;
	int stop_fd;
	int listen_fd;                  /* -1: not bound */
	int64_t bind_at_ms;
	bool failing;                   /* said so already */
	struct connection connections[CONNECTIONS_MAX];
};

static const struct {
	int status;
	const char *reason;
} reasons[] = {
	{ 200, "OK" },
	{ 400, "Bad Request" },
	{ 401, "Unauthorized" },
	{ 404, "Not Found" },
	{ 405, "Method Not Allowed" },
	{ 421, "Misdirected Request" },
	{ 431, "Request Header Fields Too Large" },
	{ 500, "Internal Server Error" },
	{ 503, "Service Unavailable" },
};

static const char *reason_of(int status)
{
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "";
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void say(struct http_answer *a, int status, const char *text)
{
	a->status = status;
	a->content_type = "text/plain; charset=utf-8";
	buf_clear(&a->body);
	buf_printf(&a->body, "%s\n", text);
}

static const struct http_route *find_route(const struct http_server *s, struct slice path)
{
	for (const struct http_route *r = s->routes; r->path; r++)
		if (slice_is(path, r->path))
			return r;
	return NULL;
}

static void answer_request(const struct http_server *s, const struct http_request *r, struct http_answer *a)
{
	const struct http_route *route = find_route(s, r->path);

	switch (http_guard(r, s->config->token_file, route && route->open)) {
	case HTTP_WRONG_HOST:
		say(a, 421, "the Host of the request is a name; ask for an address or localhost, or set http.token_file");
		return;
	case HTTP_WRONG_TOKEN:
		say(a, 401, "the token of http.token_file is needed, as `Authorization: Bearer ...`");
		return;
	case HTTP_NO_TOKEN_FILE:
		say(a, 503, "the file http.token_file cannot be read, so nobody can be let in");
		return;
	case HTTP_ADMITTED:
		break;
	}
	if (!route) {
		say(a, 404, "there is no such page");
	} else if (r->method == HTTP_OTHER) {
		say(a, 405, "only GET and HEAD are served here");
	} else {
		route->answer(s->arg, a);
		if (a->body.overflow)
			say(a, 500, "the answer is too large");
	}
}

static void send_answer(struct connection *c, const struct http_answer *a, bool with_body, int64_t now)
{
	buf_init(&c->out, BODY_MAX + HEAD_MAX);
	buf_printf(&c->out,
		   "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
		   "X-Content-Type-Options: nosniff\r\n%s%sConnection: close\r\n\r\n",
		   a->status, reason_of(a->status), a->content_type, a->body.len,
		   a->status == 401 ? "WWW-Authenticate: Bearer\r\n" : "", a->status == 405 ? "Allow: GET, HEAD\r\n" : "");
	if (with_body)
		buf_add(&c->out, a->body.data, a->body.len);
	c->state = WRITING;
	c->deadline_ms = now + REQUEST_MS;
}

/* --- a connection --------------------------------------------------------------------------------------------------- */

static void drop(struct connection *c)
{
	if (c->fd < 0)
		return;
	close(c->fd);
	buf_release(&c->out);
	c->fd = -1;
}

static void parse_head(const struct http_server *s, struct connection *c, int64_t now)
{
	_cleanup_(buf_release) struct buf body = { 0 };
	struct http_answer a = { 0 };
	struct http_request r = { 0 };
	enum http_parsed parsed = http_request_parse((struct slice){ c->head, c->n_head }, &r);

	if (parsed == HTTP_UNFINISHED && c->n_head < sizeof(c->head))
		return;
	buf_init(&a.body, BODY_MAX);
	if (parsed == HTTP_COMPLETE)
		answer_request(s, &r, &a);
	else if (parsed == HTTP_MALFORMED)
		say(&a, 400, "this is not a request that is understood here");
	else
		say(&a, 431, "the head of the request is too large");
	body = a.body;
	send_answer(c, &a, r.method != HTTP_HEAD, now);
}

static void read_head(const struct http_server *s, struct connection *c, int64_t now)
{
	ssize_t n = read(c->fd, c->head + c->n_head, sizeof(c->head) - c->n_head);

	if (n > 0) {
		c->n_head += (size_t)n;
		parse_head(s, c, now);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		drop(c);
	}
}

static void write_answer(struct connection *c, int64_t now)
{
	ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		drop(c);
		return;
	}
	c->sent += n > 0 ? (size_t)n : 0;
	if (c->sent < c->out.len)
		return;
	shutdown(c->fd, SHUT_WR);
	c->state = LINGERING;
	c->deadline_ms = now + LINGER_MS;
}

/* What still comes is not looked at; to close with it unread would take the answer away from the client. */
static void linger(struct connection *c)
{
	char ignored[1024];
	ssize_t n = read(c->fd, ignored, sizeof(ignored));

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		drop(c);
}

static void serve(const struct http_server *s, struct connection *c, int64_t now)
{
	if (c->state == READING)
		read_head(s, c, now);
	if (c->fd >= 0 && c->state == WRITING)
		write_answer(c, now);
	else if (c->fd >= 0 && c->state == LINGERING)
		linger(c);
}

/* --- the thread ----------------------------------------------------------------------------------------------------- */

static struct connection *free_connection(struct http_server *s)
{
	struct connection *oldest = &s->connections[0];

	for (struct connection *c = s->connections; c < s->connections + CONNECTIONS_MAX; c++) {
		if (c->fd < 0)
			return c;
		if (c->deadline_ms < oldest->deadline_ms)
			oldest = c;
	}
	drop(oldest);
	return oldest;
}

static void accept_one(struct http_server *s, int64_t now)
{
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct connection *c;

	if (fd < 0)
		return;
	c = free_connection(s);
	c->fd = fd;
	c->state = READING;
	c->deadline_ms = now + REQUEST_MS;
	c->n_head = c->sent = 0;
}

static int bind_socket(const char *text)
{
	struct listen_address a;
	int fd, one = 1;

	if (!listen_parse(text, &a)) {
		errno = EINVAL;
		return -1;
	}
	fd = socket(a.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)&a.address, a.length) != 0 || listen(fd, CONNECTIONS_MAX) != 0) {
		int why = errno;

		close(fd);
		errno = why;
		return -1;
	}
	return fd;
}

static void try_to_bind(struct http_server *s, int64_t now)
{
	if (s->listen_fd >= 0 || now < s->bind_at_ms)
		return;
	s->listen_fd = bind_socket(s->config->listen);
	if (s->listen_fd >= 0) {
		log_info("http.listening", F_STR("address", s->config->listen));
		return;
	}
	s->bind_at_ms = now + BIND_AGAIN_MS;
	if (!s->failing)
		log_error("http.failed", F_STR("address", s->config->listen), F_STR("error", strerror(errno)),
			  F_STR("meanwhile", "the relay works without metrics, and this is tried again"),
			  F_STR("hint", "see http.listen; another process may have the port"));
	s->failing = true;
}

/* One round. False when the server is to end. */
static bool turn(struct http_server *s)
{
	struct pollfd fds[2 + CONNECTIONS_MAX];
	int64_t now = clock_ms(), deadline = CLOCK_NEVER;

	try_to_bind(s, now);
	if (s->listen_fd < 0)
		deadline = s->bind_at_ms;
	fds[0] = (struct pollfd){ .fd = s->stop_fd, .events = POLLIN };
	fds[1] = (struct pollfd){ .fd = s->listen_fd, .events = POLLIN };
	for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
		struct connection *c = &s->connections[i];

		if (c->fd >= 0 && now >= c->deadline_ms)
			drop(c);
		fds[2 + i] = (struct pollfd){ .fd = c->fd, .events = c->state == WRITING ? POLLOUT : POLLIN };
		if (c->fd >= 0)
			deadline = MIN(deadline, c->deadline_ms);
	}
	poll(fds, ARRAY_SIZE(fds), deadline == CLOCK_NEVER ? -1 : (int)(deadline - now));
	now = clock_ms();
	for (size_t i = 0; i < CONNECTIONS_MAX; i++)
		if (s->connections[i].fd >= 0 && fds[2 + i].revents)
			serve(s, &s->connections[i], now);
	if (fds[1].revents)
		accept_one(s, now);
	return !fds[0].revents;
}

static void *server_main(void *arg)
{
	struct http_server *s = arg;

	while (turn(s))
		;
	return NULL;
}

struct http_server *http_server_start(const struct http_config *http, const struct http_route *routes, void *arg)
{
	struct http_server *s = mem_new(struct http_server);

	s->config = http;
	s->routes = routes;
	s->arg = arg;
	s->listen_fd = -1;
	s->stop_fd = eventfd(0, EFD_CLOEXEC);
	for (size_t i = 0; i < CONNECTIONS_MAX; i++)
		s->connections[i].fd = -1;
	try_to_bind(s, clock_ms());     /* now, so that who waits for us finds us from the first moment on */
	if (s->stop_fd < 0 || pthread_create(&s->thread, NULL, server_main, s) != 0)
		abort();        /* out of descriptors or threads at start */
	return s;
}

void http_server_stop(struct http_server *s)
{
	if (!s)
		return;
	eventfd_write(s->stop_fd, 1);
	pthread_join(s->thread, NULL);
	for (size_t i = 0; i < CONNECTIONS_MAX; i++)
		drop(&s->connections[i]);
	if (s->listen_fd >= 0)
		close(s->listen_fd);
	close(s->stop_fd);
	free(s);
}
