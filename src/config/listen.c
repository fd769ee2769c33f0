#include "config/listen.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PORT_MAX = 65535 };

static bool parse_port(const char *text, in_port_t *ret)
{
	size_t len = strlen(text);
	long port = len > 0 && len <= 5 && strspn(text, "0123456789") == len ? atol(text) : 0;

	*ret = htons((uint16_t)port);
	return port >= 1 && port <= PORT_MAX;
}

bool listen_parse(const char *text, struct listen_address *ret)
{
	struct listen_address a = { 0 };
	struct sockaddr_in *v4 = (struct sockaddr_in *)&a.address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a.address;
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN] = "";
	size_t len = colon ? (size_t)(colon - text) : 0;
	bool bracketed = len > 2 && text[0] == '[' && text[len - 1] == ']';
	in_port_t port;

	if (!colon || len >= sizeof(host) || !parse_port(colon + 1, &port))
		return false;
	memcpy(host, bracketed ? text + 1 : text, bracketed ? len - 2 : len);
	if (bracketed && inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = port;
		a.length = sizeof(*v6);
	} else if (!bracketed && inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = port;
		a.length = sizeof(*v4);
	} else {
		return false;
	}
	*ret = a;
	return true;
}

bool listen_is_loopback(const struct listen_address *a)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->address;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->address;

	if (a->address.ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}
