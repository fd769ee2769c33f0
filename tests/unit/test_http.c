#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "sink/http.h"
#include "sink/http_errors.h"

/* A server that says the same to everybody: one thread, a connection at a time, each kept open for as long as asked. */
struct peer {
	pthread_t thread;
	int fd;
	int port;
	const char *answer;             /* NULL: says nothing */
	size_t padding;                 /* bytes that follow the answer */
	int requests;                   /* on one connection, before it is closed */
	char heard[64 * 1024];          /* the last request; read after peer_end */
	_Atomic int connections;
};

/* A request as a whole, by its Content-Length. False: the other side is gone. */
static bool hear(struct peer *p, int fd)
{
	size_t len = 0;

	for (;;) {
		const char *end, *length;
		ssize_t n = read(fd, p->heard + len, sizeof(p->heard) - 1 - len);

		if (n <= 0)
			return false;
		len += (size_t)n;
		p->heard[len] = '\0';
		end = strstr(p->heard, "\r\n\r\n");
		if (!end)
			continue;
		length = strcasestr(p->heard, "content-length: ");
		if ((size_t)(end + 4 - p->heard) + (length ? (size_t)atol(length + 16) : 0) <= len)
			return true;
	}
}

static void say(const struct peer *p, int fd)
{
	static const char padding[4096];
	size_t left = p->padding;
	ssize_t n = write(fd, p->answer, strlen(p->answer));

	while (n > 0 && left > 0) {
		n = send(fd, padding, MIN(left, sizeof(padding)), MSG_NOSIGNAL);
		left -= n > 0 ? (size_t)n : 0;
	}
}

static void *serve(void *arg)
{
	struct peer *p = arg;
	char rest[256];
	int fd;

	while ((fd = accept(p->fd, NULL, NULL)) >= 0) {
		p->connections++;
		for (int i = 0; i < p->requests && hear(p, fd); i++)
			if (p->answer)
				say(p, fd);
		/* Who says nothing waits until the other side gives up. */
		while (!p->answer && read(fd, rest, sizeof(rest)) > 0)
			;
		close(fd);
	}
	return NULL;
}

static void peer_start(struct peer *p)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);

	p->requests = MAX(p->requests, 1);
	p->fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(p->fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(p->fd, 16), 0);
	assert_int_equal(getsockname(p->fd, (struct sockaddr *)&address, &len), 0);
	p->port = ntohs(address.sin_port);
	assert_int_equal(pthread_create(&p->thread, NULL, serve, p), 0);
}

static void peer_end(struct peer *p)
{
	shutdown(p->fd, SHUT_RDWR);
	pthread_join(p->thread, NULL);
	close(p->fd);
}

/* What became of requests. */
struct seen {
	int calls;
	int status;
	char body[64];
	size_t body_len;
	char retry_after[64];
	struct error why;
};

static void on_done(void *tag, const struct http_answer *answer)
{
	struct seen *s = tag;

	s->calls++;
	s->status = answer->status;
	s->body_len = answer->body.len;
	snprintf(s->body, sizeof(s->body), "%.*s", (int)MIN(answer->body.len, 60), answer->body.ptr);
	snprintf(s->retry_after, sizeof(s->retry_after), "%s", answer->retry_after.ptr ? answer->retry_after.ptr : "none");
	s->why = answer->why;
}

static struct http *open_http(struct http_options options)
{
	struct error err = { 0 };
	struct http *h;

	options.connect_timeout_ms = options.connect_timeout_ms ? options.connect_timeout_ms : 20000;
	options.request_timeout_ms = options.request_timeout_ms ? options.request_timeout_ms : 5000;
	assert_true(http_new(&options, on_done, &h, &err));
	return h;
}

static void run(struct http *h)
{
	int64_t give_up_ms = clock_ms() + 20000, deadline;
	struct pollfd fd;

	while (http_under_way(h) > 0 && clock_ms() < give_up_ms) {
		fd.fd = http_pollfd(h, &fd.events, &deadline);
		poll(&fd, 1, (int)MAX(MIN(deadline - clock_ms(), 1000), 0));
		http_pump(h, clock_ms());
	}
	assert_int_equal(http_under_way(h), 0);
}

static void start(struct http *h, const struct http_request *request, struct seen *s)
{
	struct error err = { 0 };

	assert_true(http_start(h, request, s, &err));
}

static struct seen ask(struct http_options options, int port, struct slice body)
{
	struct http *h = open_http(options);
	struct seen s = { 0 };
	char url[128];

	snprintf(url, sizeof(url), "http://user:secret@127.0.0.1:%d/private/path?key=secret", port);
	start(h, &(struct http_request){ .url = url, .body = body }, &s);
	run(h);
	http_free(h);
	assert_int_equal(s.calls, 1);
	return s;
}

static struct seen ask_peer(struct peer *p, struct http_options options)
{
	struct seen s;

	peer_start(p);
	s = ask(options, p->port, SLICE_LITERAL("hello"));
	peer_end(p);
	return s;
}

static void a_request_is_sent_as_it_is_and_its_answer_is_read(void **state _unused_)
{
	struct peer p = { .answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nRETRY-AFTER:  120 \r\n\r\nfine" };
	static const char *const headers[] = { "X-One: 1", "Content-Type: text/plain", "X-Empty;" };
	struct http *h = open_http((struct http_options){ .user_agent = "tests" });
	struct seen s = { 0 };
	char url[64];

	peer_start(&p);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/there", p.port);
	start(h, &(struct http_request){ .url = url, .headers = headers, .n_headers = 3, .body = { "a\0b", 3 } }, &s);
	run(h);
	http_free(h);
	peer_end(&p);
	assert_int_equal(s.status, 200);
	assert_string_equal(s.body, "fine");
	assert_string_equal(s.retry_after, "120");
	assert_int_equal(s.why.kind, ERROR_NONE);
	assert_ptr_equal(strstr(p.heard, "POST /there HTTP/1.1\r\n"), p.heard);
	assert_non_null(strstr(p.heard, "\r\nX-One: 1\r\n"));
	assert_non_null(strstr(p.heard, "\r\nX-Empty:\r\n"));
	assert_non_null(strstr(p.heard, "\r\nUser-Agent: tests\r\n"));
	assert_null(strcasestr(p.heard, "expect:"));
	assert_memory_equal(strstr(p.heard, "\r\n\r\n") + 4, "a\0b", 3);
}

static void other_methods_are_possible(void **state _unused_)
{
	static const struct {
		const char *method, *line;
	} methods[] = { { "GET", "GET / HTTP/1.1\r\n" }, { "PUT", "PUT / HTTP/1.1\r\n" } };

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		struct peer p = { .answer = "HTTP/1.1 204 No Content\r\n\r\n" };
		struct http *h = open_http((struct http_options){ 0 });
		struct seen s = { 0 };
		char url[64];

		peer_start(&p);
		snprintf(url, sizeof(url), "http://127.0.0.1:%d/", p.port);
		start(h, &(struct http_request){ .url = url, .method = methods[i].method }, &s);
		run(h);
		http_free(h);
		peer_end(&p);
		assert_int_equal(s.status, 204);
		assert_ptr_equal(strstr(p.heard, methods[i].line), p.heard);
	}
}

static void an_answer_in_chunks_is_put_together(void **state _unused_)
{
	struct peer p = { .answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" };
	struct seen s = ask_peer(&p, (struct http_options){ 0 });

	assert_int_equal(s.status, 200);
	assert_string_equal(s.body, "abcde");
	assert_string_equal(s.retry_after, "none");
}

static void an_answer_that_is_cut_is_none(void **state _unused_)
{
	struct peer body = { .answer = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfin" };
	struct peer head = { .answer = "HTTP/1.1 20" };
	struct peer chunk = { .answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n30\r\nabc" };
	struct peer nonsense = { .answer = "SSH-2.0-OpenSSH_9.2\r\n" };
	struct peer *peers[] = { &body, &head, &chunk, &nonsense };

	for (size_t i = 0; i < ARRAY_SIZE(peers); i++) {
		struct seen s = ask_peer(peers[i], (struct http_options){ 0 });

		assert_int_equal(s.status, 0);
		assert_int_equal(s.why.kind, ERROR_TRANSPORT);
	}
}

static void a_huge_answer_is_cut_and_counts(void **state _unused_)
{
	struct peer p = { .answer = "HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n", .padding = 50000000 };
	struct seen s = ask_peer(&p, (struct http_options){ 0 });

	assert_int_equal(s.status, 200);
	assert_int_equal(s.body_len, HTTP_BODY_KEPT);
}

static void a_silent_peer_is_given_up_in_time_and_no_secret_is_told(void **state _unused_)
{
	struct peer p = { .answer = NULL };
	int64_t begin = clock_ms();
	struct seen s = ask_peer(&p, (struct http_options){ .request_timeout_ms = 300 });

	assert_int_equal(s.status, 0);
	assert_int_equal(s.why.kind, ERROR_TRANSPORT);
	assert_in_range(clock_ms() - begin, 250, 3000);
	assert_non_null(strstr(s.why.message, "no answer from http://127.0.0.1:"));
	assert_null(strstr(s.why.message, "secret"));
	assert_null(strstr(s.why.message, "private"));
}

static void nobody_there_is_an_outage(void **state _unused_)
{
	struct peer p = { .answer = NULL };
	struct seen s;

	peer_start(&p);
	peer_end(&p);
	s = ask((struct http_options){ 0 }, p.port, SLICE_LITERAL(""));
	assert_int_equal(s.status, 0);
	assert_int_equal(s.why.kind, ERROR_TRANSPORT);
}

static void a_redirect_is_an_answer_like_others(void **state _unused_)
{
	struct peer p = { .answer = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n" };

	assert_int_equal(ask_peer(&p, (struct http_options){ 0 }).status, 302);
}

static void the_environment_sets_no_proxy(void **state _unused_)
{
	struct peer p = { .answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" };

	setenv("http_proxy", "http://127.0.0.1:1", 1);
	assert_int_equal(ask_peer(&p, (struct http_options){ 0 }).status, 200);
	unsetenv("http_proxy");
}

static bool never(const struct sockaddr *address, void *data)
{
	(*(int *)data)++;
	assert_int_equal(address->sa_family, AF_INET);
	assert_int_equal(((const struct sockaddr_in *)address)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	return false;
}

static void an_address_that_is_not_allowed_is_not_connected_to(void **state _unused_)
{
	struct peer p = { .answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" };
	int asked = 0;
	struct seen s = ask_peer(&p, (struct http_options){ .address_allowed = never, .address_data = &asked });

	assert_int_equal(s.status, 0);
	assert_int_equal(s.why.kind, ERROR_CONFIG);
	assert_non_null(strstr(s.why.message, "may not go"));
	assert_int_equal(asked, 1);
	assert_int_equal(p.connections, 0);
}

static void a_connection_is_used_again(void **state _unused_)
{
	struct peer p = { .answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", .requests = 5 };
	struct http *h = open_http((struct http_options){ .per_host = 4 });
	struct seen s = { 0 };
	char url[64];

	peer_start(&p);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", p.port);
	for (int i = 0; i < 5; i++) {
		start(h, &(struct http_request){ .url = url }, &s);
		run(h);
		assert_int_equal(s.status, 200);
	}
	http_free(h);
	peer_end(&p);
	assert_int_equal(s.calls, 5);
	assert_int_equal(p.connections, 1);
}

/* The peer serves one connection after the other, so the other requests wait for the first. */
static void requests_under_way_end_without_a_call(void **state _unused_)
{
	struct peer p = { .answer = NULL };
	struct http *h = open_http((struct http_options){ 0 });
	struct seen s = { 0 };
	char url[64];

	peer_start(&p);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", p.port);
	for (int i = 0; i < 10; i++)
		start(h, &(struct http_request){ .url = url }, &s);
	assert_int_equal(http_under_way(h), 10);
	for (int i = 0; i < 5; i++)
		http_pump(h, clock_ms());
	http_free(h);
	peer_end(&p);
	assert_int_equal(s.calls, 0);
}

/* A handshake that nobody answers: nothing of the first has left. The second is with the peer. */
static void what_has_not_left_can_be_called_back(void **state _unused_)
{
	struct peer silent = { .answer = NULL }, slow = { .answer = NULL };
	struct http *h = open_http((struct http_options){ .request_timeout_ms = 60000, .connect_timeout_ms = 60000 });
	struct seen waiting = { 0 }, sent = { 0 };
	char url[64], tls_url[64];

	peer_start(&silent);
	peer_start(&slow);
	snprintf(tls_url, sizeof(tls_url), "https://127.0.0.1:%d/", silent.port);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", slow.port);
	start(h, &(struct http_request){ .url = tls_url }, &waiting);
	start(h, &(struct http_request){ .url = url }, &sent);
	for (int64_t until = clock_ms() + 20000; slow.connections == 0 && clock_ms() < until;)
		http_pump(h, clock_ms());
	for (int64_t until = clock_ms() + 100; clock_ms() < until;)
		http_pump(h, clock_ms());
	http_recall(h);
	assert_int_equal(waiting.calls, 1);
	assert_int_equal(waiting.why.kind, ERROR_LOST);
	assert_int_equal(sent.calls, 0);
	assert_int_equal(http_under_way(h), 1);
	http_free(h);
	peer_end(&silent);
	peer_end(&slow);
}

static void a_connection_alone_is_no_request(void **state _unused_)
{
	struct peer p = { .answer = "HTTP/1.1 200 OK\r\n\r\n" };
	struct http *h = open_http((struct http_options){ 0 });
	struct seen s = { 0 };
	char url[64];

	peer_start(&p);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d/", p.port);
	start(h, &(struct http_request){ .url = url, .connect_only = true }, &s);
	run(h);
	http_free(h);
	peer_end(&p);
	assert_int_equal(s.calls, 1);
	assert_int_equal(s.status, 0);
	assert_int_equal(s.why.kind, ERROR_NONE);
	assert_string_equal(p.heard, "");
}

static void what_is_no_url_is_said(void **state _unused_)
{
	struct http *h = open_http((struct http_options){ 0 });
	struct seen s = { 0 };

	start(h, &(struct http_request){ .url = "http://[bad/" }, &s);
	run(h);
	assert_int_equal(s.status, 0);
	assert_int_equal(s.why.kind, ERROR_CONFIG);
	http_free(h);
}

static void a_file_that_cannot_be_read_is_named(void **state _unused_)
{
	struct error err = { 0 };
	struct http *h;

	assert_false(http_new(&(struct http_options){ .ca_file = "/nowhere/ca.pem" }, on_done, &h, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_non_null(strstr(err.message, "/nowhere/ca.pem"));
}

static void an_origin_is_all_that_is_told_of_a_url(void **state _unused_)
{
	static const char *const urls[][2] = {
		{ "https://hooks.example.com/T0/B1/secret?x=1", "https://hooks.example.com" },
		{ "https://user:secret@hooks.example.com:8443/x", "https://hooks.example.com:8443" },
		{ "http://[::1]:80/x", "http://[::1]:80" },
		{ "what is this", "" },
	};
	char origin[128];

	for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
		http_origin(urls[i][0], origin, sizeof(origin));
		assert_string_equal(origin, urls[i][1]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_is_sent_as_it_is_and_its_answer_is_read),
		cmocka_unit_test(other_methods_are_possible),
		cmocka_unit_test(an_answer_in_chunks_is_put_together),
		cmocka_unit_test(an_answer_that_is_cut_is_none),
		cmocka_unit_test(a_huge_answer_is_cut_and_counts),
		cmocka_unit_test(a_silent_peer_is_given_up_in_time_and_no_secret_is_told),
		cmocka_unit_test(nobody_there_is_an_outage),
		cmocka_unit_test(a_redirect_is_an_answer_like_others),
		cmocka_unit_test(the_environment_sets_no_proxy),
		cmocka_unit_test(an_address_that_is_not_allowed_is_not_connected_to),
		cmocka_unit_test(a_connection_is_used_again),
		cmocka_unit_test(requests_under_way_end_without_a_call),
		cmocka_unit_test(what_has_not_left_can_be_called_back),
		cmocka_unit_test(a_connection_alone_is_no_request),
		cmocka_unit_test(what_is_no_url_is_said),
		cmocka_unit_test(a_file_that_cannot_be_read_is_named),
		cmocka_unit_test(an_origin_is_all_that_is_told_of_a_url),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
