#include "sink/rabbitmq_link.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sink/rabbitmq_channel.h"
#include "sink/rabbitmq_queue.h"

enum {
	QUEUE_MAX = 1024,
	ROUND_BYTES = 64 * 1024,        /* published between two looks at what the server says */
	STUCK_MS = 5000,
	GOODBYE_SECONDS = 2,
};

struct rabbitmq_link {
	const struct rabbitmq_place *place;
	struct breaker *breaker;
	struct mailbox *box;
	pthread_t thread;
	int bell;                       /* eventfd: something for the thread */
	_Atomic bool stopping;
	_Atomic uint32_t limit;         /* how long the queue may be: set by the thread */
	_Atomic int64_t sending_since_ms;       /* 0: not in the middle of sending */

	struct rabbitmq_queue queue;    /* to the thread */
	pthread_mutex_t lock;           /* guards `fd` */
	int fd;                         /* a second one of the socket, because the library closes its own when it likes; -1: none */

	/* The thread's own. */
	struct rabbitmq_channel channel;
	uint32_t turn;                  /* which host */
	int64_t retry_at_ms;
};

/* --- the thread -------------------------------------------------------------------------------------------------- */

static bool has_room(const struct event *ev, void *link)
{
	struct rabbitmq_link *l = link;

	return rabbitmq_channel_has_room(&l->channel, ev, clock_ms());
}

/* Nothing while the server is blocked; one event, to connect for, while there is no connection. */
static void set_limit(struct rabbitmq_link *l)
{
	uint32_t limit = !l->channel.conn ? 1 : l->channel.blocked ? 0 : QUEUE_MAX;

	if (atomic_exchange(&l->limit, limit) < limit)
		mailbox_wake(l->box);
}

static void forget_fd(struct rabbitmq_link *l)
{
	pthread_mutex_lock(&l->lock);
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	pthread_mutex_unlock(&l->lock);
}

static void remember_fd(int fd, void *link)
{
	struct rabbitmq_link *l = link;

	pthread_mutex_lock(&l->lock);
	l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&l->lock);
}

static void wait_for_bell(struct rabbitmq_link *l, int64_t until_ms)
{
	struct pollfd fd = { .fd = l->bell, .events = POLLIN };
	eventfd_t ignored;
	int64_t left_ms = until_ms - clock_ms();

	poll(&fd, 1, until_ms == CLOCK_NEVER ? -1 : (int)MAX(left_ms, 0));
	eventfd_read(l->bell, &ignored);
}

/* Tells the worker why the server is away, by the only means there is: one event fails. Whatever the reason, and the breaker
 * says of which kind it is, all rows wait, and none is to blame. */
static void report_away(struct rabbitmq_link *l, const struct error *why)
{
	struct event *ev = rabbitmq_queue_take(&l->queue, NULL, NULL);
	struct error waits = *why;

	breaker_open(l->breaker, why);
	waits.kind = ERROR_TRANSPORT;
	if (ev)
		outcomes_fail(&l->channel.outcomes, &ev, 1, &waits);
}

static void pause_after_failure(struct rabbitmq_link *l)
{
	l->retry_at_ms = clock_ms() + backoff_next(&l->channel.backoff);
	l->turn++;
}

static void connect_when_needed(struct rabbitmq_link *l)
{
	amqp_connection_state_t conn;
	struct error why;

	if (!rabbitmq_queue_has(&l->queue)) {
		wait_for_bell(l, CLOCK_NEVER);
		return;
	}
	if (clock_ms() < l->retry_at_ms) {
		wait_for_bell(l, l->retry_at_ms);
		return;
	}
	if (!rabbitmq_connect(l->place, l->turn, remember_fd, l, &conn, &why) ||
	    !rabbitmq_channel_open(&l->channel, conn, &why)) {
		forget_fd(l);
		pause_after_failure(l);
		report_away(l, &why);
		return;
	}
	breaker_close(l->breaker);
	set_limit(l);
}

static void disconnect(struct rabbitmq_link *l, const struct error *why, bool polite)
{
	forget_fd(l);
	rabbitmq_channel_close(&l->channel, why, polite);
	set_limit(l);
}

/* Whatever the reason was: of what is outstanding nobody knows whether it arrived. */
static void lose(struct rabbitmq_link *l, const struct error *why)
{
	struct error lost = *why;

	/* An exchange or a right that is gone. */
	if (why->kind == ERROR_CONFIG || why->kind == ERROR_AUTH)
		report_away(l, why);
	if (lost.kind != ERROR_TRANSPORT)
		lost.kind = ERROR_LOST;
	disconnect(l, &lost, false);
	rabbitmq_queue_drop(&l->queue, &l->channel.outcomes, "the connection to RabbitMQ was lost");
	pause_after_failure(l);
}

static bool publish_round(struct rabbitmq_link *l, struct error *err)
{
	struct event *ev;
	size_t bytes = 0;
	bool well = true;

	atomic_store(&l->sending_since_ms, clock_ms());
	while (well && bytes < ROUND_BYTES && (ev = rabbitmq_queue_take(&l->queue, has_room, l))) {
		bytes += event_bytes(ev);
		well = rabbitmq_channel_publish(&l->channel, ev, err);
	}
	atomic_store(&l->sending_since_ms, 0);
	return well;
}

/* Often enough for heartbeats, which the library sends and misses only when it is called. */
static int wait_ms(struct rabbitmq_link *l, int64_t now_ms)
{
	int64_t ms = (int64_t)amqp_get_heartbeat(l->channel.conn) * 1000 / 4;

	/* What came while the channel was being opened is kept by the library. */
	if (amqp_frames_enqueued(l->channel.conn) || amqp_data_in_buffer(l->channel.conn))
		return 0;
	if (l->channel.pause_until_ms > now_ms && rabbitmq_queue_has(&l->queue))
		ms = MIN(ms, l->channel.pause_until_ms - now_ms);
	return (int)ms;
}

static void serve(struct rabbitmq_link *l)
{
	int64_t now_ms = clock_ms();
	bool wants_out = rabbitmq_queue_may_leave(&l->queue, has_room, l);
	struct pollfd fds[] = {
		{ .fd = amqp_get_sockfd(l->channel.conn), .events = wants_out ? POLLIN | POLLOUT : POLLIN },
		{ .fd = l->bell, .events = POLLIN },
	};
	eventfd_t ignored;
	struct error why;
	bool well = true;

	poll(fds, ARRAY_SIZE(fds), wait_ms(l, now_ms));
	if (fds[1].revents)
		eventfd_read(l->bell, &ignored);
	if (fds[0].revents & POLLOUT)
		well = publish_round(l, &why);
	/* Also when sending has failed: there may be confirms, and the server's own word for it. */
	if (!rabbitmq_channel_read(&l->channel, clock_ms(), &why) || !well)
		lose(l, &why);
	else
		set_limit(l);
}

static void *link_run(void *arg)
{
	struct rabbitmq_link *l = arg;
	struct error why;

	while (!atomic_load(&l->stopping)) {
		if (l->channel.conn)
			serve(l);
		else
			connect_when_needed(l);
	}
	error_set(&why, ERROR_LOST, "the sink was closed before the server confirmed the message");
	disconnect(l, &why, true);
	rabbitmq_queue_drop(&l->queue, &l->channel.outcomes, "the sink was closed");
	return NULL;
}

/* --- for the worker ---------------------------------------------------------------------------------------------- */

bool rabbitmq_link_open(const struct rabbitmq_place *place, struct breaker *breaker, struct mailbox *box,
			struct rabbitmq_link **ret, struct error *err)
{
	struct rabbitmq_link *l = mem_new(struct rabbitmq_link);
	int failure;

	l->place = place;
	l->breaker = breaker;
	l->box = box;
	l->fd = -1;
	l->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->bell < 0)
		abort();        /* out of descriptors: nothing can run */
	pthread_mutex_init(&l->lock, NULL);
	rabbitmq_queue_init(&l->queue);
	atomic_init(&l->limit, 1);
	rabbitmq_channel_init(&l->channel, place->config, box, breaker);
	l->turn = (uint32_t)random_seed();      /* workers spread over the hosts */
	failure = pthread_create(&l->thread, NULL, link_run, l);
	if (failure) {
		close(l->bell);
		free(l);
		return error_set(err, ERROR_CONFIG, "could not start a thread for RabbitMQ: %s", strerror(failure));
	}
	*ret = l;
	return true;
}

/* Sending may wait for a server that reads nothing: cutting the connection ends that. */
static void cut(struct rabbitmq_link *l)
{
	pthread_mutex_lock(&l->lock);
	if (l->fd >= 0)
		shutdown(l->fd, SHUT_RDWR);
	pthread_mutex_unlock(&l->lock);
}

void rabbitmq_link_close(struct rabbitmq_link *l)
{
	struct timespec until;

	if (!l)
		return;
	atomic_store(&l->stopping, true);
	eventfd_write(l->bell, 1);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += GOODBYE_SECONDS;
	if (pthread_timedjoin_np(l->thread, NULL, &until) != 0) {
		cut(l);
		pthread_join(l->thread, NULL);
	}
	rabbitmq_channel_release(&l->channel);
	rabbitmq_queue_release(&l->queue);
	pthread_mutex_destroy(&l->lock);
	close(l->bell);
	free(l);
}

uint32_t rabbitmq_link_submit(struct rabbitmq_link *l, struct event *const events[], uint32_t n)
{
	uint32_t taken = rabbitmq_queue_put(&l->queue, events, n, atomic_load(&l->limit));

	if (taken > 0)
		eventfd_write(l->bell, 1);
	return taken;
}

void rabbitmq_link_recall(struct rabbitmq_link *l)
{
	struct outcomes outcomes = { .box = l->box };

	rabbitmq_queue_drop(&l->queue, &outcomes, "the claim on its entity is gone");
}

void rabbitmq_link_watch(struct rabbitmq_link *l, int64_t now_ms)
{
	int64_t since_ms = atomic_load(&l->sending_since_ms);
	struct error why;

	if (since_ms == 0 || now_ms - since_ms < STUCK_MS)
		return;
	error_set(&why, ERROR_TRANSPORT, "the server takes in too little: sending has not come to an end in %d s", STUCK_MS / 1000);
	error_hint(&why, "it may be overloaded, or short of memory or disk: see rabbitmqctl status");
	breaker_open(l->breaker, &why);
}
