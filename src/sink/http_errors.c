#include "sink/http_errors.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"

static const char authorities[] = "check tls_ca_file: the server's certificate must verify for its host name";
static const char our_files[] = "check tls_ca_file, tls_cert_file and tls_key_file";

/* What is not here is an outage. */
static const struct {
	CURLcode code;
	enum error_kind kind;
	const char *hint;
} codes[] = {
	{ CURLE_URL_MALFORMAT, ERROR_CONFIG, "check the URL" },
	{ CURLE_UNSUPPORTED_PROTOCOL, ERROR_TRANSPORT, "does the server speak HTTP at this port?" },
	{ CURLE_COULDNT_RESOLVE_HOST, ERROR_TRANSPORT, "check the host name, and whether names are resolved here" },
	{ CURLE_SSL_CONNECT_ERROR, ERROR_TRANSPORT, "does the server speak TLS at this port?" },
	{ CURLE_PEER_FAILED_VERIFICATION, ERROR_AUTH, authorities },
	{ CURLE_SSL_ISSUER_ERROR, ERROR_AUTH, authorities },
	{ CURLE_SSL_CERTPROBLEM, ERROR_CONFIG, our_files },
	{ CURLE_SSL_CACERT_BADFILE, ERROR_CONFIG, our_files },
	{ CURLE_SSL_CLIENTCERT, ERROR_AUTH, "the server asks for a certificate of ours: set tls_cert_file and tls_key_file" },
};

void http_origin(const char *url, char *ret, size_t room)
{
	char *scheme = NULL, *host = NULL, *port = NULL;
	CURLU *parts = curl_url();

	ret[0] = '\0';
	if (parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
	    curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
	    curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
		curl_url_get(parts, CURLUPART_PORT, &port, 0);
		snprintf(ret, room, "%s://%s%s%s", scheme, host, port ? ":" : "", port ? port : "");
	}
	curl_free(scheme);
	curl_free(host);
	curl_free(port);
	curl_url_cleanup(parts);
}

static size_t find(CURLcode code)
{
	size_t i = 0;

	while (i < ARRAY_SIZE(codes) && codes[i].code != code)
		i++;
	return i;
}

bool http_error_set(struct error *err, CURLcode code, const char *detail, const char *url)
{
	size_t i = find(code);
	char origin[300];

	http_origin(url, origin, sizeof(origin));
	error_set(err, i < ARRAY_SIZE(codes) ? codes[i].kind : ERROR_TRANSPORT, "no answer from %s: %s",
		  origin[0] ? origin : "a URL that cannot be read", detail[0] ? detail : curl_easy_strerror(code));
	if (i < ARRAY_SIZE(codes) && codes[i].hint)
		error_hint(err, "%s", codes[i].hint);
	return false;
}

bool http_error_refused(struct error *err, const char *url)
{
	char origin[300];

	http_origin(url, origin, sizeof(origin));
	error_set(err, ERROR_CONFIG, "%s leads to a private, local or reserved address, where requests may not go", origin);
	return error_hint(err, "set allow_private to true if it is meant");
}
