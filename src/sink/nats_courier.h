/* Carries one worker's events to NATS in a thread of its own, over a connection of its own.
 *
 * The thread is there because libnats blocks: while it connects, and over TLS while a record is half written. It connects at
 * once, and again with growing pauses, to one server of the list after the other. Outcomes go to the worker's mailbox. The
 * functions are for the worker's thread. */
#ifndef POSTRIDER_SINK_NATS_COURIER_H
#define POSTRIDER_SINK_NATS_COURIER_H

#include <stdint.h>

#include "config/config.h"
#include "relay/mailbox.h"
#include "sink/breaker.h"
#include "sink/nats_conf.h"

struct courier;

/* All arguments must outlive it. */
struct courier *courier_new(const struct sink_config *config, const struct nats_servers *servers, struct breaker *breaker,
			    struct mailbox *outcomes);
/* What is under way comes back as ERROR_LOST. */
void courier_free(struct courier *c);

/* As those of a sink. While the servers are away, each failed attempt is reported by failing one event with its reason. */
uint32_t courier_submit(struct courier *c, struct event *const events[], uint32_t n, int64_t now_ms);
int64_t courier_deadline(struct courier *c, int64_t now_ms);
void courier_pump(struct courier *c, int64_t now_ms);
void courier_recall(struct courier *c);

#endif
