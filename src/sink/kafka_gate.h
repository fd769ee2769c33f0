/* Keeps later rows back while the first one of a partition is on its way.
 *
 * A broker knows a producer in a partition from the first batch on that it has accepted there. Before that it accepts any
 * number. So when the first batch is refused, too large for instance, and a second one is on the wire behind it, the second
 * is accepted, and a row has overtaken an earlier one of its entity. Nothing that is known beforehand rules this out:
 * limits may be hidden from us, compression makes sizes unknown, and a broker has other reasons to refuse. Therefore a client
 * sends one row to a partition and waits for its acknowledgement; from then on a gap in the numbers is refused, and rows go
 * back to back. Brokers forget a producer that is silent for long (producer.id.expiration.ms, a day), so a partition that
 * was silent for some minutes begins anew.
 *
 * Which partition a row goes to is known to librdkafka only, once it has the topic's metadata. So the gate is its
 * partitioner: it chooses as the configured one does, and to refuse it names a partition that does not exist. Before the
 * metadata is there it is not asked, so till then the whole topic takes one row.
 *
 * One gate for each topic of a client. Those that belong to a producer share a *keeper*, which wakes workers whose rows wait.
 * Any thread may call. */
#ifndef POSTRIDER_SINK_KAFKA_GATE_H
#define POSTRIDER_SINK_KAFKA_GATE_H

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "relay/event.h"
#include "relay/mailbox.h"
#include "sink/kafka_conf.h"

/* A worker that may have to wait. */
struct gate_waiter {
	struct mailbox *box;
	_Atomic bool waits;
	struct gate_waiter *next;               /* guarded by the keeper's lock */
};

struct gate_keeper {
	_Atomic uint64_t changes;               /* of all gates: one let somebody through, or may now */
	pthread_mutex_t lock;                   /* guards the list */
	struct gate_waiter *first;
};

void gate_keeper_init(struct gate_keeper *k);
void gate_keeper_release(struct gate_keeper *k);
void gate_keeper_enlist(struct gate_keeper *k, struct gate_waiter *w);
void gate_keeper_dismiss(struct gate_keeper *k, struct gate_waiter *w);
/* Wakes those that wait. */
void gate_keeper_call(struct gate_keeper *k);

/* One attempt to send some rows, in order. What a gate has refused once it refuses to the end of the pass, whatever happens
 * meanwhile: otherwise the second row of an entity could be let through after the first was not. */
struct gate_pass {
	uint64_t changes;                       /* as of its beginning */
	int64_t now_ms;
	bool refused;                           /* the row that was last tried */
	int32_t partition;                      /* that was chosen for it; -1: none yet */
};

void gate_pass_begin(struct gate_pass *pass, const struct gate_keeper *k, int64_t now_ms);

struct gate;

struct gate *gate_new(struct gate_keeper *k, const struct kafka_partitioner *partitioner);
void gate_free(struct gate *g);
/* The gate becomes the partitioner and the opaque pointer of topics that are made with these settings. */
void gate_install(struct gate *g, rd_kafka_topic_conf_t *conf);

/* Around a call of produce. When the first returns false, the row has to wait and must not be produced. After the call the
 * second is told whether it succeeded; pass->refused says whether it was the gate that made it fail. */
bool gate_enter(struct gate *g, struct gate_pass *pass, const struct event *ev);
void gate_leave(struct gate *g, struct gate_pass *pass, const struct event *ev, bool produced);

/* False: no first row is on its way, so that it is enough to report one delivered row of many in a partition. */
bool gate_is_busy(const struct gate *g);
/* The outcome of a row that was produced, after its worker has it. The event may be gone by now: only its address counts. */
void gate_report(struct gate *g, int32_t partition, const struct event *ev, bool delivered, int64_t now_ms);

#endif
