/* What the programs that postrider is measured against have in common: arguments, connections, and the record they
 * write, which is the one that postrider writes by default. They end at the first error: a benchmark has no use for
 * half a result. */
#ifndef POSTRIDER_BENCH_PEER_H
#define POSTRIDER_BENCH_PEER_H

#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

/* The columns of a record. Read in binary form: the server then has nothing to format. */
#define PEER_COLUMNS "id, entity_id, payload, message_id, event_type, entity_type, created_at"

enum peer_column {
	PEER_ID,
	PEER_ENTITY_ID,
	PEER_PAYLOAD,
	PEER_MESSAGE_ID,
	PEER_EVENT_TYPE,
	PEER_ENTITY_TYPE,
	PEER_CREATED_AT,
};

struct peer_options {
	const char *database;
	const char *brokers;
	const char *topic;
	long workers;
	long rows;                      /* of one SELECT */
	long poll_us;                   /* pause after an empty SELECT */
	bool once;                      /* drain, then wait for the signal without a sound */
};

/* Sets what the command line says, ends the program with status 2 when it makes no sense. */
void peer_options_parse(int argc, char **argv, struct peer_options *opts);

/* 0: the text is no positive number. */
long peer_positive(const char *text);

/* To be called before the first thread: SIGTERM and SIGINT then wait for peer_wait_for_signal. */
void peer_block_signals(void);
void peer_wait_for_signal(void);

void peer_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

PGconn *peer_connect(const struct peer_options *opts);
/* Ends the program unless the result has that status; frees nothing. */
void peer_expect(PGconn *conn, const PGresult *res, ExecStatusType status, const char *what);
/* Runs a statement that returns no rows. */
void peer_command(PGconn *conn, const char *sql);
void peer_prepare(PGconn *conn, const char *name, const char *sql);

/* A parameter of type bigint[] that grows. */
struct peer_ids {
	char *bytes;                    /* PostgreSQL's binary form, header included */
	uint32_t count;
	uint32_t room;
};
void peer_ids_add(struct peer_ids *ids, const char *id_in_network_order);
/* Writes the header; the length of the parameter. */
int peer_ids_finish(struct peer_ids *ids);

typedef void peer_delivered_fn(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque);

rd_kafka_t *peer_producer(const struct peer_options *opts, peer_delivered_fn *delivered, void *opaque);
/* Ask for it when there are rows: with a topic known before the connection stands, the first message leaves half a
 * second later (measured with librdkafka 2.15). */
rd_kafka_topic_t *peer_topic(rd_kafka_t *rk, const struct peer_options *opts);

/* Hands a row to the producer. Key and payload are not copied: `res` must live until the delivery report, which carries
 * `opaque`. */
void peer_produce(rd_kafka_t *rk, rd_kafka_topic_t *topic, const PGresult *res, int row, void *opaque);

#endif
