#include "aws/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"

enum { DIGEST_BYTES = 32, DAY_CHARS = 8, TEXT_CEILING = 64 * 1024 };

struct digest {
	unsigned char bytes[DIGEST_BYTES];
};

void sigv4_time(int64_t unix_seconds, char ret[SIGV4_TIME_BYTES])
{
	time_t t = (time_t)unix_seconds;
	struct tm utc;

	gmtime_r(&t, &utc);
	strftime(ret, SIGV4_TIME_BYTES, "%Y%m%dT%H%M%SZ", &utc);
}

static struct digest sha256(struct slice s)
{
	struct digest d;

	mem_must(EVP_Digest(s.ptr ? s.ptr : "", s.len, d.bytes, NULL, EVP_sha256(), NULL));
	return d;
}

static struct digest hmac(struct slice key, struct slice text)
{
	struct digest d;

	mem_must(HMAC(EVP_sha256(), key.ptr, (int)key.len, (const unsigned char *)text.ptr, text.len, d.bytes, NULL));
	return d;
}

static struct slice digest_slice(const struct digest *d)
{
	return (struct slice){ (const char *)d->bytes, sizeof(d->bytes) };
}

static struct slice buf_slice(const struct buf *b)
{
	return (struct slice){ buf_str(b), b->len };
}

static void add_hex(struct buf *b, struct digest d)
{
	for (size_t i = 0; i < sizeof(d.bytes); i++)
		buf_printf(b, "%02x", d.bytes[i]);
}

static void add_names(struct buf *b, const struct sigv4_request *request)
{
	for (uint32_t i = 0; i < request->n_headers; i++)
		buf_printf(b, "%s%s", i > 0 ? ";" : "", request->headers[i].name);
}

static void add_scope(struct buf *b, const struct sigv4_signer *signer, const char *time)
{
	buf_printf(b, "%.*s/%s/%s/aws4_request", DAY_CHARS, time, signer->region, signer->service);
}

/* The request in the one form that both sides agree on. */
static struct digest canonical_request(const struct sigv4_request *request)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = TEXT_CEILING };

	buf_printf(&b, "%s\n/\n\n", request->method);
	for (uint32_t i = 0; i < request->n_headers; i++)
		buf_printf(&b, "%s:%s\n", request->headers[i].name, request->headers[i].value);
	buf_add_char(&b, '\n');
	add_names(&b, request);
	buf_add_char(&b, '\n');
	add_hex(&b, sha256(request->body));
	return sha256(buf_slice(&b));
}

/* A key for one day, region and service. */
static struct digest signing_key(const struct sigv4_signer *signer, const char *time)
{
	_cleanup_(mem_freep) char *secret = mem_printf("AWS4%s", signer->secret);
	struct digest key = hmac(slice_of(secret), (struct slice){ time, DAY_CHARS });

	key = hmac(digest_slice(&key), slice_of(signer->region));
	key = hmac(digest_slice(&key), slice_of(signer->service));
	return hmac(digest_slice(&key), SLICE_LITERAL("aws4_request"));
}

static struct digest sign(const struct sigv4_signer *signer, const struct sigv4_request *request, const char *time)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = TEXT_CEILING };
	struct digest key = signing_key(signer, time);

	buf_printf(&b, "AWS4-HMAC-SHA256\n%s\n", time);
	add_scope(&b, signer, time);
	buf_add_char(&b, '\n');
	add_hex(&b, canonical_request(request));
	return hmac(digest_slice(&key), buf_slice(&b));
}

void buf_add_sigv4(struct buf *b, const struct sigv4_signer *signer, const struct sigv4_request *request, const char *time)
{
	buf_printf(b, "AWS4-HMAC-SHA256 Credential=%s/", signer->key_id);
	add_scope(b, signer, time);
	buf_add_str(b, ", SignedHeaders=");
	add_names(b, request);
	buf_add_str(b, ", Signature=");
	add_hex(b, sign(signer, request, time));
}
