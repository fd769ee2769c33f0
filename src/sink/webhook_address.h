/* Which addresses a webhook may go to: what a name of the outside world can lead to, and nothing inside. */
#ifndef POSTRIDER_SINK_WEBHOOK_ADDRESS_H
#define POSTRIDER_SINK_WEBHOOK_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

/* False for loopback, private, link-local and reserved ranges, metadata services of clouds, and for IPv6 that carries such
 * an address of IPv4. */
bool address_is_public(const struct sockaddr *address);

#endif
