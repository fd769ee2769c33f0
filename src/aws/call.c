#include "aws/call.h"

#include <stdlib.h>
#include <string.h>

#include "aws/members.h"
#include "aws/sigv4.h"
#include "base/mem.h"

#define CONTENT_TYPE "application/x-amz-json-1.0"

/* Those that are signed, in order of their names. The token of temporary credentials is one of them. */
static uint32_t list_signed(struct sigv4_header headers[], const struct aws_endpoint *endpoint,
			    const struct aws_credentials *credentials, const char *target, const char *time)
{
	uint32_t n = 0;

	headers[n++] = (struct sigv4_header){ "content-type", CONTENT_TYPE };
	headers[n++] = (struct sigv4_header){ "host", endpoint->host };
	headers[n++] = (struct sigv4_header){ "x-amz-date", time };
	if (credentials->token)
		headers[n++] = (struct sigv4_header){ "x-amz-security-token", credentials->token };
	headers[n++] = (struct sigv4_header){ "x-amz-target", target };
	return n;
}

void aws_call_init(struct aws_call *c, const struct aws_endpoint *endpoint, const struct aws_credentials *credentials,
		   const char *target, struct slice body, int64_t unix_seconds)
{
	_cleanup_(buf_release) struct buf authorization = { .ceiling = HTTP_BODY_KEPT };
	struct sigv4_signer signer = { credentials->key_id, credentials->secret, endpoint->region, endpoint->service };
	struct sigv4_header headers[AWS_CALL_HEADERS];
	char time[SIGV4_TIME_BYTES];
	uint32_t n;

	sigv4_time(unix_seconds, time);
	n = list_signed(headers, endpoint, credentials, target, time);
	buf_add_sigv4(&authorization, &signer, &(struct sigv4_request){ "POST", headers, n, body }, time);

	*c = (struct aws_call){ .request = { .url = endpoint->url, .n_headers = n + 1, .body = body } };
	c->request.headers = (const char *const *)c->headers;
	for (uint32_t i = 0; i < n; i++)
		c->headers[i] = mem_printf("%s: %s", headers[i].name, headers[i].value);
	c->headers[n] = mem_printf("authorization: %s", buf_str(&authorization));
}

void aws_call_release(struct aws_call *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(c->headers); i++)
		free(c->headers[i]);
	*c = (struct aws_call){ 0 };
}

void aws_refusal_trim(struct aws_refusal *r)
{
	static const char query_protocol[] = "AWS.SimpleQueueService.";
	const char *shape = strrchr(r->code, '#');
	size_t skip = shape ? (size_t)(shape + 1 - r->code) : 0;

	if (strncmp(r->code + skip, query_protocol, sizeof(query_protocol) - 1) == 0)
		skip += sizeof(query_protocol) - 1;
	memmove(r->code, r->code + skip, sizeof(r->code) - skip);
}

void aws_refusal_read(struct slice body, struct aws_refusal *ret)
{
	char lower[sizeof(ret->message)] = "", upper[sizeof(ret->message)] = "";
	const struct aws_member members[] = {
		AWS_MEMBER("__type", ret->code),
		AWS_MEMBER("message", lower),
		AWS_MEMBER("Message", upper),
	};

	*ret = (struct aws_refusal){ 0 };
	if (!body.ptr || !aws_members_read(body, members, ARRAY_SIZE(members))) {
		*ret = (struct aws_refusal){ 0 };
		return;
	}
	memcpy(ret->message, lower[0] ? lower : upper, sizeof(ret->message));
	aws_refusal_trim(ret);
}
