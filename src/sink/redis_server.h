/* A Redis server as the settings describe it, and how a connection to it is opened. Connecting blocks, so it is for
 * `check` and for threads (redis_dial.h). */
#ifndef POSTRIDER_SINK_REDIS_SERVER_H
#define POSTRIDER_SINK_REDIS_SERVER_H

#include "config/config.h"
#include "sink/redis_link.h"
#include "sink/redis_tls.h"
#include "sink/tcp_connect.h"

/* Immutable once made; shared by workers. */
struct redis_server {
	const struct redis_config *config;
	struct tcp_address address;
	struct redis_tls *tls;          /* NULL: plain text */
};

/* The settings must outlive it. */
bool redis_server_init(struct redis_server *s, const struct sink_config *config, struct error *err);
void redis_server_release(struct redis_server *s);

/* Connects, logs in, selects the database and makes sure that the user may do what a batch needs. */
bool redis_server_connect(const struct redis_server *s, int interrupt_fd, struct redis_link **ret, struct error *err);

/* One question on an idle connection. An error reply is a failure: redis_errors.h. */
struct redis_wait {
	int interrupt_fd;               /* -1: none */
	int64_t deadline_ms;
};
bool redis_ask(struct redis_link *l, const struct redis_wait *wait, const char *const words[], uint32_t n,
	       redisReply **ret, struct error *err);
#define REDIS_ASK(link, wait, ret, err, ...) \
	redis_ask(link, wait, (const char *const[]){ __VA_ARGS__ }, ARRAY_SIZE(((const char *const[]){ __VA_ARGS__ })), ret, err)

#endif
