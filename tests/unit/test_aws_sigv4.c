/* Requests and signatures of the test suite that AWS has published for Signature Version 4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "aws/sigv4.h"

#define TIME "20150830T123600Z"
#define TOKEN                                                                                                             \
	"AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7"   \
	"mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+" \
	"xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
#define HOST { "host", "example.amazonaws.com" }
#define DATE { "x-amz-date", TIME }
#define CREDENTIAL "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "

static const struct {
	const char *name, *method;
	struct sigv4_header headers[4];
	uint32_t n_headers;
	const char *body;
	const char *authorization;
} vectors[] = {
	{ "get-vanilla", "GET", { HOST, DATE }, 2, "",
	  CREDENTIAL "SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31" },
	{ "post-vanilla", "POST", { HOST, DATE }, 2, "",
	  CREDENTIAL "SignedHeaders=host;x-amz-date, Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b" },
	{ "post-header-value-case", "POST", { HOST, { "my-header1", "VALUE1" }, DATE }, 3, "",
	  CREDENTIAL "SignedHeaders=host;my-header1;x-amz-date, "
		     "Signature=cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d" },
	{ "post-sts-header-before", "POST", { HOST, DATE, { "x-amz-security-token", TOKEN } }, 3, "",
	  CREDENTIAL "SignedHeaders=host;x-amz-date;x-amz-security-token, "
		     "Signature=85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead" },
	{ "post-x-www-form-urlencoded", "POST", { { "content-type", "application/x-www-form-urlencoded" }, HOST, DATE }, 3,
	  "Param1=value1",
	  CREDENTIAL "SignedHeaders=content-type;host;x-amz-date, "
		     "Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a" },
};

static void signatures_are_those_that_aws_has_published(void **state)
{
	struct sigv4_signer signer = { "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1", "service" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		_cleanup_(buf_release) struct buf b = { .ceiling = 4096 };
		struct sigv4_request request = { vectors[i].method, vectors[i].headers, vectors[i].n_headers,
						 slice_of(vectors[i].body) };

		print_message("%s\n", vectors[i].name);
		buf_add_sigv4(&b, &signer, &request, TIME);
		assert_string_equal(buf_str(&b), vectors[i].authorization);
	}
}

static void times_are_written_in_utc(void **state)
{
	char text[SIGV4_TIME_BYTES];

	(void)state;
	sigv4_time(1440938160, text);
	assert_string_equal(text, TIME);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(signatures_are_those_that_aws_has_published),
		cmocka_unit_test(times_are_written_in_utc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
