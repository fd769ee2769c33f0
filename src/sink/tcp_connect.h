/* A TCP connection to `host:port`, for threads that may wait: name resolution can only block. */
#ifndef POSTRIDER_SINK_TCP_CONNECT_H
#define POSTRIDER_SINK_TCP_CONNECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* An address as settings have it: `host:port`, an IPv6 host in brackets. */
struct tcp_address {
	char host[256];
	char port[8];
};

/* False with ERROR_CONFIG; the message completes "address …". */
bool tcp_address_parse(const char *text, struct tcp_address *ret, struct error *err);
/* Does it stay on this machine? A name other than localhost may lead anywhere. */
bool tcp_address_is_loopback(const struct tcp_address *a);

/* Tries each of the addresses that the name has until `deadline_ms`, or until `interrupt_fd` (-1: none) is readable. The
 * socket does not block, and the caller closes it. Failure is ERROR_TRANSPORT and names host and port. */
bool tcp_connect(const struct tcp_address *a, int interrupt_fd, int64_t deadline_ms, int *ret, struct error *err);
/* Waits for `events` on `fd` in the same way. False with ERROR_TRANSPORT when they do not come. */
bool tcp_wait(int fd, short events, int interrupt_fd, int64_t deadline_ms, struct error *err);

#endif
