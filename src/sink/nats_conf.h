/* From settings to libnats' options, for one server at a time: each is verified by its own host name. */
#ifndef POSTRIDER_SINK_NATS_CONF_H
#define POSTRIDER_SINK_NATS_CONF_H

#include <nats/nats.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "config/config.h"

struct nats_server {
	char *url;
	char *host;                     /* as its certificate must name it */
};

struct nats_servers {
	struct nats_server *items;      /* at least one */
	size_t count;
	bool tls;
};

/* ERROR_CONFIG says which one cannot be meant. */
bool nats_servers_read(const struct sink_config *sink, struct nats_servers *ret, struct error *err);
void nats_servers_release(struct nats_servers *s);

/* All that stays the same for a server. To be kept, because reading the system's authorities takes a while. The caller
 * destroys *ret. */
bool nats_conf_build(const struct sink_config *sink, const struct nats_servers *servers, size_t which, natsOptions **ret,
		     struct error *err);
/* Before each connect: who we are. Reads the files that hold secrets, so that these may change. */
bool nats_conf_identify(natsOptions *options, const struct sink_config *sink, struct error *err);

#endif
