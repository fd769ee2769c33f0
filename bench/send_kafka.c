#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "send.h"

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	(void)rk;
	if (message->err)
		peer_die("delivery failed: %s", rd_kafka_err2str(message->err));
	--*(long *)opaque;
}

static rd_kafka_headers_t *headers_of(const struct send_message *m)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(SEND_HEADERS);

	for (int i = 0; i < SEND_HEADERS; i++)
		rd_kafka_header_add(headers, m->headers[i].name, -1, m->headers[i].value, -1);
	return headers;
}

static bool produce(rd_kafka_t *rk, rd_kafka_topic_t *topic, const struct send_message *m)
{
	rd_kafka_headers_t *headers = headers_of(m);
	rd_kafka_resp_err_t failure = rd_kafka_producev(
		rk, RD_KAFKA_V_RKT(topic), RD_KAFKA_V_KEY(m->key, strlen(m->key)),
		RD_KAFKA_V_VALUE(m->payload, m->payload_len), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
		RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);

	if (!failure)
		return true;
	rd_kafka_headers_destroy(headers);
	if (failure != RD_KAFKA_RESP_ERR__QUEUE_FULL)
		peer_die("could not produce: %s", rd_kafka_err2str(failure));
	return false;
}

static void send_all(const struct load *load)
{
	struct peer_options options = {.brokers = load->address, .topic = load->topic};
	struct send_message m = {0};
	long missing = load->rows;
	rd_kafka_t *rk = peer_producer(&options, delivered, &missing);
	rd_kafka_topic_t *topic = peer_topic(rk, &options);

	for (long i = 0; i < load->rows; i++) {
		send_message_fill(&m, load, i);
		while (!produce(rk, topic, &m))
			rd_kafka_poll(rk, 10);
		if (i % 100 == 0)
			rd_kafka_poll(rk, 0);
	}
	while (missing > 0)
		rd_kafka_poll(rk, 100);
	rd_kafka_topic_destroy(topic);
	rd_kafka_destroy(rk);
	free(m.payload);
}

const struct sender send_kafka = {"kafka", send_all};
