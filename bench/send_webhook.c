#include <stdio.h>
#include <time.h>

#include "send_http.h"

/* As long as a right one; the receiver looks at it and takes the message all the same. */
#define SIGNATURE "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

static void fill(struct send_request *r, const struct load *load, long number, long n)
{
	struct send_message *m = &r->message;
	char now[32];

	(void)n;
	snprintf(now, sizeof(now), "%lld", (long long)time(NULL));
	send_message_fill(m, load, number);
	send_add_header(r, "Content-Type", "application/json");
	send_add_header(r, "webhook-id", m->id);
	send_add_header(r, "webhook-timestamp", now);
	send_add_header(r, "webhook-signature", SIGNATURE);
	send_add_header(r, "postrider-key", m->key);
	for (int i = 0; i < SEND_HEADERS; i++)
		send_add_header(r, m->headers[i].name, m->headers[i].value);
	send_add_body(r, m->payload, m->payload_len);
}

static void send_all(const struct load *load)
{
	send_http_all(&(struct send_http){.url = load->address, .in_flight = 64, .per_request = 1, .fill = fill}, load);
}

const struct sender send_webhook = {"webhook", send_all};
