#include "sink/http_transfer.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "sink/http_errors.h"

enum { SLOWEST_BYTES_PER_MS = 100 };    /* a large body over a slow line is not silence */

/* --- what libcurl calls ----------------------------------------------------------------------------------------- */

/* The address is the one that is connected to, whatever the name resolved to before. */
static curl_socket_t open_socket(void *data, curlsocktype purpose _unused_, struct curl_sockaddr *address)
{
	struct transfer *t = data;
	const struct http_options *o = t->options;

	if (o->address_allowed && !o->address_allowed(&address->addr, o->address_data)) {
		t->refused = true;
		return CURL_SOCKET_BAD;
	}
	t->tried = true;
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t take_header(char *line, size_t size, size_t n, void *data)
{
	static const char name[] = "retry-after:";
	struct transfer *t = data;
	size_t len = size * n, begin = sizeof(name) - 1;

	if (len < begin || strncasecmp(line, name, begin) != 0)
		return len;
	while (begin < len && (line[begin] == ' ' || line[begin] == '\t'))
		begin++;
	n = len;
	while (n > begin && (unsigned char)line[n - 1] <= ' ')
		n--;
	t->has_retry_after = n - begin < sizeof(t->retry_after);
	if (t->has_retry_after)
		memcpy(t->retry_after, line + begin, n - begin);
	t->retry_after[t->has_retry_after ? n - begin : 0] = '\0';
	return len;
}

/* Fewer than offered ends the transfer: transfer_answer knows why. */
static size_t take_body(char *bytes, size_t size, size_t n, void *data)
{
	struct transfer *t = data;
	size_t len = size * n;

	buf_add(&t->body, bytes, MIN(len, HTTP_BODY_KEPT - t->body.len));
	t->read += len;
	return t->read <= HTTP_BODY_READ ? len : 0;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static bool is_set(const char *text)
{
	return text && text[0];
}

static void add_header(struct transfer *t, const char *line)
{
	struct curl_slist *more = curl_slist_append(t->headers, line);

	mem_must(more != NULL);
	t->headers = more;
}

/* What is the same for all. The resolver's thread is left behind at a timeout instead of waited for (QUICK_EXIT). */
static void set_ours(struct transfer *t)
{
	const struct http_options *o = t->options;

	curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
	curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->detail);
	curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(t->easy, CURLOPT_QUICK_EXIT, 1L);
	curl_easy_setopt(t->easy, CURLOPT_PROXY, "");
	curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(t->easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(t->easy, CURLOPT_NOPROGRESS, 1L);
	curl_easy_setopt(t->easy, CURLOPT_USERAGENT, is_set(o->user_agent) ? o->user_agent : "postrider/" POSTRIDER_VERSION);
	curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)o->connect_timeout_ms);
	curl_easy_setopt(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(t->easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(t->easy, CURLOPT_OPENSOCKETDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
	if (is_set(o->ca_file))
		curl_easy_setopt(t->easy, CURLOPT_CAINFO, o->ca_file);
	if (is_set(o->cert_file)) {
		curl_easy_setopt(t->easy, CURLOPT_SSLCERT, o->cert_file);
		curl_easy_setopt(t->easy, CURLOPT_SSLKEY, is_set(o->key_file) ? o->key_file : o->cert_file);
	}
}

static void set_request(struct transfer *t, const struct http_request *r)
{
	bool is_get = r->method && strcmp(r->method, "GET") == 0;

	curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS,
			 (long)(t->options->request_timeout_ms + (int64_t)(r->body.len / SLOWEST_BYTES_PER_MS)));
	if (r->connect_only)
		curl_easy_setopt(t->easy, CURLOPT_CONNECT_ONLY, 1L);
	if (!is_get) {
		curl_easy_setopt(t->easy, CURLOPT_POST, 1L);
		curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body.len);
		curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, r->body.len > 0 ? r->body.ptr : "");
		if (r->method)
			curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, r->method);
	}
	for (uint32_t i = 0; i < r->n_headers; i++)
		add_header(t, r->headers[i]);
	/* A server that does not know it would cost a second for each large body. */
	add_header(t, "Expect:");
	curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
}

bool transfer_prepare(struct transfer *t, const struct http_request *request, void *tag, struct error *err)
{
	t->tag = tag;
	t->url = mem_strdup(request->url);
	t->connect_only = request->connect_only;
	set_ours(t);
	set_request(t, request);
	return curl_easy_setopt(t->easy, CURLOPT_URL, t->url) == CURLE_OK ||
	       http_error_set(err, CURLE_URL_MALFORMAT, "", t->url);
}

struct transfer *transfer_new(const struct http_options *options)
{
	struct transfer *t = mem_new(struct transfer);

	t->options = options;
	t->easy = curl_easy_init();
	mem_must(t->easy != NULL);
	buf_init(&t->body, HTTP_BODY_KEPT);
	return t;
}

static void release(struct transfer *t)
{
	curl_slist_free_all(t->headers);
	buf_release(&t->body);
	free(t->url);
}

void transfer_free(struct transfer *t)
{
	curl_easy_cleanup(t->easy);
	release(t);
	free(t);
}

void transfer_clear(struct transfer *t)
{
	curl_easy_reset(t->easy);
	release(t);
	*t = (struct transfer){ .options = t->options, .easy = t->easy };
	buf_init(&t->body, HTTP_BODY_KEPT);
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

struct transfer *transfer_of(CURL *easy)
{
	struct transfer *t;

	curl_easy_getinfo(easy, CURLINFO_PRIVATE, &t);
	return t;
}

bool transfer_has_begun(const struct transfer *t)
{
	curl_off_t connected_us = 0;

	curl_easy_getinfo(t->easy, CURLINFO_PRETRANSFER_TIME_T, &connected_us);
	return connected_us > 0;
}

struct http_answer transfer_answer(const struct transfer *t, CURLcode code)
{
	struct http_answer answer = { .body = { buf_str(&t->body), t->body.len } };
	bool cut_by_us = code == CURLE_WRITE_ERROR && t->read > HTTP_BODY_READ;
	long status = 0;

	if (t->has_retry_after)
		answer.retry_after = slice_of(t->retry_after);
	if (code == CURLE_OK || cut_by_us)
		curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	answer.status = (int)status;
	if (code == CURLE_COULDNT_CONNECT && t->refused && !t->tried)
		http_error_refused(&answer.why, t->url);
	else if (status == 0 && !(code == CURLE_OK && t->connect_only))
		http_error_set(&answer.why, code == CURLE_OK ? CURLE_WEIRD_SERVER_REPLY : code, t->detail, t->url);
	return answer;
}
