#include "sink/rabbitmq_channel.h"

#include <amqp_framing.h>
#include <sys/time.h>

#include "base/macros.h"
#include "sink/rabbitmq_dial.h"
#include "sink/rabbitmq_errors.h"

enum { PAUSE_FIRST_MS = 100, PAUSE_MAX_MS = 10000 };

void rabbitmq_channel_init(struct rabbitmq_channel *ch, const struct rabbitmq_config *config, struct mailbox *box,
			   struct breaker *breaker)
{
	*ch = (struct rabbitmq_channel){ .config = config, .outcomes.box = box, .breaker = breaker };
	backoff_init(&ch->backoff, PAUSE_FIRST_MS, PAUSE_MAX_MS, random_seed());
	confirms_begin(&ch->confirms);
}

void rabbitmq_channel_release(struct rabbitmq_channel *ch)
{
	rabbitmq_message_release(&ch->message);
}

/* --- outcomes ---------------------------------------------------------------------------------------------------- */

static void post_delivered(struct rabbitmq_channel *ch)
{
	outcomes_deliver(&ch->outcomes, ch->delivered, ch->n_delivered);
	ch->n_delivered = 0;
}

static void deliver(struct rabbitmq_channel *ch, struct event *ev)
{
	if (ch->n_delivered == RABBITMQ_POST_MAX)
		post_delivered(ch);
	ch->delivered[ch->n_delivered++] = ev;
	backoff_reset(&ch->backoff);
	if (!ch->blocked)
		breaker_close(ch->breaker);
}

static void fail_returned(struct rabbitmq_channel *ch, struct event *ev)
{
	struct error why;

	rabbitmq_error_code(&why, AMQP_NO_ROUTE, SLICE_LITERAL("no queue is bound for it"));
	error_prefix(&why, "returned by exchange \"%s\", routing key \"%.*s\"", ch->config->exchange, (int)ev->topic.len,
		     ev->topic.ptr);
	outcomes_fail(&ch->outcomes, &ev, 1, &why);
}

static void acknowledge(struct rabbitmq_channel *ch, const amqp_basic_ack_t *ack)
{
	struct event *ev;
	bool returned;

	while ((ev = confirms_settle(&ch->confirms, ack->delivery_tag, ack->multiple, &returned))) {
		if (returned)
			fail_returned(ch, ev);
		else
			deliver(ch, ev);
	}
}

/* A queue is full and set to refuse (x-overflow: reject-publish), or has failed. */
static void refuse(struct rabbitmq_channel *ch, const amqp_basic_nack_t *nack, int64_t now_ms)
{
	struct event *ev;
	struct error why;
	bool ignored;

	error_set(&why, ERROR_TRANSPORT, "the server could not take it (basic.nack)");
	error_hint(&why, "a queue that is full refuses, where it is declared with x-overflow: reject-publish; see its length");
	while ((ev = confirms_settle(&ch->confirms, nack->delivery_tag, nack->multiple, &ignored)))
		outcomes_fail(&ch->outcomes, &ev, 1, &why);
	ch->pause_until_ms = now_ms + backoff_next(&ch->backoff);
}

/* --- the channel ------------------------------------------------------------------------------------------------- */

static void abandon(struct rabbitmq_channel *ch, const struct error *why, bool alone)
{
	struct event *ev;

	while ((ev = confirms_abandon(&ch->confirms))) {
		ev->alone = ev->alone || alone;
		outcomes_fail(&ch->outcomes, &ev, 1, why);
	}
	confirms_begin(&ch->confirms);
	ch->returning = false;
}

bool rabbitmq_channel_open(struct rabbitmq_channel *ch, amqp_connection_state_t conn, struct error *err)
{
	if (!rabbitmq_open_channel(conn, ch->config->exchange, err)) {
		rabbitmq_disconnect(conn, true);
		return false;
	}
	ch->conn = conn;
	ch->blocked = false;
	confirms_begin(&ch->confirms);
	return true;
}

void rabbitmq_channel_close(struct rabbitmq_channel *ch, const struct error *why, bool polite)
{
	if (!ch->conn)
		return;
	post_delivered(ch);
	abandon(ch, why, false);
	rabbitmq_disconnect(TAKE_PTR(ch->conn), polite);
	ch->blocked = false;
}

/* The server has closed the channel. Of several that are outstanding nobody knows which one it meant. */
static void blame(struct rabbitmq_channel *ch, const struct error *why)
{
	struct error each = *why;

	if (ch->confirms.count > 1)
		each.kind = ERROR_LOST;
	abandon(ch, &each, true);
	if (why->kind == ERROR_AUTH)
		breaker_open(ch->breaker, why);
}

static bool channel_closed(struct rabbitmq_channel *ch, const amqp_channel_close_t *close, int64_t now_ms,
			   struct error *err)
{
	amqp_channel_close_ok_t ok = { 0 };
	struct error why;
	int status;

	rabbitmq_error_code(&why, close->reply_code, (struct slice){ close->reply_text.bytes, close->reply_text.len });
	error_prefix(&why, "the server closed the channel");
	post_delivered(ch);
	blame(ch, &why);
	ch->pause_until_ms = now_ms + backoff_next(&ch->backoff);
	status = amqp_send_method(ch->conn, RABBITMQ_CHANNEL, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
	if (status != AMQP_STATUS_OK)
		return rabbitmq_error_status(err, status);
	amqp_maybe_release_buffers_on_channel(ch->conn, RABBITMQ_CHANNEL);
	return rabbitmq_open_channel(ch->conn, ch->config->exchange, err);
}

static bool connection_closed(struct rabbitmq_channel *ch, const amqp_connection_close_t *close, struct error *err)
{
	amqp_connection_close_ok_t ok = { 0 };

	rabbitmq_error_code(err, close->reply_code, (struct slice){ close->reply_text.bytes, close->reply_text.len });
	error_prefix(err, "the server closed the connection");
	amqp_send_method(ch->conn, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
	return false;
}

static void become_blocked(struct rabbitmq_channel *ch, const amqp_connection_blocked_t *blocked)
{
	struct error why;

	error_set(&why, ERROR_THROTTLED, "the server takes no messages for now (connection.blocked): %.*s",
		  (int)blocked->reason.len, (const char *)blocked->reason.bytes);
	error_hint(&why, "it is short of memory or disk: see rabbitmqctl status, and consume what is queued");
	breaker_open(ch->breaker, &why);
	ch->blocked = true;
}

static void become_unblocked(struct rabbitmq_channel *ch)
{
	ch->blocked = false;
	breaker_close(ch->breaker);
}

/* --- frames ------------------------------------------------------------------------------------------------------ */

static bool take_method(struct rabbitmq_channel *ch, const amqp_method_t *method, int64_t now_ms, struct error *err)
{
	switch (method->id) {
	case AMQP_BASIC_ACK_METHOD:
		acknowledge(ch, method->decoded);
		return true;
	case AMQP_BASIC_NACK_METHOD:
		refuse(ch, method->decoded, now_ms);
		return true;
	case AMQP_BASIC_RETURN_METHOD:
		ch->returning = true;
		return true;
	case AMQP_CONNECTION_BLOCKED_METHOD:
		become_blocked(ch, method->decoded);
		return true;
	case AMQP_CONNECTION_UNBLOCKED_METHOD:
		become_unblocked(ch);
		return true;
	case AMQP_CHANNEL_CLOSE_METHOD:
		return channel_closed(ch, method->decoded, now_ms, err);
	case AMQP_CONNECTION_CLOSE_METHOD:
		return connection_closed(ch, method->decoded, err);
	default:
		return true;
	}
}

static bool take_header(struct rabbitmq_channel *ch, const amqp_basic_properties_t *properties, struct error *err)
{
	bool known = ch->returning && properties->_flags & AMQP_BASIC_MESSAGE_ID_FLAG &&
		     confirms_return(&ch->confirms, (struct slice){ properties->message_id.bytes, properties->message_id.len });

	ch->returning = false;
	return known || error_set(err, ERROR_LOST, "the server returned a message that was not published");
}

static bool take_frame(struct rabbitmq_channel *ch, const amqp_frame_t *frame, int64_t now_ms, struct error *err)
{
	if (frame->frame_type == AMQP_FRAME_METHOD)
		return take_method(ch, &frame->payload.method, now_ms, err);
	if (frame->frame_type == AMQP_FRAME_HEADER)
		return take_header(ch, frame->payload.properties.decoded, err);
	return true;            /* the body of a returned message */
}

bool rabbitmq_channel_read(struct rabbitmq_channel *ch, int64_t now_ms, struct error *err)
{
	const struct timeval at_once = { 0 };
	bool well = true;
	int status = AMQP_STATUS_OK;

	while (well && status == AMQP_STATUS_OK) {
		amqp_frame_t frame;

		status = amqp_simple_wait_frame_noblock(ch->conn, &frame, &at_once);
		if (status == AMQP_STATUS_OK)
			well = take_frame(ch, &frame, now_ms, err);
		amqp_maybe_release_buffers(ch->conn);
	}
	post_delivered(ch);
	if (!well || status == AMQP_STATUS_TIMEOUT)
		return well;
	rabbitmq_error_status(err, status);
	return error_prefix(err, "lost the connection to RabbitMQ");
}

/* --- publishing -------------------------------------------------------------------------------------------------- */

bool rabbitmq_channel_has_room(const struct rabbitmq_channel *ch, const struct event *ev, int64_t now_ms)
{
	if (ch->blocked || now_ms < ch->pause_until_ms)
		return false;
	return ch->alone || ev->alone ? ch->confirms.count == 0 : confirms_has_room(&ch->confirms, ev);
}

static amqp_bytes_t as_bytes(struct slice s)
{
	return (amqp_bytes_t){ .len = s.len, .bytes = (void *)s.ptr };
}

bool rabbitmq_channel_publish(struct rabbitmq_channel *ch, struct event *ev, struct error *err)
{
	int status;

	if (!rabbitmq_message_build(&ch->message, ev, ch->config->content_type, amqp_get_frame_max(ch->conn), err)) {
		outcomes_fail(&ch->outcomes, &ev, 1, err);
		return true;
	}
	/* First, so that it is abandoned with the others when half of it is out. */
	confirms_add(&ch->confirms, ev);
	ch->alone = ev->alone;
	/* Mandatory: what no queue takes comes back instead of being dropped. */
	status = amqp_basic_publish(ch->conn, RABBITMQ_CHANNEL, amqp_cstring_bytes(ch->config->exchange), as_bytes(ev->topic), 1, 0,
				    &ch->message.properties, as_bytes(ev->payload));
	if (status == AMQP_STATUS_OK)
		return true;
	rabbitmq_error_status(err, status);
	return error_prefix(err, "lost the connection to RabbitMQ");
}
