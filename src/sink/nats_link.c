#include "sink/nats_link.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sink/nats_errors.h"

enum {
	ANSWER_MS = 3000,               /* for questions about streams */
	ASK_TURN_MS = 5,
};

#define STREAM_INFO "$JS.API.STREAM.INFO."

struct nats_link {
	natsConnection *nc;
	natsSubscription *answers;
	char inbox[64];
	const struct nats_listener *listener;
	void *context;
	bool unwritten;                 /* libnats has bytes to write */
	uint64_t questions;             /* asked so far: they are answered by the numbers 1, 2, … of their own */

	pthread_mutex_t lock;           /* guards what follows */
	pthread_cond_t ended;
	int fd;                         /* -1: closed */
	int to_come;                    /* last calls of libnats that are still missing */
	uint64_t answered;              /* the last question that was */
	struct nats_answer answer;
};

/* --- what libnats asks of an event loop -------------------------------------------------------------------------- */

static void set_fd(struct nats_link *l, int fd)
{
	pthread_mutex_lock(&l->lock);
	l->fd = fd;
	pthread_mutex_unlock(&l->lock);
}

static natsStatus on_attach(void **user, void *loop, natsConnection *nc _unused_, natsSock fd)
{
	*user = loop;
	set_fd(loop, fd);
	return NATS_OK;
}

/* Reading ends just before libnats closes the socket. */
static natsStatus on_read(void *user, bool add)
{
	if (!add)
		set_fd(user, -1);
	return NATS_OK;
}

static natsStatus on_write(void *user, bool add)
{
	((struct nats_link *)user)->unwritten = add;
	return NATS_OK;
}

static natsStatus on_detach(void *user _unused_)
{
	return NATS_OK;
}

/* --- on threads of libnats ---------------------------------------------------------------------------------------- */

/* Not every answer is JetStream's: anybody may listen to the subject. */
static void read_answer(natsMsg *msg, struct nats_answer *ret)
{
	struct slice json = { natsMsg_GetData(msg), (size_t)natsMsg_GetDataLength(msg) };
	bool nobody = natsMsg_IsNoResponders(msg);

	if (!nobody && nats_answer_read(json, ret))
		return;
	*ret = (struct nats_answer){ .refused = true, .code = NATS_NO_RESPONDERS };
	snprintf(ret->description, sizeof(ret->description), "%s",
		 nobody ? "no stream takes this subject" : "who answered is not JetStream: no stream takes this subject");
}

static void keep_answer(struct nats_link *l, uint64_t number, const struct nats_answer *answer)
{
	pthread_mutex_lock(&l->lock);
	l->answered = number;
	l->answer = *answer;
	pthread_mutex_unlock(&l->lock);
}

static void on_message(natsConnection *nc _unused_, natsSubscription *sub _unused_, natsMsg *msg, void *closure)
{
	struct nats_link *l = closure;
	const char *tail = natsMsg_GetSubject(msg) + strlen(l->inbox);
	struct nats_answer answer;
	uint64_t number;

	read_answer(msg, &answer);
	if (sscanf(tail, ".m.%" SCNu64, &number) == 1 && l->listener)
		l->listener->answered(l->context, number, &answer);
	else if (sscanf(tail, ".q.%" SCNu64, &number) == 1)
		keep_answer(l, number, &answer);
	natsMsg_Destroy(msg);
}

static void on_error(natsConnection *nc, natsSubscription *sub _unused_, natsStatus status, void *closure)
{
	struct nats_link *l = closure;
	const char *text;

	if (status != NATS_NOT_PERMITTED || !l->listener)
		return;
	natsConnection_GetLastError(nc, &text);
	l->listener->denied(l->context, text);
}

static void one_less_to_come(struct nats_link *l)
{
	pthread_mutex_lock(&l->lock);
	if (--l->to_come == 0)
		pthread_cond_signal(&l->ended);
	pthread_mutex_unlock(&l->lock);
}

static void on_closed(natsConnection *nc _unused_, void *closure)
{
	one_less_to_come(closure);
}

static void on_complete(void *closure)
{
	one_less_to_come(closure);
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static void free_link(struct nats_link *l)
{
	pthread_cond_destroy(&l->ended);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* What the library has to say in this thread, without the place in its sources: (conn.c:733): … */
static const char *last_text(void)
{
	natsStatus status;
	const char *text = nats_GetLastError(&status), *behind;

	if (text && text[0] == '(' && (behind = strstr(text, "): ")))
		return behind + 3;
	return text;
}

/* Of a certificate that does not verify, libnats gives the number and text of the reason, and who issued it. */
static bool say_why_not(struct error *err, natsStatus status)
{
	nats_status_error(err, status, last_text());
	if (status == NATS_SSL_ERROR && strstr(err->message, ":depth="))
		error_prefix(err, "the server's certificate is refused");
	return false;
}

static bool connect_link(struct nats_link *l, natsOptions *options, struct error *err)
{
	natsStatus status;

	mem_must(natsOptions_SetEventLoop(options, l, on_attach, on_read, on_write, on_detach) == NATS_OK &&
		 natsOptions_SetErrorHandler(options, on_error, l) == NATS_OK &&
		 natsOptions_SetClosedCB(options, on_closed, l) == NATS_OK);
	status = natsConnection_Connect(&l->nc, options);
	if (status != NATS_OK)
		return say_why_not(err, status);
	l->to_come = 1;
	return true;
}

static bool listen_for_answers(struct nats_link *l, struct error *err)
{
	natsInbox *inbox;
	char subject[80];
	natsStatus status;

	mem_must(natsInbox_Create(&inbox) == NATS_OK);
	snprintf(l->inbox, sizeof(l->inbox), "%s", inbox);
	natsInbox_Destroy(inbox);
	snprintf(subject, sizeof(subject), "%s.*.*", l->inbox);
	status = natsConnection_Subscribe(&l->answers, l->nc, subject, on_message, l);
	if (status != NATS_OK)
		return nats_status_error(err, status, NULL);
	mem_must(natsSubscription_SetOnCompleteCB(l->answers, on_complete, l) == NATS_OK);
	l->to_come++;
	return true;
}

bool nats_link_open(natsOptions *options, const struct nats_listener *listener, void *context, struct nats_link **ret,
		    struct error *err)
{
	struct nats_link *l = mem_new(struct nats_link);

	l->listener = listener;
	l->context = context;
	l->fd = -1;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->ended, NULL);
	if (!connect_link(l, options, err)) {
		free_link(l);
		return false;
	}
	if (!listen_for_answers(l, err)) {
		nats_link_close(l);
		return false;
	}
	*ret = l;
	return true;
}

void nats_link_interrupt(struct nats_link *l)
{
	pthread_mutex_lock(&l->lock);
	if (l->fd >= 0)
		shutdown(l->fd, SHUT_RDWR);
	pthread_mutex_unlock(&l->lock);
}

/* An orderly end would first send what is left, and wait for an answer. */
void nats_link_close(struct nats_link *l)
{
	if (!l)
		return;
	nats_link_interrupt(l);
	while (!natsConnection_IsClosed(l->nc))
		natsConnection_ProcessReadEvent(l->nc);
	natsSubscription_Destroy(l->answers);
	natsConnection_Destroy(l->nc);
	pthread_mutex_lock(&l->lock);
	while (l->to_come > 0)
		pthread_cond_wait(&l->ended, &l->lock);
	pthread_mutex_unlock(&l->lock);
	free_link(l);
}

/* --- sending and receiving ---------------------------------------------------------------------------------------- */

void nats_link_reply(const struct nats_link *l, uint64_t number, char *ret, size_t size)
{
	snprintf(ret, size, "%s.m.%" PRIu64, l->inbox, number);
}

bool nats_link_publish(struct nats_link *l, natsMsg *msg, struct error *err)
{
	natsStatus status = natsConnection_PublishMsg(l->nc, msg);

	return status == NATS_OK || nats_status_error(err, status, last_text());
}

size_t nats_link_buffered(const struct nats_link *l)
{
	int n = natsConnection_Buffered(l->nc);

	return n > 0 ? (size_t)n : 0;
}

bool nats_link_turn(struct nats_link *l, int wake_fd, int timeout_ms)
{
	struct pollfd fds[2] = { { .fd = l->fd, .events = POLLIN }, { .fd = wake_fd, .events = POLLIN } };

	/* Nearly always it fits, and needs no waiting. */
	if (l->unwritten)
		natsConnection_ProcessWriteEvent(l->nc);
	if (l->unwritten)
		fds[0].events |= POLLOUT;
	if (natsConnection_IsClosed(l->nc))
		return false;
	if (poll(fds, 2, timeout_ms) > 0 && fds[0].revents & (POLLIN | POLLERR | POLLHUP))
		natsConnection_ProcessReadEvent(l->nc);
	return !natsConnection_IsClosed(l->nc);
}

void nats_link_why_gone(struct nats_link *l, struct error *err)
{
	const char *text = "";
	natsStatus status = natsConnection_GetLastError(l->nc, &text);

	/* Whatever the server said last, what was on its way is only lost, unless we are not wanted at all. */
	error_set(err, ERROR_TRANSPORT, "the connection to NATS was lost: %s", text[0] ? text : natsStatus_GetText(status));
	if (nats_status_kind(status) == ERROR_AUTH)
		nats_status_error(err, status, text);
}

/* --- questions ---------------------------------------------------------------------------------------------------- */

static bool has_answer(struct nats_link *l, struct nats_answer *ret)
{
	bool has;

	pthread_mutex_lock(&l->lock);
	has = l->answered == l->questions;
	if (has)
		*ret = l->answer;
	pthread_mutex_unlock(&l->lock);
	return has;
}

bool nats_link_ask(struct nats_link *l, const char *subject, const char *body, struct nats_answer *ret, struct error *err)
{
	int64_t deadline = clock_ms() + ANSWER_MS;
	natsStatus status;
	char reply[96];

	snprintf(reply, sizeof(reply), "%s.q.%" PRIu64, l->inbox, ++l->questions);
	status = natsConnection_PublishRequestString(l->nc, subject, reply, body);
	if (status != NATS_OK)
		return nats_status_error(err, status, last_text());
	while (!has_answer(l, ret)) {
		if (!nats_link_turn(l, -1, ASK_TURN_MS)) {
			nats_link_why_gone(l, err);
			return false;
		}
		if (clock_ms() >= deadline)
			return error_set(err, ERROR_LOST, "JetStream did not answer to %s in %d ms", subject, ANSWER_MS);
	}
	return true;
}

bool nats_link_expect_stream(struct nats_link *l, const char *stream, struct error *err)
{
	_cleanup_(mem_freep) char *subject = mem_printf(STREAM_INFO "%s", stream);
	struct nats_answer answer;

	if (!nats_link_ask(l, subject, "", &answer, err))
		return err->kind == ERROR_LOST;
	if (!answer.refused)
		return true;
	if (answer.code == NATS_NO_RESPONDERS) {
		error_set(err, ERROR_CONFIG, "stream %s: JetStream is not enabled at the server, or not for this account", stream);
		return error_hint(err, "start the server with -js, and enable JetStream for the account");
	}
	nats_code_error(err, answer.code, answer.class, answer.description);
	return error_prefix(err, "stream %s", stream);
}
