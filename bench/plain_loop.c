/* The loop that people write: in one transaction lock some rows, publish them, wait for the broker, delete them.
 *
 * Each worker has a connection and a producer of its own, since a flush waits for everything that its producer holds.
 * The rows of an entity may be with two workers at once, so this loop keeps no order. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "peer.h"

static const char claim_sql[] = "SELECT " PEER_COLUMNS " FROM public.outbox ORDER BY id LIMIT $1::text::bigint "
				"FOR UPDATE SKIP LOCKED";
static const char delete_sql[] = "DELETE FROM public.outbox WHERE id = ANY ($1::bigint[])";

static struct peer_options options = {.workers = 4, .rows = 1000, .poll_us = 1000};
static atomic_bool stopping;

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	(void)rk, (void)opaque;
	if (message->err)
		peer_die("delivery failed: %s", rd_kafka_err2str(message->err));
}

static void publish(rd_kafka_t *rk, rd_kafka_topic_t *topic, const PGresult *rows)
{
	for (int i = 0; i < PQntuples(rows); i++)
		peer_produce(rk, topic, rows, i, NULL);
	if (rd_kafka_flush(rk, -1) != RD_KAFKA_RESP_ERR_NO_ERROR)
		peer_die("flush failed");
}

static void delete_rows(PGconn *conn, const PGresult *rows)
{
	struct peer_ids ids = {0};
	PGresult *res;
	int length;

	for (int i = 0; i < PQntuples(rows); i++)
		peer_ids_add(&ids, PQgetvalue(rows, i, PEER_ID));
	length = peer_ids_finish(&ids);
	res = PQexecPrepared(conn, "delete", 1, (const char *const[]){ids.bytes}, &length, (const int[]){1}, 0);
	peer_expect(conn, res, PGRES_COMMAND_OK, delete_sql);
	PQclear(res);
	free(ids.bytes);
}

/* The number of rows that were there. */
static int turn(PGconn *conn, rd_kafka_t *rk, rd_kafka_topic_t **topic, const char *limit)
{
	PGresult *rows;
	int n;

	peer_command(conn, "BEGIN");
	rows = PQexecPrepared(conn, "claim", 1, &limit, NULL, NULL, 1);
	peer_expect(conn, rows, PGRES_TUPLES_OK, claim_sql);
	n = PQntuples(rows);
	if (n > 0) {
		if (!*topic)
			*topic = peer_topic(rk, &options);
		publish(rk, *topic, rows);
		delete_rows(conn, rows);
	}
	peer_command(conn, "COMMIT");
	PQclear(rows);
	return n;
}

static void *work(void *arg)
{
	PGconn *conn = peer_connect(&options);
	rd_kafka_t *rk = peer_producer(&options, delivered, NULL);
	rd_kafka_topic_t *topic = NULL;
	char limit[24];

	(void)arg;
	snprintf(limit, sizeof(limit), "%ld", options.rows);
	peer_prepare(conn, "claim", claim_sql);
	peer_prepare(conn, "delete", delete_sql);
	while (!stopping) {
		if (turn(conn, rk, &topic, limit) > 0)
			continue;
		if (options.once)
			break;
		usleep((useconds_t)options.poll_us);
	}
	if (topic)
		rd_kafka_topic_destroy(topic);
	rd_kafka_destroy(rk);
	PQfinish(conn);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t *threads;

	peer_options_parse(argc, argv, &options);
	peer_block_signals();
	threads = calloc((size_t)options.workers, sizeof(*threads));
	if (!threads)
		peer_die("out of memory");
	for (long i = 0; i < options.workers; i++) {
		if (pthread_create(&threads[i], NULL, work, NULL) != 0)
			peer_die("could not start a thread");
	}
	peer_wait_for_signal();
	stopping = true;
	for (long i = 0; i < options.workers; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	return 0;
}
