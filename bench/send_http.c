#include "send_http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

enum { WAIT_MS = 1000 };

static size_t ignore(char *bytes, size_t size, size_t n, void *data)
{
	(void)bytes;
	(void)data;
	return size * n;
}

void send_add_header(struct send_request *r, const char *name, const char *value)
{
	char line[256];

	snprintf(line, sizeof(line), "%s: %s", name, value);
	r->headers = curl_slist_append(r->headers, line);
}

void send_add_body(struct send_request *r, const char *bytes, size_t len)
{
	if (r->body_len + len > r->body_room) {
		r->body_room = 2 * r->body_room + len;
		r->body = realloc(r->body, r->body_room);
		if (!r->body)
			peer_die("out of memory");
	}
	memcpy(r->body + r->body_len, bytes, len);
	r->body_len += len;
}

static void prepare(struct send_request *r, const char *url)
{
	r->easy = curl_easy_init();
	if (!r->easy)
		peer_die("out of memory");
	curl_easy_setopt(r->easy, CURLOPT_URL, url);
	curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
	curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, ignore);
}

static long start(CURLM *multi, struct send_request *r, const struct send_http *http, const struct load *load, long first)
{
	long left = load->rows - first, n = left < http->per_request ? left : http->per_request;

	curl_slist_free_all(r->headers);
	r->headers = NULL;
	r->body_len = 0;
	http->fill(r, load, first, n);
	curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
	curl_easy_setopt(r->easy, CURLOPT_POSTFIELDS, r->body);
	curl_easy_setopt(r->easy, CURLOPT_POSTFIELDSIZE, (long)r->body_len);
	curl_multi_add_handle(multi, r->easy);
	return n;
}

/* The next request that has ended, out of the set; NULL: none has. */
static struct send_request *take(CURLM *multi)
{
	struct send_request *r;
	CURLMsg *ended;
	long status;
	int left;

	ended = curl_multi_info_read(multi, &left);
	if (!ended)
		return NULL;
	if (ended->data.result != CURLE_OK)
		peer_die("post: %s", curl_easy_strerror(ended->data.result));
	curl_easy_getinfo(ended->easy_handle, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		peer_die("post: answered %ld", status);
	curl_easy_getinfo(ended->easy_handle, CURLINFO_PRIVATE, &r);
	curl_multi_remove_handle(multi, r->easy);
	return r;
}

void send_http_all(const struct send_http *http, const struct load *load)
{
	struct send_request *requests = calloc((size_t)http->in_flight, sizeof(*requests)), *r;
	CURLM *multi = curl_multi_init();
	long next = 0;
	int under_way = 0, running;

	if (!requests || !multi)
		peer_die("out of memory");
	for (; under_way < http->in_flight && next < load->rows; under_way++) {
		prepare(&requests[under_way], http->url);
		next += start(multi, &requests[under_way], http, load, next);
	}
	while (under_way > 0) {
		curl_multi_perform(multi, &running);
		while ((r = take(multi))) {
			if (next < load->rows)
				next += start(multi, r, http, load, next);
			else
				under_way--;
		}
		if (under_way > 0)
			curl_multi_poll(multi, NULL, 0, WAIT_MS, NULL);
	}
	for (int i = 0; i < http->in_flight; i++) {
		curl_easy_cleanup(requests[i].easy);
		curl_slist_free_all(requests[i].headers);
		free(requests[i].body);
		free(requests[i].message.payload);
	}
	free(requests);
	curl_multi_cleanup(multi);
}
