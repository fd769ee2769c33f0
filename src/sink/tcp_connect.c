#include "sink/tcp_connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"

static bool is_port(const char *text)
{
	size_t len = strlen(text);

	return len > 0 && len <= 5 && strspn(text, "0123456789") == len && atoi(text) > 0 && atoi(text) < 65536;
}

bool tcp_address_parse(const char *text, struct tcp_address *ret, struct error *err)
{
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;

	if (!colon || !is_port(colon + 1))
		return error_set(err, ERROR_CONFIG, "must be host:port, with a port from 1 to 65535");
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		text++;
		len -= 2;
	} else if (memchr(text, ':', len)) {
		return error_set(err, ERROR_CONFIG, "must have an IPv6 host in brackets, as in [::1]:6379");
	}
	if (len == 0 || len >= sizeof(ret->host))
		return error_set(err, ERROR_CONFIG, "must be host:port, with a host of 1 to 255 characters");
	*ret = (struct tcp_address){ 0 };
	memcpy(ret->host, text, len);
	memcpy(ret->port, colon + 1, strlen(colon + 1));
	return true;
}

bool tcp_address_is_loopback(const struct tcp_address *a)
{
	struct in_addr v4;

	if (inet_pton(AF_INET, a->host, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
	return strcmp(a->host, "localhost") == 0 || strcmp(a->host, "::1") == 0;
}

bool tcp_wait(int fd, short events, int interrupt_fd, int64_t deadline_ms, struct error *err)
{
	for (;;) {
		struct pollfd fds[] = { { .fd = fd, .events = events }, { .fd = interrupt_fd, .events = POLLIN } };
		int64_t left_ms = deadline_ms - clock_ms();
		int n = poll(fds, ARRAY_SIZE(fds), (int)MAX(MIN(left_ms, 60000), 0));

		if (n < 0 && errno != EINTR)
			return error_set(err, ERROR_TRANSPORT, "poll: %s", strerror(errno));
		if (n > 0 && fds[1].revents)
			return error_set(err, ERROR_TRANSPORT, "interrupted");
		if (n > 0)
			return true;
		if (n == 0 && left_ms <= 0)
			return error_set(err, ERROR_TRANSPORT, "no answer in time");
	}
}

static void set_options(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

static bool finish(int fd, int interrupt_fd, int64_t deadline_ms, struct error *err)
{
	int failure = 0;
	socklen_t size = sizeof(failure);

	if (!tcp_wait(fd, POLLOUT, interrupt_fd, deadline_ms, err))
		return false;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
	return failure == 0 || error_set(err, ERROR_TRANSPORT, "%s", strerror(failure));
}

static bool connect_one(const struct addrinfo *to, int interrupt_fd, int64_t deadline_ms, int *ret, struct error *err)
{
	int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, to->ai_protocol);
	bool connected;

	if (fd < 0)
		return error_set(err, ERROR_TRANSPORT, "%s", strerror(errno));
	set_options(fd);
	if (connect(fd, to->ai_addr, to->ai_addrlen) == 0)
		connected = true;
	else if (errno == EINPROGRESS)
		connected = finish(fd, interrupt_fd, deadline_ms, err);
	else
		connected = error_set(err, ERROR_TRANSPORT, "%s", strerror(errno));
	if (connected)
		*ret = fd;
	else
		close(fd);
	return connected;
}

bool tcp_connect(const struct tcp_address *a, int interrupt_fd, int64_t deadline_ms, int *ret, struct error *err)
{
	struct addrinfo wanted = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found = NULL;
	int failure = getaddrinfo(a->host, a->port, &wanted, &found);
	bool connected = false;

	if (failure)
		return error_set(err, ERROR_TRANSPORT, "could not resolve %s: %s", a->host, gai_strerror(failure));
	for (const struct addrinfo *to = found; to && !connected && clock_ms() < deadline_ms; to = to->ai_next)
		connected = connect_one(to, interrupt_fd, deadline_ms, ret, err);
	freeaddrinfo(found);
	return connected || error_prefix(err, "could not connect to %s:%s", a->host, a->port);
}
