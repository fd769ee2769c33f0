#include "sink/webhook_address.h"

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>

#include "base/macros.h"

/* IANA's registry of special-purpose addresses, and one service that lives outside of it. */
static const struct {
	uint8_t net[4];
	unsigned bits;
} inside4[] = {
	{ { 0 }, 8 },                   /* this network */
	{ { 10 }, 8 },                  /* private */
	{ { 100, 64 }, 10 },            /* shared by providers; a metadata service, too */
	{ { 127 }, 8 },                 /* loopback */
	{ { 168, 63, 129, 16 }, 32 },   /* a platform's service for its machines */
	{ { 169, 254 }, 16 },           /* link-local; metadata services */
	{ { 172, 16 }, 12 },            /* private */
	{ { 192, 0, 0 }, 24 },          /* protocols; a metadata service, too */
	{ { 192, 0, 2 }, 24 },          /* for examples */
	{ { 192, 88, 99 }, 24 },        /* relays of 6to4 */
	{ { 192, 168 }, 16 },           /* private */
	{ { 198, 18 }, 15 },            /* for benchmarks */
	{ { 198, 51, 100 }, 24 },       /* for examples */
	{ { 203, 0, 113 }, 24 },        /* for examples */
	{ { 224 }, 3 },                 /* multicast, reserved, broadcast */
};

static const struct {
	uint8_t net[16];
	unsigned bits;
} inside6[] = {
	{ { 0 }, 8 },                                   /* loopback, none, and old ways to carry IPv4 */
	{ { 0x01 }, 8 },                                /* discarded */
	{ { 0x20, 0x01, 0x00, 0x00 }, 23 },             /* protocols: Teredo carries IPv4 as well */
	{ { 0x20, 0x01, 0x0d, 0xb8 }, 32 },             /* for examples */
	{ { 0x20, 0x02 }, 16 },                         /* 6to4 */
	{ { 0x3f, 0xff }, 20 },                         /* for examples */
	{ { 0xfc }, 7 },                                /* private; a metadata service, too */
	{ { 0xfe }, 7 },                                /* link-local, site-local, multicast */
};

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };         /* ::ffff:0:0/96 */
static const uint8_t translated[12] = { 0x00, 0x64, 0xff, 0x9b };       /* 64:ff9b::/96 */

static bool is_in(const uint8_t *address, const uint8_t *net, unsigned bits)
{
	unsigned bytes = bits / 8, rest = bits % 8;

	return memcmp(address, net, bytes) == 0 && (rest == 0 || (address[bytes] ^ net[bytes]) >> (8 - rest) == 0);
}

static bool is_public4(const uint8_t *address)
{
	for (size_t i = 0; i < ARRAY_SIZE(inside4); i++)
		if (is_in(address, inside4[i].net, inside4[i].bits))
			return false;
	return true;
}

static bool is_public6(const uint8_t *address)
{
	if (is_in(address, mapped, 96) || is_in(address, translated, 96))
		return is_public4(address + 12);
	for (size_t i = 0; i < ARRAY_SIZE(inside6); i++)
		if (is_in(address, inside6[i].net, inside6[i].bits))
			return false;
	return true;
}

bool address_is_public(const struct sockaddr *address)
{
	uint8_t bytes[16];

	if (address->sa_family == AF_INET) {
		memcpy(bytes, &((const struct sockaddr_in *)address)->sin_addr, 4);
		return is_public4(bytes);
	}
	if (address->sa_family == AF_INET6) {
		memcpy(bytes, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
		return is_public6(bytes);
	}
	return false;
}
