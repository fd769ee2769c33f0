/* An address to listen on, as the user writes it. */
#ifndef POSTRIDER_CONFIG_LISTEN_H
#define POSTRIDER_CONFIG_LISTEN_H

#include <stdbool.h>
#include <sys/socket.h>

struct listen_address {
	struct sockaddr_storage address;
	socklen_t length;
};

/* "127.0.0.1:9187", "[::1]:9187", "localhost:9187" (127.0.0.1). Other names are not looked up: what is reachable must not
 * depend on a name server. */
bool listen_parse(const char *text, struct listen_address *ret);
bool listen_is_loopback(const struct listen_address *a);

#endif
