#include "sink/http.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sink/http_transfer.h"

enum {
	SOCKETS_AT_A_TIME = 64,
	SPARES_MAX = 64,                /* handles that are kept for later requests */
};

struct http {
	struct http_options options;
	http_done *done;
	CURLM *multi;
	int epoll_fd;
	int64_t deadline_ms;            /* of libcurl's timer */
	struct transfer *under_way, *spares;
	uint32_t n_under_way, n_spares;
};

static void list_push(struct transfer **list, struct transfer *t)
{
	t->next = *list;
	t->self = list;
	if (t->next)
		t->next->self = &t->next;
	*list = t;
}

static void list_remove(struct transfer *t)
{
	*t->self = t->next;
	if (t->next)
		t->next->self = t->self;
}

/* --- what libcurl calls ----------------------------------------------------------------------------------------- */

static int watch_socket(CURL *easy _unused_, curl_socket_t fd, int what, void *data, void *socket_data _unused_)
{
	const struct http *h = data;
	struct epoll_event event = { .events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0),
				     .data.fd = fd };

	if (what == CURL_POLL_REMOVE)
		epoll_ctl(h->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	else if (epoll_ctl(h->epoll_fd, EPOLL_CTL_MOD, fd, &event) != 0)
		mem_must(epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0);
	return 0;
}

static int set_timer(CURLM *multi _unused_, long timeout_ms, void *data)
{
	struct http *h = data;

	h->deadline_ms = timeout_ms < 0 ? CLOCK_NEVER : clock_ms() + timeout_ms;
	return 0;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static struct transfer *take_spare(struct http *h)
{
	struct transfer *t = h->spares;

	if (!t)
		return transfer_new(&h->options);
	list_remove(t);
	h->n_spares--;
	return t;
}

static void keep_spare(struct http *h, struct transfer *t)
{
	if (h->n_spares == SPARES_MAX) {
		transfer_free(t);
		return;
	}
	transfer_clear(t);
	list_push(&h->spares, t);
	h->n_spares++;
}

bool http_start(struct http *h, const struct http_request *request, void *tag, struct error *err)
{
	struct transfer *t = take_spare(h);

	if (!transfer_prepare(t, request, tag, err)) {
		keep_spare(h, t);
		return false;
	}
	mem_must(curl_multi_add_handle(h->multi, t->easy) == CURLM_OK);
	list_push(&h->under_way, t);
	h->n_under_way++;
	return true;
}

uint32_t http_under_way(const struct http *h)
{
	return h->n_under_way;
}

static void forget(struct http *h, struct transfer *t)
{
	curl_multi_remove_handle(h->multi, t->easy);
	list_remove(t);
	h->n_under_way--;
}

/* It is forgotten already: the call may start others. */
static void end(struct http *h, struct transfer *t, struct http_answer *answer)
{
	h->done(t->tag, answer);
	keep_spare(h, t);
}

static void take_ended(struct http *h)
{
	const CURLMsg *message;
	int left;

	while ((message = curl_multi_info_read(h->multi, &left))) {
		struct transfer *t = transfer_of(message->easy_handle);
		CURLcode code = message->data.result;
		struct http_answer answer;

		forget(h, t);
		answer = transfer_answer(t, code);
		end(h, t, &answer);
	}
}

void http_recall(struct http *h)
{
	struct http_answer answer = { 0 };
	struct transfer *next;

	error_set(&answer.why, ERROR_LOST, "not sent: it was called back");
	for (struct transfer *t = h->under_way; t; t = next) {
		next = t->next;
		if (transfer_has_begun(t))
			continue;
		forget(h, t);
		end(h, t, &answer);
	}
}

static int what_is_up(uint32_t events)
{
	return (events & EPOLLIN ? CURL_CSELECT_IN : 0) | (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
	       (events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
}

void http_pump(struct http *h, int64_t now_ms)
{
	struct epoll_event events[SOCKETS_AT_A_TIME];
	int n = epoll_wait(h->epoll_fd, events, SOCKETS_AT_A_TIME, 0), running;

	for (int i = 0; i < n; i++)
		curl_multi_socket_action(h->multi, events[i].data.fd, what_is_up(events[i].events), &running);
	if (now_ms >= h->deadline_ms)
		curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	take_ended(h);
}

int http_pollfd(const struct http *h, short *ret_events, int64_t *ret_deadline_ms)
{
	*ret_events = POLLIN;
	*ret_deadline_ms = h->deadline_ms;
	return h->epoll_fd;
}

/* --- the whole -------------------------------------------------------------------------------------------------- */

/* A server that goes away while we write to it is an outage to report, not a reason to die. */
static void start_library(void)
{
	signal(SIGPIPE, SIG_IGN);
	mem_must(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

static bool is_set(const char *text)
{
	return text && text[0];
}

static bool readable(const char *option, const char *file, struct error *err)
{
	if (!is_set(file) || access(file, R_OK) == 0)
		return true;
	return error_set(err, ERROR_CONFIG, "%s: could not read %s: %s", option, file, strerror(errno));
}

bool http_new(const struct http_options *options, http_done *done, struct http **ret, struct error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct http *h;

	pthread_once(&once, start_library);
	if (!readable("tls_ca_file", options->ca_file, err) || !readable("tls_cert_file", options->cert_file, err) ||
	    !readable("tls_key_file", options->key_file, err))
		return false;
	h = mem_new(struct http);
	h->options = *options;
	h->done = done;
	h->deadline_ms = CLOCK_NEVER;
	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	h->multi = curl_multi_init();
	mem_must(h->epoll_fd >= 0 && h->multi);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
	curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, set_timer);
	curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	curl_multi_setopt(h->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
	curl_multi_setopt(h->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)options->per_host);
	if (options->per_host > 0)
		curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)options->per_host);
	*ret = h;
	return true;
}

void http_free(struct http *h)
{
	struct transfer *t;

	if (!h)
		return;
	while ((t = h->under_way)) {
		forget(h, t);
		transfer_free(t);
	}
	while ((t = h->spares)) {
		list_remove(t);
		transfer_free(t);
	}
	curl_multi_cleanup(h->multi);
	close(h->epoll_fd);
	free(h);
}
