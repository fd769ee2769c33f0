/* The bare loops that sinks are measured against: messages made up in memory, handed to the client library as fast as it
 * takes them, and acknowledged in the way that the sink waits for. No database, no order across connections, no retry:
 * the first failure ends the program. */
#ifndef POSTRIDER_BENCH_SEND_H
#define POSTRIDER_BENCH_SEND_H

#include <stddef.h>

/* What to send where. Texts are NULL where the sender has no use for them. */
struct load {
	const char *address;            /* brokers, host:port, a URL */
	const char *topic;              /* topic, subject, routing key, stream, table */
	const char *exchange;
	const char *user;
	const char *password;           /* of a test server that is thrown away: it may stand on the command line */
	long rows;
	long entities;
	long payload_bytes;
};

enum { SEND_ID = 36, SEND_HEADERS = 4 };

struct send_header {
	const char *name, *value;
};

/* One message, as large as postrider's of the same row. */
struct send_message {
	char id[SEND_ID + 1];
	char key[32];
	struct send_header headers[SEND_HEADERS];
	char *payload;
	size_t payload_len;
};

/* `m` is reused: the payload's memory is kept. */
void send_message_fill(struct send_message *m, const struct load *load, long number);

struct sender {
	const char *name;
	/* Returns when all messages are acknowledged. */
	void (*send)(const struct load *);
};

extern const struct sender send_kafka, send_nats, send_postgres, send_queue, send_rabbitmq, send_redis, send_sqs,
	send_webhook;

/* Splits "host:port"; the host is cut off in place. */
int send_port(char *address);

#endif
