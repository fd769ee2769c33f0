#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "peer.h"
#include "send.h"

enum { CHANNEL = 1, IN_FLIGHT = 2000, FRAME_MAX = 131072, PERSISTENT = 2 };

static void expect(amqp_rpc_reply_t reply, const char *what)
{
	if (reply.reply_type != AMQP_RESPONSE_NORMAL)
		peer_die("%s: %s", what, reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION ?
				 amqp_error_string2(reply.library_error) : "the server refused");
}

static amqp_connection_state_t open_channel(const struct load *load)
{
	char *host = strdup(load->address);
	int port = send_port(host);
	amqp_connection_state_t conn = amqp_new_connection();

	if (amqp_socket_open(amqp_tcp_socket_new(conn), host, port) != AMQP_STATUS_OK)
		peer_die("could not connect to %s", load->address);
	expect(amqp_login(conn, "/", 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN, load->user, load->password), "log in");
	amqp_channel_open(conn, CHANNEL);
	expect(amqp_get_rpc_reply(conn), "open a channel");
	amqp_confirm_select(conn, CHANNEL);
	expect(amqp_get_rpc_reply(conn), "ask for confirms");
	free(host);
	return conn;
}

/* Reads what has come, and waits for something if told to. Returns the last message that is confirmed. */
static uint64_t take_confirms(amqp_connection_state_t conn, uint64_t confirmed, bool wait)
{
	struct timeval patience = {.tv_sec = wait ? 30 : 0};
	amqp_frame_t frame;
	int status;

	while ((status = amqp_simple_wait_frame_noblock(conn, &frame, &patience)) == AMQP_STATUS_OK) {
		const amqp_basic_ack_t *ack = frame.payload.method.decoded;

		if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
			peer_die("the server said something else than a confirm");
		/* Single confirms may come in any order; all of them come, so counting them is enough. */
		confirmed = ack->multiple ? ack->delivery_tag : confirmed + 1;
		patience.tv_sec = 0;
	}
	if (status != AMQP_STATUS_TIMEOUT || (wait && patience.tv_sec > 0))
		peer_die("no confirm: %s", amqp_error_string2(status));
	amqp_maybe_release_buffers(conn);
	return confirmed;
}

static void publish(amqp_connection_state_t conn, const struct load *load, const struct send_message *m)
{
	amqp_table_entry_t entries[SEND_HEADERS + 1];
	amqp_basic_properties_t properties = {
		._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_HEADERS_FLAG,
		.delivery_mode = PERSISTENT,
		.message_id = amqp_cstring_bytes(m->id),
		.headers = {.num_entries = SEND_HEADERS + 1, .entries = entries},
	};
	int status;

	for (int i = 0; i <= SEND_HEADERS; i++) {
		entries[i].key = amqp_cstring_bytes(i < SEND_HEADERS ? m->headers[i].name : "key");
		entries[i].value.kind = AMQP_FIELD_KIND_UTF8;
		entries[i].value.value.bytes = amqp_cstring_bytes(i < SEND_HEADERS ? m->headers[i].value : m->key);
	}
	status = amqp_basic_publish(conn, CHANNEL, amqp_cstring_bytes(load->exchange), amqp_cstring_bytes(load->topic), 1, 0,
				    &properties, (amqp_bytes_t){.len = m->payload_len, .bytes = m->payload});
	if (status != AMQP_STATUS_OK)
		peer_die("publish: %s", amqp_error_string2(status));
}

static void send_all(const struct load *load)
{
	amqp_connection_state_t conn = open_channel(load);
	struct send_message m = {0};
	uint64_t confirmed = 0;

	for (long i = 0; i < load->rows; i++) {
		send_message_fill(&m, load, i);
		publish(conn, load, &m);
		if (i % 50 == 0)
			confirmed = take_confirms(conn, confirmed, false);
		while ((uint64_t)i + 1 - confirmed >= IN_FLIGHT)
			confirmed = take_confirms(conn, confirmed, true);
	}
	while (confirmed < (uint64_t)load->rows)
		confirmed = take_confirms(conn, confirmed, true);
	amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
	amqp_destroy_connection(conn);
	free(m.payload);
}

const struct sender send_rabbitmq = {"rabbitmq", send_all};
