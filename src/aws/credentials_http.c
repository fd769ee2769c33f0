/* Temporary credentials that somebody near us gives out: the agent of a container (ECS, EKS), the metadata service of an
 * instance (EC2, version 2 only, which wants a token for each question). */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "aws/credentials.h"
#include "aws/fetch.h"
#include "aws/members.h"
#include "base/mem.h"
#include "config/secret.h"
#include "sink/loopback.h"

#define CONTAINER_ADDRESS "http://169.254.170.2"
#define INSTANCE_ADDRESS "http://169.254.169.254"

/* They are on this machine, or next to it. */
enum { CONNECT_MS = 1000, ANSWER_MS = 5000, FIELD_BYTES = 4096 };

static bool ask(const struct http_request *request, int interrupt_fd, struct buf *ret, struct error *err)
{
	struct http_options options = {
		.user_agent = "postrider/" POSTRIDER_VERSION,
		.connect_timeout_ms = CONNECT_MS,
		.request_timeout_ms = ANSWER_MS,
	};
	int status;

	buf_clear(ret);
	if (!aws_fetch(&options, request, interrupt_fd, &status, ret, err))
		return false;
	if (status == 200)
		return true;
	return error_set(err, status >= 500 || status == 429 ? ERROR_TRANSPORT : ERROR_AUTH, "it answers with status %d", status);
}

/* Container and instance answer with the same members. */
static bool read_credentials(const struct buf *body, struct aws_credentials *ret, struct error *err)
{
	char key_id[256], secret[FIELD_BYTES], token[FIELD_BYTES], expiration[64];
	const struct aws_member members[] = {
		AWS_MEMBER("AccessKeyId", key_id),
		AWS_MEMBER("SecretAccessKey", secret),
		AWS_MEMBER("Token", token),
		AWS_MEMBER("Expiration", expiration),
	};
	bool ok = aws_members_read((struct slice){ buf_str(body), body->len }, members, ARRAY_SIZE(members)) && key_id[0] &&
		  secret[0];

	if (ok)
		*ret = (struct aws_credentials){ mem_strdup(key_id), mem_strdup(secret), token[0] ? mem_strdup(token) : NULL,
						 aws_expiration(expiration) };
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(token, sizeof(token));
	return ok || error_set(err, ERROR_AUTH, "it gives no key");
}

/* --- container ------------------------------------------------------------------------------------------------ */

static bool container_is_meant(_unused_ const struct aws_sources *s)
{
	return aws_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") || aws_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

/* In plain text only to this machine, or to where ECS and EKS have their agents. */
static bool is_trusted(const char *url)
{
	static const char *const agents[] = { "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "[::1]" };
	char host[256];

	if (strncasecmp(url, "https://", 8) == 0)
		return true;
	if (sscanf(url, "http://%255[^/]", host) != 1)
		return false;
	if (host[0] == '[')
		host[strcspn(host, "]") + 1] = '\0';
	else
		host[strcspn(host, ":")] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(agents); i++)
		if (strcmp(host, agents[i]) == 0)
			return true;
	return host_is_loopback(host);
}

static bool container_url(char **ret, struct error *err)
{
	const char *relative = aws_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = aws_variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");

	if (relative) {
		*ret = mem_printf(CONTAINER_ADDRESS "%s", relative);
		return true;
	}
	if (!is_trusted(full))
		return error_set(err, ERROR_CONFIG, "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor on this machine");
	*ret = mem_strdup(full);
	return true;
}

/* "Authorization: …", or NULL where nobody asks for one. */
static bool container_token(char **ret, struct error *err)
{
	const char *file = aws_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *token = aws_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	_cleanup_(mem_freep) char *content = NULL;

	*ret = NULL;
	if (file && !config_read_secret(file, &content, err))
		return false;
	if (file || token)
		*ret = mem_printf("Authorization: %s", file ? content : token);
	return true;
}

static bool load_container(_unused_ const struct aws_sources *s, int interrupt_fd, struct aws_credentials *ret,
			   struct error *err)
{
	_cleanup_(buf_release) struct buf body = { .ceiling = HTTP_BODY_KEPT };
	_cleanup_(mem_freep) char *url = NULL, *token = NULL;
	struct http_request request = { .method = "GET" };

	if (!container_url(&url, err) || !container_token(&token, err))
		return false;
	request.url = url;
	request.headers = (const char *const *)&token;
	request.n_headers = token ? 1 : 0;
	return ask(&request, interrupt_fd, &body, err) && read_credentials(&body, ret, err);
}

/* --- instance ------------------------------------------------------------------------------------------------- */

static bool instance_is_meant(_unused_ const struct aws_sources *s)
{
	const char *disabled = aws_variable("AWS_EC2_METADATA_DISABLED");

	return !disabled || strcasecmp(disabled, "true") != 0;
}

static bool ask_instance(const char *method, const char *header, const char *path, int interrupt_fd, struct buf *ret,
			 struct error *err)
{
	const char *base = aws_variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	_cleanup_(mem_freep) char *url = NULL;
	struct http_request request = { .method = method, .headers = &header, .n_headers = 1 };

	base = base ? base : INSTANCE_ADDRESS;
	url = mem_printf("%.*s/latest/%s", (int)(strlen(base) - (base[strlen(base) - 1] == '/')), base, path);
	request.url = url;
	return ask(&request, interrupt_fd, ret, err);
}

/* A role's name is one line; whatever stands in it is not to lead elsewhere. */
static bool take_role(const struct buf *body, char ret[128], struct error *err)
{
	if (sscanf(buf_str(body), "%127[A-Za-z0-9+=,.@_-]", ret) == 1)
		return true;
	error_set(err, ERROR_AUTH, "the instance has no role");
	return error_hint(err, "attach an instance profile to it, or set access_key_id and secret_access_key_file");
}

static bool load_instance(_unused_ const struct aws_sources *s, int interrupt_fd, struct aws_credentials *ret,
			  struct error *err)
{
	_cleanup_(buf_release) struct buf body = { .ceiling = HTTP_BODY_KEPT };
	_cleanup_(mem_freep) char *token = NULL, *path = NULL;
	char role[128];

	if (!ask_instance("PUT", "X-aws-ec2-metadata-token-ttl-seconds: 300", "api/token", interrupt_fd, &body, err)) {
		error_hint(err, "off EC2 set access_key_id and secret_access_key_file, or AWS_ACCESS_KEY_ID and "
				"AWS_SECRET_ACCESS_KEY, or name a profile");
		return false;
	}
	token = mem_printf("X-aws-ec2-metadata-token: %s", buf_str(&body));
	if (!ask_instance("GET", token, "meta-data/iam/security-credentials/", interrupt_fd, &body, err) ||
	    !take_role(&body, role, err))
		return false;
	path = mem_printf("meta-data/iam/security-credentials/%s", role);
	return ask_instance("GET", token, path, interrupt_fd, &body, err) && read_credentials(&body, ret, err);
}

const struct aws_source aws_container = { "container", container_is_meant, load_container };
const struct aws_source aws_instance = { "instance", instance_is_meant, load_instance };
