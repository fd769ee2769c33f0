#include "sink/webhook_conf.h"

#include <curl/curl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sink/http_errors.h"
#include "sink/loopback.h"
#include "sink/webhook_address.h"
#include "sink/webhook_keys.h"
#include "sink/webhook_request.h"

static const char shape[] = "write url as https://host/path; {topic} may stand in the path or behind a question mark";

/* --- settings --------------------------------------------------------------------------------------------------- */

struct parts {
	char *scheme, *host, *user;
};

static void parts_release(struct parts *p)
{
	curl_free(p->scheme);
	curl_free(p->host);
	curl_free(p->user);
}

static bool read_parts(const char *url, struct parts *ret)
{
	CURLU *u = curl_url();
	bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
		  curl_url_get(u, CURLUPART_SCHEME, &ret->scheme, 0) == CURLUE_OK &&
		  curl_url_get(u, CURLUPART_HOST, &ret->host, 0) == CURLUE_OK;

	if (ok)
		curl_url_get(u, CURLUPART_USER, &ret->user, 0);
	curl_url_cleanup(u);
	return ok;
}

/* IPv6 stands in brackets. */
static bool is_loopback(const char *host)
{
	return host_is_loopback(host) || strcmp(host, "[::1]") == 0;
}

/* Nothing of a URL is repeated in messages, because all of it may be secret. */
static bool check_parts(const struct sink_config *sink, const struct parts *p, struct error *err)
{
	const struct webhook_config *c = &sink->webhook;

	if (p->user) {
		error_set(err, ERROR_CONFIG, "%s: url has a user or a password in it", sink->where);
		return error_hint(err, "write a file with `Basic …` or `Bearer …` in it, and name it in authorization_file");
	}
	if (strchr(p->host, '{') || strchr(p->host, '}')) {
		error_set(err, ERROR_CONFIG, "%s: the host of url cannot differ by topic", sink->where);
		return error_hint(err, "%s", shape);
	}
	if (strcmp(p->scheme, "https") == 0 || c->allow_http || (c->allow_private && is_loopback(p->host)))
		return true;
	error_set(err, ERROR_CONFIG, "%s: url is plain text: everybody on the way could read and change what is sent", sink->where);
	return error_hint(err, "use https://, or set allow_http to true");
}

static bool check_url(const struct sink_config *sink, struct error *err)
{
	_cleanup_(parts_release) struct parts p = { 0 };
	const char *url = sink->webhook.url;

	if ((strncmp(url, "https://", 8) == 0 || strncmp(url, "http://", 7) == 0) && read_parts(url, &p))
		return check_parts(sink, &p, err);
	error_set(err, ERROR_CONFIG, "%s: url is not a URL of HTTP", sink->where);
	return error_hint(err, "%s", shape);
}

static bool check_headers(const struct sink_config *sink, struct error *err)
{
	const char *type = sink->webhook.content_type;

	if (!webhook_is_name(slice_of(sink->webhook.header_prefix)))
		return error_set(err, ERROR_CONFIG, "%s: header_prefix is not how a header of HTTP can begin", sink->where);
	for (; *type; type++)
		if (*type < ' ' || *type > '~')
			return error_set(err, ERROR_CONFIG, "%s: content_type must be printable ASCII", sink->where);
	return true;
}

static bool check_secrets(const struct sink_config *sink, struct error *err)
{
	struct webhook_keys keys;
	bool ok;

	webhook_keys_init(&keys, &sink->webhook);
	ok = webhook_keys_look(&keys, clock_ms(), err);
	webhook_keys_release(&keys);
	return ok || error_prefix(err, "%s", sink->where);
}

static void ignore(void *tag _unused_, const struct http_answer *answer _unused_)
{
}

static bool check_files(const struct sink_config *sink, struct error *err)
{
	struct http_options options = webhook_conf_http(sink);
	struct http *http;

	if (!http_new(&options, ignore, &http, err))
		return error_prefix(err, "%s", sink->where);
	http_free(http);
	return true;
}

bool webhook_conf_check(const struct sink_config *sink, struct error *err)
{
	return check_url(sink, err) && check_headers(sink, err) && check_secrets(sink, err) && check_files(sink, err);
}

static bool is_public(const struct sockaddr *address, void *data _unused_)
{
	return address_is_public(address);
}

struct http_options webhook_conf_http(const struct sink_config *sink)
{
	const struct webhook_config *c = &sink->webhook;

	return (struct http_options){
		.connect_timeout_ms = c->connect_timeout_ms,
		.request_timeout_ms = c->answer_timeout_ms,
		.per_host = (uint32_t)c->concurrency,
		.ca_file = c->tls_ca_file,
		.cert_file = c->tls_cert_file,
		.key_file = c->tls_key_file,
		.address_allowed = c->allow_private ? NULL : is_public,
	};
}

/* --- check ------------------------------------------------------------------------------------------------------ */

static void keep_why(void *tag, const struct http_answer *answer)
{
	*(struct error *)tag = answer->why;
}

static void wait_for(struct http *http)
{
	while (http_under_way(http) > 0) {
		int64_t deadline_ms;
		struct pollfd fd;

		fd.fd = http_pollfd(http, &fd.events, &deadline_ms);
		poll(&fd, 1, (int)MAX(MIN(deadline_ms - clock_ms(), 1000), 0));
		http_pump(http, clock_ms());
	}
}

/* Whatever the topic, it is the same host. */
static void try_to_connect(struct http *http, const struct webhook_config *c, struct error *ret)
{
	_cleanup_(mem_freep) char *url = NULL;
	char origin[300];

	http_origin(c->url, origin, sizeof(origin));
	url = mem_printf("%s/", origin);
	if (http_start(http, &(struct http_request){ .url = url, .connect_only = true }, ret, ret))
		wait_for(http);
}

void webhook_check(const struct sink_config *sink, struct finding_list *findings)
{
	struct http_options options = webhook_conf_http(sink);
	struct error err = { 0 };
	struct http *http;
	char origin[300];

	if (http_new(&options, keep_why, &http, &err)) {
		try_to_connect(http, &sink->webhook, &err);
		http_free(http);
	}
	http_origin(sink->webhook.url, origin, sizeof(origin));
	if (err.kind == ERROR_NONE) {
		finding_add(findings, FINDING_OK, NULL, "sink %s: %s can be connected to; nothing was sent", sink->name, origin);
		return;
	}
	error_prefix(&err, "sink %s", sink->name);
	finding_add_error(findings, &err);
}
