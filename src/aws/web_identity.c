/* A role that is assumed with a token, as Kubernetes gives one to a service account (IRSA): STS exchanges it for temporary
 * credentials. This call alone is not signed, because it is how we come to have something to sign with. */
#include <stdio.h>
#include <string.h>

#include "aws/credentials.h"
#include "aws/endpoint.h"
#include "aws/fetch.h"
#include "base/mem.h"
#include "config/secret.h"

enum { CONNECT_MS = 5000, ANSWER_MS = 15000, BODY_CEILING = 128 * 1024 };

static bool is_meant(_unused_ const struct aws_sources *s)
{
	return aws_variable("AWS_WEB_IDENTITY_TOKEN_FILE") && aws_variable("AWS_ROLE_ARN");
}

static void add_field(struct buf *b, const char *name, const char *value)
{
	buf_printf(b, "%s%s=", b->len > 0 ? "&" : "", name);
	buf_add_percent_encoded(b, slice_of(value));
}

static void add_form(struct buf *b, const char *token)
{
	const char *session = aws_variable("AWS_ROLE_SESSION_NAME");

	add_field(b, "Action", "AssumeRoleWithWebIdentity");
	add_field(b, "Version", "2011-06-15");
	add_field(b, "RoleArn", aws_variable("AWS_ROLE_ARN"));
	add_field(b, "RoleSessionName", session ? session : "postrider");
	add_field(b, "WebIdentityToken", token);
}

/* What stands between <name> and </name>, or NULL. The answer is XML without anything that would need a parser. */
static char *element(const struct buf *body, const char *name)
{
	_cleanup_(mem_freep) char *open = mem_printf("<%s>", name), *close = mem_printf("</%s>", name);
	const char *from = strstr(buf_str(body), open), *to;

	if (!from)
		return NULL;
	from += strlen(open);
	to = strstr(from, close);
	return to ? mem_strndup(from, (size_t)(to - from)) : NULL;
}

static bool take_answer(int status, const struct buf *body, struct aws_credentials *ret, struct error *err)
{
	_cleanup_(aws_credentials_release) struct aws_credentials c = {
		element(body, "AccessKeyId"), element(body, "SecretAccessKey"), element(body, "SessionToken"), AWS_NEVER
	};
	_cleanup_(mem_freep) char *expiration = element(body, "Expiration"), *code = element(body, "Code");

	if (status != 200 || !c.key_id || !c.secret) {
		error_set(err, status >= 500 || status == 429 ? ERROR_TRANSPORT : ERROR_AUTH, "STS answers with status %d%s%.100s",
			  status, code ? ": " : "", code ? code : "");
		return error_hint(err, "check AWS_ROLE_ARN, and that the role trusts the service account");
	}
	c.expires_at = expiration ? aws_expiration(expiration) : AWS_NEVER;
	*ret = c;
	c = (struct aws_credentials){ 0 };
	return true;
}

static bool load(const struct aws_sources *s, int interrupt_fd, struct aws_credentials *ret, struct error *err)
{
	_cleanup_(buf_release) struct buf form = { .ceiling = BODY_CEILING }, body = { .ceiling = HTTP_BODY_KEPT };
	const char *header = "Content-Type: application/x-www-form-urlencoded";
	const char *override = aws_variable("AWS_ENDPOINT_URL_STS");
	_cleanup_(mem_freep) char *url = override ? mem_strdup(override) : aws_service_url("sts", s->region);
	_cleanup_(mem_freep) char *token = NULL;
	struct http_options options = {
		.user_agent = "postrider/" POSTRIDER_VERSION,
		.connect_timeout_ms = CONNECT_MS,
		.request_timeout_ms = ANSWER_MS,
	};
	int status;

	if (!config_read_secret(aws_variable("AWS_WEB_IDENTITY_TOKEN_FILE"), &token, err))
		return false;
	add_form(&form, token);
	return aws_fetch(&options,
			 &(struct http_request){ .url = url, .headers = &header, .n_headers = 1,
						 .body = { buf_str(&form), form.len } },
			 interrupt_fd, &status, &body, err) &&
	       take_answer(status, &body, ret, err);
}

const struct aws_source aws_web_identity = { "web identity", is_meant, load };
