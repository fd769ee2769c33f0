#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/macros.h"
#include "sink/webhook_address.h"

static bool is_public(const char *text)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
	struct sockaddr_in four = { .sin_family = AF_INET };

	if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
		return address_is_public((const struct sockaddr *)&four);
	assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
	return address_is_public((const struct sockaddr *)&six);
}

static void what_lies_inside_is_refused(void **state _unused_)
{
	static const char *const inside[] = {
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255", "127.0.0.1",
		"127.255.255.254", "168.63.129.16", "169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192",
		"192.0.2.1", "192.168.0.1", "192.168.255.255", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7",
		"224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1", "3fff::1", "fc00::1",
		"fd00:ec2::254", "fdff::1", "fe80::1", "fec0::1", "ff02::1",
	};

	for (size_t i = 0; i < ARRAY_SIZE(inside); i++)
		if (is_public(inside[i]))
			fail_msg("%s is taken for public", inside[i]);
}

static void what_lies_outside_is_not(void **state _unused_)
{
	static const char *const outside[] = {
		"1.1.1.1", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "126.255.255.255", "128.0.0.1",
		"168.63.129.17", "169.253.255.255", "169.255.0.1", "172.15.255.255", "172.32.0.1", "192.167.255.255", "192.169.0.1",
		"198.17.255.255", "198.20.0.1", "223.255.255.255",
		"::ffff:1.1.1.1", "64:ff9b::101:101", "2001:4860:4860::8888", "2606:4700::1111", "2a00::1", "2001:200::1",
	};

	for (size_t i = 0; i < ARRAY_SIZE(outside); i++)
		if (!is_public(outside[i]))
			fail_msg("%s is taken for private", outside[i]);
}

static void what_is_no_address_of_the_internet_is_refused(void **state _unused_)
{
	assert_false(address_is_public(&(struct sockaddr){ .sa_family = AF_UNIX }));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_lies_inside_is_refused),
		cmocka_unit_test(what_lies_outside_is_not),
		cmocka_unit_test(what_is_no_address_of_the_internet_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
