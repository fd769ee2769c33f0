#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "send.h"

enum { SET = 500, IN_FLIGHT = 2, COLUMNS = 4 };

/* A text[] of the statement's that grows. Nothing in it needs quoting but the payload's quotation marks. */
struct array {
	char *text;
	size_t len, room;
};

static void add(struct array *a, const char *text, size_t len)
{
	if (a->len + 2 * len + 8 > a->room) {
		a->room = 2 * a->room + 2 * len + 8;
		a->text = realloc(a->text, a->room);
		if (!a->text)
			peer_die("out of memory");
	}
	a->text[a->len] = a->len == 0 ? '{' : ',';
	a->text[a->len + 1] = '"';
	a->len += 2;
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '"')
			a->text[a->len++] = '\\';
		a->text[a->len++] = text[i];
	}
	a->text[a->len++] = '"';
}

static void take_result(PGconn *conn)
{
	PGresult *res = PQgetResult(conn);

	peer_expect(conn, res, PGRES_COMMAND_OK, "insert");
	PQclear(res);
	PQclear(PQgetResult(conn));
	res = PQgetResult(conn);
	peer_expect(conn, res, PGRES_PIPELINE_SYNC, "sync");
	PQclear(res);
}

static void send_set(PGconn *conn, struct array arrays[static COLUMNS])
{
	const char *values[COLUMNS];

	for (int i = 0; i < COLUMNS; i++) {
		arrays[i].text[arrays[i].len] = '}';
		arrays[i].text[arrays[i].len + 1] = '\0';
		arrays[i].len = 0;
		values[i] = arrays[i].text;
	}
	if (!PQsendQueryPrepared(conn, "insert", COLUMNS, values, NULL, NULL, 0) || !PQpipelineSync(conn))
		peer_die("insert: %s", PQerrorMessage(conn));
}

#define GIVEN " FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS u(e, v, m, p)"
#define HEADERS "'{\"id\": \"x\", \"event_type\": \"order.placed\", \"entity_type\": \"order\"}'"

/* %s is the topic: a table, a queue. */
static const char store_sql[] =
	"INSERT INTO %s (entity_id, version, message_id, payload, entity_type, event_type, headers, created_at)"
	" SELECT e, v::bigint, m, p::bytea, 'order', 'order.placed', " HEADERS ", now()" GIVEN;
static const char queue_sql[] =
	"INSERT INTO postrider.queue_message"
	"  (queue, lane, message_id, key, entity_id, payload, entity_type, event_type, headers, created_at)"
	" SELECT '%s', postrider.lane_of(true, e, m), m, e, e, p::bytea, 'order', 'order.placed', " HEADERS ", now()" GIVEN;

static PGconn *open_store(const struct load *load, const char *form)
{
	PGconn *conn = peer_connect(&(struct peer_options){.database = load->address});
	char sql[1024];

	snprintf(sql, sizeof(sql), form, load->topic);
	peer_prepare(conn, "insert", sql);
	if (!PQenterPipelineMode(conn))
		peer_die("no pipeline mode");
	return conn;
}

static void send_all(const struct load *load, const char *form)
{
	PGconn *conn = open_store(load, form);
	struct array arrays[COLUMNS] = {0};
	struct send_message m = {0};
	int sets = 0;

	for (long i = 0; i < load->rows; i++) {
		char version[24];

		send_message_fill(&m, load, i);
		snprintf(version, sizeof(version), "%ld", i / load->entities + 1);
		add(&arrays[0], m.key, strlen(m.key));
		add(&arrays[1], version, strlen(version));
		add(&arrays[2], m.id, SEND_ID);
		add(&arrays[3], m.payload, m.payload_len);
		if ((i + 1) % SET != 0 && i + 1 < load->rows)
			continue;
		send_set(conn, arrays);
		if (++sets > IN_FLIGHT) {
			take_result(conn);
			sets--;
		}
	}
	while (sets-- > 0)
		take_result(conn);
	PQfinish(conn);
	for (int i = 0; i < COLUMNS; i++)
		free(arrays[i].text);
	free(m.payload);
}

static void send_to_store(const struct load *load)
{
	send_all(load, store_sql);
}

static void send_to_queue(const struct load *load)
{
	send_all(load, queue_sql);
}

const struct sender send_postgres = {"postgres", send_to_store};
const struct sender send_queue = {"queue", send_to_queue};
