/* Hosts that need no TLS unless it is asked for. */
#ifndef POSTRIDER_SINK_LOOPBACK_H
#define POSTRIDER_SINK_LOOPBACK_H

#include <stdbool.h>
#include <string.h>

/* 127.0.0.0/8 in digits, not a name that begins so. */
static inline bool host_is_loopback(const char *host)
{
	return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
	       (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == strlen(host));
}

#endif
