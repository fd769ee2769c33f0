/* Opening a connection to RabbitMQ, and on it the channel that messages are published on. These functions wait: they are for
 * a thread of their own, and for `check`. */
#ifndef POSTRIDER_SINK_RABBITMQ_DIAL_H
#define POSTRIDER_SINK_RABBITMQ_DIAL_H

#include <amqp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"

enum { RABBITMQ_CHANNEL = 1, RABBITMQ_HOSTS_MAX = 16 };

struct rabbitmq_host {
	char *name;
	int port;
};

/* Where the server is, read once from the settings. Immutable after that. */
struct rabbitmq_place {
	const struct rabbitmq_config *config;
	struct rabbitmq_host hosts[RABBITMQ_HOSTS_MAX];
	uint32_t n_hosts;
	bool tls;
};

/* ERROR_CONFIG when `hosts` cannot be read. The settings must outlive it. */
bool rabbitmq_place_init(struct rabbitmq_place *p, const struct rabbitmq_config *config, const char *where,
			 struct error *err);
void rabbitmq_place_release(struct rabbitmq_place *p);

/* Told of the socket before the login, which may take its time: whoever shuts it down ends that. */
typedef void rabbitmq_opened(int fd, void *context);

/* Connects to one of the hosts and logs in; `turn` says to which, and goes round. `opened` may be NULL. The caller closes
 * *ret. */
bool rabbitmq_connect(const struct rabbitmq_place *p, uint32_t turn, rabbitmq_opened *opened, void *context,
		      amqp_connection_state_t *ret, struct error *err);
/* Opens the channel, asks for confirms, and looks whether the exchange is there. On failure the connection is of no use. */
bool rabbitmq_open_channel(amqp_connection_state_t conn, const char *exchange, struct error *err);
/* Whether there is a queue of that name. */
bool rabbitmq_find_queue(amqp_connection_state_t conn, const char *queue, struct error *err);
/* Says goodbye if `polite`, which may take a second, and frees it. */
void rabbitmq_disconnect(amqp_connection_state_t conn, bool polite);

#endif
