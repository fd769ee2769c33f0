#include <stdio.h>
#include <string.h>

#include "send_http.h"

static void add_text(struct send_request *r, const char *text)
{
	send_add_body(r, text, strlen(text));
}

/* What a message says has no characters that JSON wants escaped but quotation marks. */
static void add_escaped(struct send_request *r, const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] == '"')
			send_add_body(r, "\\", 1);
		send_add_body(r, bytes + i, 1);
	}
}

static void add_attribute(struct send_request *r, const char *name, const char *value)
{
	char text[256];

	snprintf(text, sizeof(text), "\"%s\":{\"DataType\":\"String\",\"StringValue\":\"%s\"}", name, value);
	add_text(r, text);
}

static void add_entry(struct send_request *r, long number)
{
	const struct send_message *m = &r->message;
	char id[64];

	snprintf(id, sizeof(id), "{\"Id\":\"%ld\",\"MessageBody\":\"", number);
	add_text(r, id);
	add_escaped(r, m->payload, m->payload_len);
	add_text(r, "\",\"MessageAttributes\":{");
	add_attribute(r, "postrider-key", m->key);
	for (int i = 0; i < SEND_HEADERS; i++) {
		add_text(r, ",");
		add_attribute(r, m->headers[i].name, m->headers[i].value);
	}
	add_text(r, "}}");
}

/* Without a signature, which the server of tests does not look at. */
static void fill(struct send_request *r, const struct load *load, long first, long n)
{
	send_add_header(r, "Content-Type", "application/x-amz-json-1.0");
	send_add_header(r, "X-Amz-Target", "AmazonSQS.SendMessageBatch");
	add_text(r, "{\"QueueUrl\":\"");
	add_text(r, load->topic);
	add_text(r, "\",\"Entries\":[");
	for (long i = 0; i < n; i++) {
		send_message_fill(&r->message, load, first + i);
		if (i > 0)
			add_text(r, ",");
		add_entry(r, i);
	}
	add_text(r, "]}");
}

static void send_all(const struct load *load)
{
	send_http_all(&(struct send_http){.url = load->address, .in_flight = 16, .per_request = 10, .fill = fill}, load);
}

const struct sender send_sqs = {"sqs", send_all};
