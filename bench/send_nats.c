#include <nats/nats.h>
#include <stdlib.h>

#include "peer.h"
#include "send.h"

enum { IN_FLIGHT = 4000, COMPLETE_MS = 60000 };

static void expect(natsStatus status, const char *what)
{
	if (status != NATS_OK)
		peer_die("%s: %s", what, natsStatus_GetText(status));
}

static natsMsg *message_of(const struct load *load, const struct send_message *m)
{
	natsMsg *msg;

	expect(natsMsg_Create(&msg, load->topic, NULL, m->payload, (int)m->payload_len), "create a message");
	expect(natsMsgHeader_Set(msg, "Nats-Msg-Id", m->id), "set the id");
	expect(natsMsgHeader_Set(msg, "key", m->key), "set the key");
	for (int i = 0; i < SEND_HEADERS; i++)
		expect(natsMsgHeader_Set(msg, m->headers[i].name, m->headers[i].value), "set a header");
	return msg;
}

static void on_failure(jsCtx *js, jsPubAckErr *failure, void *closure)
{
	(void)js;
	(void)closure;
	peer_die("publish: %s", failure->ErrText);
}

static void send_all(const struct load *load)
{
	jsOptions options;
	struct send_message m = {0};
	natsConnection *nc;
	jsCtx *js;

	jsOptions_Init(&options);
	options.PublishAsync.MaxPending = IN_FLIGHT;
	options.PublishAsync.ErrHandler = on_failure;
	expect(natsConnection_ConnectTo(&nc, load->address), "connect");
	expect(natsConnection_JetStream(&js, nc, &options), "JetStream");
	for (long i = 0; i < load->rows; i++) {
		natsMsg *msg;

		send_message_fill(&m, load, i);
		msg = message_of(load, &m);
		expect(js_PublishMsgAsync(js, &msg, NULL), "publish");
	}
	expect(js_PublishAsyncComplete(js, &(jsPubOptions){.MaxWait = COMPLETE_MS}), "wait for acknowledgements");
	jsCtx_Destroy(js);
	natsConnection_Destroy(nc);
	nats_Close();
	free(m.payload);
}

const struct sender send_nats = {"nats", send_all};
