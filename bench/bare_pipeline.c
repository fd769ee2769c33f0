/* A pipeline with no coordination at all: page by id, produce, delete by id when acknowledged. One such process is as
 * fast as PostgreSQL, librdkafka and this machine let a relay be; a second one would publish everything twice, and a
 * row that commits late is never seen.
 *
 * Two threads with a connection each. The reader asks for the next page before it produces the current one. The settler
 * serves delivery reports and deletes what they name, without waiting for one DELETE before it sends the next. */
#include <endian.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

#define PAGES_IN_FLIGHT 8
#define DELETE_ROWS 2000
#define DELETES_IN_FLIGHT 4
#define IDLE_MS 2

static const char page_sql[] =
	"SELECT " PEER_COLUMNS " FROM public.outbox WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint";
static const char delete_sql[] = "DELETE FROM public.outbox WHERE id = ANY ($1::bigint[])";

struct page {
	PGresult *rows;
	int unacknowledged;             /* the settler's, once the first row is produced */
	struct row *row;                /* one for each: the opaque of its message */
};

struct row {
	struct page *page;
	const char *id;                 /* in network order, inside the page's result */
};

struct pipeline {
	struct peer_options options;
	rd_kafka_t *rk;
	rd_kafka_topic_t *topic;
	sem_t room;                     /* pages that may still be taken into flight */
	atomic_int pages;               /* in flight */
	atomic_bool read_all;

	/* The settler's. */
	PGconn *deleter;
	struct peer_ids acknowledged;
	int deletes;                    /* sent, result not read */
};

/* ---- Reader ------------------------------------------------------------------------------------------------------ */

static void ask_for_page(PGconn *conn, int64_t after, int64_t limit)
{
	const int64_t values[] = {(int64_t)htobe64((uint64_t)after), (int64_t)htobe64((uint64_t)limit)};
	const char *const params[] = {(const char *)&values[0], (const char *)&values[1]};

	if (!PQsendQueryPrepared(conn, "page", 2, params, (const int[]){8, 8}, (const int[]){1, 1}, 1))
		peer_die("could not ask for a page: %s", PQerrorMessage(conn));
}

static PGresult *receive_page(PGconn *conn)
{
	PGresult *rows = PQgetResult(conn);

	peer_expect(conn, rows, PGRES_TUPLES_OK, page_sql);
	PQclear(PQgetResult(conn));
	return rows;
}

static int64_t last_id(const PGresult *rows)
{
	uint64_t id;

	memcpy(&id, PQgetvalue(rows, PQntuples(rows) - 1, PEER_ID), sizeof(id));
	return (int64_t)be64toh(id);
}

static void produce_page(struct pipeline *p, PGresult *rows)
{
	int n = PQntuples(rows);
	struct page *page = malloc(sizeof(*page));
	struct row *row = calloc((size_t)n, sizeof(*row));

	if (!page || !row)
		peer_die("out of memory");
	*page = (struct page){.rows = rows, .unacknowledged = n, .row = row};
	p->pages++;
	for (int i = 0; i < n; i++) {
		row[i] = (struct row){.page = page, .id = PQgetvalue(rows, i, PEER_ID)};
		peer_produce(p->rk, p->topic, rows, i, &row[i]);
	}
}

static void *read_pages(void *arg)
{
	struct pipeline *p = arg;
	PGconn *conn = peer_connect(&p->options);
	PGresult *rows;

	peer_prepare(conn, "page", page_sql);
	ask_for_page(conn, INT64_MIN, p->options.rows);
	while (rows = receive_page(conn), PQntuples(rows) > 0) {
		ask_for_page(conn, last_id(rows), p->options.rows);
		while (sem_wait(&p->room) != 0)
			;
		if (!p->topic)
			p->topic = peer_topic(p->rk, &p->options);
		produce_page(p, rows);
	}
	PQclear(rows);
	PQfinish(conn);
	p->read_all = true;
	return NULL;
}

/* ---- Settler ----------------------------------------------------------------------------------------------------- */

/* Each DELETE ends with a sync point, and so is a transaction of its own. */
static void receive_delete(struct pipeline *p)
{
	PGresult *res = PQgetResult(p->deleter);

	peer_expect(p->deleter, res, PGRES_COMMAND_OK, delete_sql);
	PQclear(res);
	PQclear(PQgetResult(p->deleter));
	res = PQgetResult(p->deleter);
	peer_expect(p->deleter, res, PGRES_PIPELINE_SYNC, "sync");
	PQclear(res);
	p->deletes--;
}

static void send_delete(struct pipeline *p)
{
	int length = peer_ids_finish(&p->acknowledged);

	if (p->deletes == DELETES_IN_FLIGHT)
		receive_delete(p);
	if (!PQsendQueryPrepared(p->deleter, "delete", 1, (const char *const[]){p->acknowledged.bytes}, &length,
				 (const int[]){1}, 0) ||
	    !PQpipelineSync(p->deleter))
		peer_die("could not send a DELETE: %s", PQerrorMessage(p->deleter));
	p->deletes++;
	p->acknowledged.count = 0;
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	struct pipeline *p = opaque;
	const struct row *row = message->_private;
	struct page *page = row->page;

	(void)rk;
	if (message->err)
		peer_die("delivery failed: %s", rd_kafka_err2str(message->err));
	peer_ids_add(&p->acknowledged, row->id);
	if (p->acknowledged.count == DELETE_ROWS)
		send_delete(p);
	if (--page->unacknowledged > 0)
		return;
	PQclear(page->rows);
	free(page->row);
	free(page);
	p->pages--;
	sem_post(&p->room);
}

static void open_deleter(struct pipeline *p)
{
	p->deleter = peer_connect(&p->options);
	peer_command(p->deleter, "SET synchronous_commit = off");
	peer_prepare(p->deleter, "delete", delete_sql);
	if (!PQenterPipelineMode(p->deleter))
		peer_die("no pipeline mode");
}

static void *settle(void *arg)
{
	struct pipeline *p = arg;
	bool last;

	open_deleter(p);
	do {
		/* In this order: when all was read before, no page in flight now means that none will come. */
		last = p->read_all;
		last = p->pages == 0 && last;
		if (rd_kafka_poll(p->rk, last ? 0 : IDLE_MS) == 0 && p->acknowledged.count > 0)
			send_delete(p);
	} while (!last || p->acknowledged.count > 0);
	while (p->deletes > 0)
		receive_delete(p);
	PQfinish(p->deleter);
	return NULL;
}

int main(int argc, char **argv)
{
	struct pipeline p = {.options = {.rows = 2000}};
	pthread_t reader, settler;

	peer_options_parse(argc, argv, &p.options);
	if (!p.options.once)
		peer_die("this program only drains: --once");
	peer_block_signals();
	p.rk = peer_producer(&p.options, delivered, &p);
	sem_init(&p.room, 0, PAGES_IN_FLIGHT);
	if (pthread_create(&reader, NULL, read_pages, &p) != 0 || pthread_create(&settler, NULL, settle, &p) != 0)
		peer_die("could not start a thread");
	pthread_join(reader, NULL);
	pthread_join(settler, NULL);
	peer_wait_for_signal();
	if (p.topic)
		rd_kafka_topic_destroy(p.topic);
	rd_kafka_destroy(p.rk);
	free(p.acknowledged.bytes);
	return 0;
}
