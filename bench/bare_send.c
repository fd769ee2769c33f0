/* Sends made-up messages to one destination and ends when all are acknowledged: `bare_send kafka --address … --topic …`. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "send.h"

static const struct sender *const senders[] = {
	&send_kafka,
#ifdef HAVE_NATS
	&send_nats,
#endif
	&send_postgres,
	&send_queue,
#ifdef HAVE_RABBITMQ
	&send_rabbitmq,
#endif
#ifdef HAVE_REDIS
	&send_redis,
#endif
#ifdef HAVE_SQS
	&send_sqs,
#endif
#ifdef HAVE_WEBHOOK
	&send_webhook,
#endif
};

enum { N_SENDERS = sizeof(senders) / sizeof(senders[0]) };

static void usage(void)
{
	fprintf(stderr, "usage: bare_send SINK --address A --topic T [--exchange E] [--user U] [--password P]"
			" [--rows N] [--entities N] [--payload BYTES]\nsinks:");
	for (int i = 0; i < N_SENDERS; i++)
		fprintf(stderr, " %s", senders[i]->name);
	fprintf(stderr, "\n");
	exit(2);
}

static long positive(const char *text)
{
	long value = peer_positive(text);

	if (value == 0)
		usage();
	return value;
}

static void parse(int argc, char **argv, struct load *load)
{
	static const struct option known[] = {
		{"address", required_argument, NULL, 'a'},  {"topic", required_argument, NULL, 't'},
		{"exchange", required_argument, NULL, 'x'}, {"user", required_argument, NULL, 'u'},
		{"password", required_argument, NULL, 'p'}, {"rows", required_argument, NULL, 'n'},
		{"entities", required_argument, NULL, 'e'}, {"payload", required_argument, NULL, 'b'},
		{NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'a': load->address = optarg; break;
		case 't': load->topic = optarg; break;
		case 'x': load->exchange = optarg; break;
		case 'u': load->user = optarg; break;
		case 'p': load->password = optarg; break;
		case 'n': load->rows = positive(optarg); break;
		case 'e': load->entities = positive(optarg); break;
		case 'b': load->payload_bytes = positive(optarg); break;
		default: usage();
		}
	}
	if (optind != argc - 1 || !load->address || !load->topic)
		usage();
}

void send_message_fill(struct send_message *m, const struct load *load, long number)
{
	static const struct send_header headers[SEND_HEADERS] = {
		{"id", NULL}, {"event_type", "order.placed"}, {"entity_type", "order"}, {"created_at", "2026-11-15T09:45:27.123456Z"},
	};
	int head;

	if (!m->payload) {
		m->payload_len = (size_t)load->payload_bytes;
		m->payload = malloc(m->payload_len + 64);
		if (!m->payload)
			peer_die("out of memory");
		memcpy(m->headers, headers, sizeof(headers));
		m->headers[0].value = m->id;
	}
	snprintf(m->id, sizeof(m->id), "00000000-0000-4000-8000-%012ld", number);
	snprintf(m->key, sizeof(m->key), "order-%ld", number % load->entities);
	head = snprintf(m->payload, 64, "{\"n\":%ld,\"text\":\"", number);
	memset(m->payload + head, 'x', m->payload_len - (size_t)head - 2);
	memcpy(m->payload + m->payload_len - 2, "\"}", 2);
}

int send_port(char *address)
{
	char *colon = strrchr(address, ':');

	if (!colon)
		peer_die("%s has no port", address);
	*colon = '\0';
	return atoi(colon + 1);
}

int main(int argc, char **argv)
{
	struct load load = {.rows = 100000, .entities = 20000, .payload_bytes = 200};

	parse(argc, argv, &load);
	for (int i = 0; i < N_SENDERS; i++) {
		if (strcmp(senders[i]->name, argv[optind]) != 0)
			continue;
		senders[i]->send(&load);
		return 0;
	}
	usage();
}
