#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "peer.h"
#include "send.h"

enum { IN_FLIGHT = 64, WAIT_MS = 1000 };

/* As long as a right one; the receiver looks at it and takes the message all the same. */
#define SIGNATURE "webhook-signature: v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

struct request {
	CURL *easy;
	struct curl_slist *headers;
	struct send_message message;
};

static size_t ignore(char *bytes, size_t size, size_t n, void *data)
{
	(void)bytes;
	(void)data;
	return size * n;
}

static void add_header(struct request *r, const char *name, const char *value)
{
	char line[256];

	snprintf(line, sizeof(line), "%s: %s", name, value);
	r->headers = curl_slist_append(r->headers, line);
}

static void start(CURLM *multi, struct request *r, const struct load *load, long number)
{
	char now[32];

	snprintf(now, sizeof(now), "%lld", (long long)time(NULL));
	send_message_fill(&r->message, load, number);
	curl_slist_free_all(r->headers);
	r->headers = curl_slist_append(NULL, SIGNATURE);
	add_header(r, "Content-Type", "application/json");
	add_header(r, "webhook-id", r->message.id);
	add_header(r, "webhook-timestamp", now);
	add_header(r, "postrider-key", r->message.key);
	for (int i = 0; i < SEND_HEADERS; i++)
		add_header(r, r->message.headers[i].name, r->message.headers[i].value);
	curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
	curl_easy_setopt(r->easy, CURLOPT_POSTFIELDS, r->message.payload);
	curl_easy_setopt(r->easy, CURLOPT_POSTFIELDSIZE, (long)r->message.payload_len);
	curl_multi_add_handle(multi, r->easy);
}

static void prepare(struct request *r, const struct load *load)
{
	r->easy = curl_easy_init();
	if (!r->easy)
		peer_die("out of memory");
	curl_easy_setopt(r->easy, CURLOPT_URL, load->address);
	curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
	curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, ignore);
}

/* The next request that has ended, out of the set; NULL: none has. */
static struct request *take(CURLM *multi)
{
	struct request *r;
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

static void send_all(const struct load *load)
{
	static struct request requests[IN_FLIGHT];
	CURLM *multi = curl_multi_init();
	long started = 0, done = 0;
	struct request *r;
	int running;

	for (; started < IN_FLIGHT && started < load->rows; started++) {
		prepare(&requests[started], load);
		start(multi, &requests[started], load, started);
	}
	while (done < load->rows) {
		curl_multi_perform(multi, &running);
		for (; (r = take(multi)); done++)
			if (started < load->rows)
				start(multi, r, load, started++);
		if (done < load->rows)
			curl_multi_poll(multi, NULL, 0, WAIT_MS, NULL);
	}
	for (int i = 0; i < IN_FLIGHT; i++) {
		curl_easy_cleanup(requests[i].easy);
		curl_slist_free_all(requests[i].headers);
		free(requests[i].message.payload);
	}
	curl_multi_cleanup(multi);
}

const struct sender send_webhook = {"webhook", send_all};
