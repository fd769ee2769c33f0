#include "sink/nats_courier.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/backoff.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "sink/nats_desk.h"
#include "sink/nats_link.h"
#include "sink/nats_message.h"

enum {
	RETRY_FIRST_MS = 200, RETRY_MAX_MS = 10000,
	MENDING_MS = 1000,                              /* at least, where somebody has to mend something */
	BUFFER_BYTES = 64 * 1024,                       /* libnats gets no further message past this */
	LOOK_EVERY_MS = 100,                            /* for answers that are late */
	END_WITHIN_S = 3,
};
#define SCRATCH_CEILING ((size_t)1 << 30)

struct courier {
	const struct sink_config *config;
	const struct nats_servers *servers;
	struct desk desk;
	pthread_t thread;
	int wake_fd;                    /* eventfd */

	/* The thread's own. */
	natsOptions **options;          /* of each server; NULL before the first try */
	size_t n_options;
	struct backoff backoff;
	size_t next_server;
	struct buf scratch;
	natsMsg *packed;                /* the next to be published */

	pthread_mutex_t lock;           /* guards what follows; the thread reads `link`, which it alone writes, without */
	struct nats_link *link;         /* NULL: away */
	bool stopping, ended, abandoned;
};

static void wake(struct courier *c)
{
	eventfd_write(c->wake_fd, 1);
}

static bool is_stopping(struct courier *c)
{
	bool stopping;

	pthread_mutex_lock(&c->lock);
	stopping = c->stopping;
	pthread_mutex_unlock(&c->lock);
	return stopping;
}

static void set_link(struct courier *c, struct nats_link *link)
{
	pthread_mutex_lock(&c->lock);
	c->link = link;
	pthread_mutex_unlock(&c->lock);
}

/* --- connecting --------------------------------------------------------------------------------------------------- */

static void on_answer(void *context, uint64_t number, const struct nats_answer *answer)
{
	desk_answer(&((struct courier *)context)->desk, number, answer);
}

static void on_denied(void *context, const char *text)
{
	desk_deny(&((struct courier *)context)->desk, text);
}

static const struct nats_listener listener = { on_answer, on_denied };

static bool prepare(struct courier *c, size_t server, struct error *err)
{
	natsOptions **options = &c->options[server];

	return (*options || nats_conf_build(c->config, c->servers, server, options, err)) &&
	       nats_conf_identify(*options, c->config, err);
}

/* Connecting may take for ever, and then courier_free gives us up: behind it nothing is touched that is not our own. */
static struct nats_link *connect_to(struct courier *c, size_t server, struct error *err)
{
	const char *stream = c->config->nats.stream;
	struct nats_link *link;

	if (!prepare(c, server, err))
		return NULL;
	if (!nats_link_open(c->options[server], &listener, c, &link, err)) {
		if (!is_stopping(c))
			error_prefix(err, "%s", c->servers->items[server].url);
		return NULL;
	}
	if (is_stopping(c) || (stream[0] && !nats_link_expect_stream(link, stream, err))) {
		nats_link_close(link);
		return NULL;
	}
	return link;
}

static void rest(struct courier *c, int64_t ms)
{
	struct pollfd fd = { .fd = c->wake_fd, .events = POLLIN };
	int64_t until = clock_ms() + ms;
	eventfd_t ignored;

	for (int64_t left = ms; left > 0 && !is_stopping(c); left = until - clock_ms())
		if (poll(&fd, 1, (int)left) > 0)
			eventfd_read(c->wake_fd, &ignored);
}

static int64_t pause_after(struct courier *c, const struct error *why)
{
	int64_t ms = backoff_next(&c->backoff);

	return why->kind == ERROR_AUTH || why->kind == ERROR_CONFIG ? MAX(ms, MENDING_MS) : ms;
}

/* One try; then a pause when all servers had theirs. */
static void try_to_connect(struct courier *c)
{
	struct error why = { 0 };
	struct nats_link *link = connect_to(c, c->next_server, &why);

	if (link) {
		set_link(c, link);
		backoff_reset(&c->backoff);
		desk_open(&c->desk);
	} else if (!is_stopping(c)) {
		c->next_server = (c->next_server + 1) % c->servers->count;
		desk_say_away(&c->desk, &why);
		if (c->next_server == 0)
			rest(c, pause_after(c, &why));
	}
}

/* The connection is closed before its events are given back: what is sent again must not be overtaken by itself. */
static void leave_link(struct courier *c, const struct error *why)
{
	struct nats_link *link = c->link;
	struct error lost = *why;

	lost.kind = ERROR_LOST;
	desk_close(&c->desk);
	set_link(c, NULL);
	nats_link_close(link);
	desk_return_all(&c->desk, &lost);
}

static void lose_link(struct courier *c, const struct error *why)
{
	leave_link(c, why);
	desk_say_away(&c->desk, why);
}

/* --- carrying ----------------------------------------------------------------------------------------------------- */

/* A copy, so that the event may come back while libnats still has that. */
static bool pack(void *context, const struct event *ev, uint64_t number, struct error *err)
{
	struct courier *c = context;
	char reply[96];

	nats_link_reply(c->link, number, reply, sizeof(reply));
	return nats_message_build(ev, reply, c->config->nats.stream, &c->scratch, &c->packed, err);
}

static void publish_queue(struct courier *c)
{
	uint64_t number;
	struct error why;

	while (nats_link_buffered(c->link) < BUFFER_BYTES && desk_send(&c->desk, pack, c, &number)) {
		if (!nats_link_publish(c->link, c->packed, &why))
			desk_fail(&c->desk, number, &why);
		natsMsg_Destroy(TAKE_PTR(c->packed));
	}
}

/* One round. False when the connection had to be given up. */
static bool carry(struct courier *c)
{
	eventfd_t ignored;
	struct error why;

	publish_queue(c);
	if (desk_take_recall(&c->desk) && nats_link_buffered(c->link) > 0) {
		error_set(&why, ERROR_LOST, "not sent: the claim on its entity is gone");
		leave_link(c, &why);
		return false;
	}
	if (!nats_link_turn(c->link, c->wake_fd, desk_is_idle(&c->desk) ? -1 : LOOK_EVERY_MS)) {
		nats_link_why_gone(c->link, &why);
		lose_link(c, &why);
		return false;
	}
	eventfd_read(c->wake_fd, &ignored);
	return true;
}

static void serve(struct courier *c)
{
	int64_t looked_ms = clock_ms(), now;
	struct error why;

	while (!is_stopping(c) && carry(c)) {
		now = clock_ms();
		if (now - looked_ms < LOOK_EVERY_MS)
			continue;
		looked_ms = now;
		if (desk_is_silent(&c->desk, now, &why)) {
			lose_link(c, &why);
			return;
		}
	}
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static void release(struct courier *c)
{
	for (size_t i = 0; i < c->n_options; i++)
		natsOptions_Destroy(c->options[i]);
	free(c->options);
	close(c->wake_fd);
	buf_release(&c->scratch);
	desk_release(&c->desk);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void say_closed(struct error *err)
{
	error_set(err, ERROR_LOST, "the sink was closed before NATS acknowledged");
}

static void *courier_run(void *arg)
{
	struct courier *c = arg;
	struct error why;
	bool abandoned;

	while (!is_stopping(c)) {
		if (c->link)
			serve(c);
		else
			try_to_connect(c);
	}
	say_closed(&why);
	if (c->link)
		leave_link(c, &why);
	nats_ReleaseThreadMemory();
	pthread_mutex_lock(&c->lock);
	c->ended = true;
	abandoned = c->abandoned;
	pthread_mutex_unlock(&c->lock);
	if (abandoned)
		release(c);
	return NULL;
}

struct courier *courier_new(const struct sink_config *config, const struct nats_servers *servers, struct breaker *breaker,
			    struct mailbox *outcomes)
{
	struct courier *c = mem_new(struct courier);

	c->config = config;
	c->servers = servers;
	c->n_options = servers->count;
	c->options = mem_new_array(natsOptions *, c->n_options);
	desk_init(&c->desk, config->nats.ack_timeout_ms, breaker, outcomes);
	buf_init(&c->scratch, SCRATCH_CEILING);
	backoff_init(&c->backoff, RETRY_FIRST_MS, RETRY_MAX_MS, random_seed());
	c->next_server = (size_t)(random_seed() % servers->count);
	pthread_mutex_init(&c->lock, NULL);
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->wake_fd < 0 || pthread_create(&c->thread, NULL, courier_run, c) != 0)
		abort();        /* out of descriptors or threads: nothing can run */
	return c;
}

static void ask_to_stop(struct courier *c)
{
	pthread_mutex_lock(&c->lock);
	c->stopping = true;
	if (c->link)
		nats_link_interrupt(c->link);
	pthread_mutex_unlock(&c->lock);
	wake(c);
}

/* False when it has ended after all. */
static bool abandon(struct courier *c)
{
	struct error why;
	bool ended;

	say_closed(&why);
	desk_return_all(&c->desk, &why);
	pthread_mutex_lock(&c->lock);
	ended = c->ended;
	c->abandoned = !ended;
	pthread_mutex_unlock(&c->lock);
	return !ended;
}

/* A thread that hangs in a handshake with a silent peer is left to itself, and frees what is its own when that ends. */
void courier_free(struct courier *c)
{
	struct timespec until;

	if (!c)
		return;
	ask_to_stop(c);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += END_WITHIN_S;
	if (pthread_timedjoin_np(c->thread, NULL, &until) != 0) {
		if (abandon(c)) {
			pthread_detach(c->thread);
			return;
		}
		pthread_join(c->thread, NULL);
	}
	release(c);
}

/* --- in the worker's thread --------------------------------------------------------------------------------------- */

uint32_t courier_submit(struct courier *c, struct event *const events[], uint32_t n, int64_t now_ms)
{
	uint32_t taken;

	if (desk_submit(&c->desk, events, n, now_ms, &taken))
		wake(c);
	return taken;
}

int64_t courier_deadline(struct courier *c, int64_t now_ms)
{
	return desk_deadline(&c->desk, now_ms);
}

void courier_pump(struct courier *c, int64_t now_ms)
{
	if (!desk_is_stuck(&c->desk, now_ms))
		return;
	pthread_mutex_lock(&c->lock);
	if (c->link)
		nats_link_interrupt(c->link);
	pthread_mutex_unlock(&c->lock);
}

void courier_recall(struct courier *c)
{
	desk_recall(&c->desk);
	wake(c);
}
