#include "aws/endpoint.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "aws/credentials.h"
#include "base/mem.h"
#include "sink/loopback.h"

char *aws_service_url(const char *service, const char *region)
{
	return mem_printf("https://%s.%s.amazonaws.com%s", service, region, strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
}

const char *aws_region(const char *setting)
{
	const char *region = setting[0] ? setting : aws_variable("AWS_REGION");

	return region ? region : aws_variable("AWS_DEFAULT_REGION");
}

/* Behind the scheme, or NULL where it is none that we speak. */
static const char *behind_scheme(const char *url, bool *ret_tls)
{
	*ret_tls = strncasecmp(url, "https://", 8) == 0;
	if (*ret_tls)
		return url + 8;
	return strncasecmp(url, "http://", 7) == 0 ? url + 7 : NULL;
}

/* libcurl leaves out a port that goes without saying, and what is signed must be what is sent. */
static char *host_header(const char *authority, size_t len, bool tls)
{
	const char *usual = tls ? ":443" : ":80";
	size_t tail = strlen(usual);

	if (len > tail && memcmp(authority + len - tail, usual, tail) == 0)
		len -= tail;
	return mem_strndup(authority, len);
}

static bool is_loopback(const char *host_and_port)
{
	_cleanup_(mem_freep) char *host = mem_strdup(host_and_port + (host_and_port[0] == '['));

	host[strcspn(host, host_and_port[0] == '[' ? "]" : ":")] = '\0';
	return host_is_loopback(host);
}

bool aws_endpoint_read(const char *url, enum sink_tls tls, const char *service, const char *region, struct aws_endpoint *ret,
		       struct error *err)
{
	_cleanup_(mem_freep) char *whole = url[0] ? mem_strdup(url) : aws_service_url(service, region), *host = NULL;
	bool secure;
	const char *authority = behind_scheme(whole, &secure);
	size_t len = authority ? strcspn(authority, "/?#@") : 0;

	if (len == 0 || strcmp(authority + len, authority[len] == '/' ? "/" : "") != 0) {
		error_set(err, ERROR_CONFIG, "endpoint is not the address of a server");
		return error_hint(err, "write it as https://host or https://host:port, without a path");
	}
	host = host_header(authority, len, secure);
	if (!secure && tls != SINK_TLS_OFF && (tls == SINK_TLS_ON || !is_loopback(host))) {
		error_set(err, ERROR_CONFIG, "endpoint %s would be spoken to in plain text", whole);
		return error_hint(err, "write https://, or set tls: off");
	}
	*ret = (struct aws_endpoint){
		.url = mem_printf("%.*s/", (int)(authority + len - whole), whole),
		.host = TAKE_PTR(host),
		.service = service,
		.region = region,
	};
	return true;
}

void aws_endpoint_release(struct aws_endpoint *e)
{
	free(e->url);
	free(e->host);
	*e = (struct aws_endpoint){ 0 };
}
