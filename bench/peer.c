#include "peer.h"

#include <endian.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POSTGRES_EPOCH 946684800 /* 2000-01-01 in Unix seconds */
#define TYPE_BIGINT 20
#define ARRAY_HEADER 20
#define UUID_TEXT 36
#define TIME_TEXT 27

/* ---- Arguments and signals --------------------------------------------------------------------------------------- */

static void usage(const char *program)
{
	fprintf(stderr,
		"usage: %s --database URL --brokers LIST --topic NAME [--workers N] [--rows N] [--poll-us N] [--once]\n",
		program);
	exit(2);
}

long peer_positive(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	return *end == '\0' && value > 0 ? value : 0;
}

static long positive(const char *program, const char *text)
{
	long value = peer_positive(text);

	if (value == 0)
		usage(program);
	return value;
}

void peer_options_parse(int argc, char **argv, struct peer_options *opts)
{
	static const struct option known[] = {
		{"database", required_argument, NULL, 'd'}, {"brokers", required_argument, NULL, 'b'},
		{"topic", required_argument, NULL, 't'},    {"workers", required_argument, NULL, 'w'},
		{"rows", required_argument, NULL, 'r'},     {"poll-us", required_argument, NULL, 'p'},
		{"once", no_argument, NULL, 'o'},           {NULL, 0, NULL, 0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 'd': opts->database = optarg; break;
		case 'b': opts->brokers = optarg; break;
		case 't': opts->topic = optarg; break;
		case 'w': opts->workers = positive(argv[0], optarg); break;
		case 'r': opts->rows = positive(argv[0], optarg); break;
		case 'p': opts->poll_us = positive(argv[0], optarg); break;
		case 'o': opts->once = true; break;
		default: usage(argv[0]);
		}
	}
	if (optind != argc || !opts->database || !opts->brokers || !opts->topic)
		usage(argv[0]);
}

static void stop_signals(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGINT);
}

void peer_block_signals(void)
{
	sigset_t set;

	stop_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void peer_wait_for_signal(void)
{
	sigset_t set;
	int number;

	stop_signals(&set);
	sigwait(&set, &number);
}

void peer_die(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	_Exit(1);
}

/* ---- PostgreSQL -------------------------------------------------------------------------------------------------- */

PGconn *peer_connect(const struct peer_options *opts)
{
	PGconn *conn = PQconnectdb(opts->database);

	if (PQstatus(conn) != CONNECTION_OK)
		peer_die("could not connect: %s", PQerrorMessage(conn));
	return conn;
}

void peer_expect(PGconn *conn, const PGresult *res, ExecStatusType status, const char *what)
{
	if (PQresultStatus(res) != status)
		peer_die("%s: %s", what, PQerrorMessage(conn));
}

void peer_command(PGconn *conn, const char *sql)
{
	PGresult *res = PQexec(conn, sql);

	peer_expect(conn, res, PGRES_COMMAND_OK, sql);
	PQclear(res);
}

void peer_prepare(PGconn *conn, const char *name, const char *sql)
{
	PGresult *res = PQprepare(conn, name, sql, 0, NULL);

	peer_expect(conn, res, PGRES_COMMAND_OK, sql);
	PQclear(res);
}

static void put_u32(char *to, uint32_t value)
{
	value = htobe32(value);
	memcpy(to, &value, sizeof(value));
}

void peer_ids_add(struct peer_ids *ids, const char *id_in_network_order)
{
	char *element;

	if (ids->count == ids->room) {
		ids->room = ids->room ? ids->room * 2 : 1024;
		ids->bytes = realloc(ids->bytes, ARRAY_HEADER + (size_t)ids->room * 12);
		if (!ids->bytes)
			peer_die("out of memory");
	}
	element = ids->bytes + ARRAY_HEADER + (size_t)ids->count++ * 12;
	put_u32(element, 8);
	memcpy(element + 4, id_in_network_order, 8);
}

int peer_ids_finish(struct peer_ids *ids)
{
	/* Dimensions, whether there are NULLs, type of the elements, their number, number of the first. */
	const uint32_t header[] = {1, 0, TYPE_BIGINT, ids->count, 1};

	for (size_t i = 0; i < sizeof(header) / sizeof(header[0]); i++)
		put_u32(ids->bytes + i * 4, header[i]);
	return (int)(ARRAY_HEADER + ids->count * 12);
}

/* ---- Kafka ------------------------------------------------------------------------------------------------------- */

/* The settings that postrider uses by itself, so that what is compared is the relay. */
static const char *const producer_settings[][2] = {
	{"acks", "all"},
	{"enable.idempotence", "true"},
	{"enable.gapless.guarantee", "true"},
	{"partitioner", "murmur2_random"},
	{"message.timeout.ms", "0"},
	{"linger.ms", "0.2"},
	{"socket.nagle.disable", "true"},
};

rd_kafka_t *peer_producer(const struct peer_options *opts, peer_delivered_fn *delivered, void *opaque)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char why[512];
	rd_kafka_t *rk;

	if (rd_kafka_conf_set(conf, "bootstrap.servers", opts->brokers, why, sizeof(why)) != RD_KAFKA_CONF_OK)
		peer_die("%s", why);
	for (size_t i = 0; i < sizeof(producer_settings) / sizeof(producer_settings[0]); i++) {
		if (rd_kafka_conf_set(conf, producer_settings[i][0], producer_settings[i][1], why, sizeof(why)) !=
		    RD_KAFKA_CONF_OK)
			peer_die("%s", why);
	}
	rd_kafka_conf_set_dr_msg_cb(conf, delivered);
	rd_kafka_conf_set_opaque(conf, opaque);
	rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof(why));
	if (!rk)
		peer_die("%s", why);
	return rk;
}

rd_kafka_topic_t *peer_topic(rd_kafka_t *rk, const struct peer_options *opts)
{
	rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, opts->topic, NULL);

	if (!topic)
		peer_die("topic %s: %s", opts->topic, rd_kafka_err2str(rd_kafka_last_error()));
	return topic;
}

static void uuid_to_text(const char *uuid, char text[UUID_TEXT])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*text++ = '-';
		*text++ = digits[(unsigned char)uuid[i] >> 4];
		*text++ = digits[(unsigned char)uuid[i] & 15];
	}
}

static void put_digits(char *to, int width, int64_t value)
{
	while (width-- > 0) {
		to[width] = (char)('0' + value % 10);
		value /= 10;
	}
}

/* From microseconds since 2000 in network order to 2026-11-15T09:45:27.123456Z. */
static void time_to_text(const char *timestamp, char text[TIME_TEXT])
{
	int64_t micros;
	time_t seconds;
	struct tm tm;

	memcpy(&micros, timestamp, sizeof(micros));
	micros = (int64_t)be64toh((uint64_t)micros);
	seconds = POSTGRES_EPOCH + micros / 1000000;
	gmtime_r(&seconds, &tm);
	memcpy(text, "0000-00-00T00:00:00.000000Z", TIME_TEXT);
	put_digits(text, 4, tm.tm_year + 1900);
	put_digits(text + 5, 2, tm.tm_mon + 1);
	put_digits(text + 8, 2, tm.tm_mday);
	put_digits(text + 11, 2, tm.tm_hour);
	put_digits(text + 14, 2, tm.tm_min);
	put_digits(text + 17, 2, tm.tm_sec);
	put_digits(text + 20, 6, micros % 1000000);
}

static void add_header(rd_kafka_headers_t *headers, const char *name, const char *value, size_t length)
{
	rd_kafka_header_add(headers, name, -1, value, (ssize_t)length);
}

static rd_kafka_headers_t *record_headers(const PGresult *res, int row)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(4);
	char id[UUID_TEXT], created[TIME_TEXT];

	uuid_to_text(PQgetvalue(res, row, PEER_MESSAGE_ID), id);
	time_to_text(PQgetvalue(res, row, PEER_CREATED_AT), created);
	add_header(headers, "id", id, sizeof(id));
	add_header(headers, "event_type", PQgetvalue(res, row, PEER_EVENT_TYPE),
		   (size_t)PQgetlength(res, row, PEER_EVENT_TYPE));
	add_header(headers, "entity_type", PQgetvalue(res, row, PEER_ENTITY_TYPE),
		   (size_t)PQgetlength(res, row, PEER_ENTITY_TYPE));
	add_header(headers, "created_at", created, sizeof(created));
	return headers;
}

void peer_produce(rd_kafka_t *rk, rd_kafka_topic_t *topic, const PGresult *res, int row, void *opaque)
{
	rd_kafka_resp_err_t failure = rd_kafka_producev(
		rk, RD_KAFKA_V_RKT(topic),
		RD_KAFKA_V_KEY(PQgetvalue(res, row, PEER_ENTITY_ID), (size_t)PQgetlength(res, row, PEER_ENTITY_ID)),
		RD_KAFKA_V_VALUE(PQgetvalue(res, row, PEER_PAYLOAD), (size_t)PQgetlength(res, row, PEER_PAYLOAD)),
		RD_KAFKA_V_HEADERS(record_headers(res, row)), RD_KAFKA_V_OPAQUE(opaque), RD_KAFKA_V_END);

	if (failure)
		peer_die("could not produce: %s", rd_kafka_err2str(failure));
}
