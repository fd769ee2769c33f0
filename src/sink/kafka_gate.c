#include "sink/kafka_gate.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { SILENCE_MS = 5 * 60 * 1000 };            /* after this a partition begins anew */

struct partition {
	const struct event *first;              /* on its way while nothing else may be; NULL: none */
	int64_t acked_at_ms;                    /* 0: the broker has acknowledged nothing yet */
	uint64_t changed;                       /* the keeper's count when `first` was last answered */
};

struct gate {
	struct gate_keeper *keeper;
	const struct kafka_partitioner *partitioner;
	pthread_mutex_t lock;                   /* guards what follows; atomics may be read without it */
	struct partition *partitions;
	_Atomic uint32_t firsts;                /* how many of them have a first row on its way */
	_Atomic int32_t n_partitions;           /* 0: not known yet */
	_Atomic(const struct event *) unplaced; /* the one row that was produced meanwhile */
	_Atomic uint64_t changed;               /* the keeper's count when one of the two last changed; written before them */
};

/* The row that this thread is producing; NULL on librdkafka's own threads. */
static _Thread_local struct gate_pass *producing;

/* --- the keeper ------------------------------------------------------------------------------------------------- */

void gate_keeper_init(struct gate_keeper *k)
{
	*k = (struct gate_keeper){ 0 };
	pthread_mutex_init(&k->lock, NULL);
}

void gate_keeper_release(struct gate_keeper *k)
{
	pthread_mutex_destroy(&k->lock);
}

void gate_keeper_enlist(struct gate_keeper *k, struct gate_waiter *w)
{
	pthread_mutex_lock(&k->lock);
	w->next = k->first;
	k->first = w;
	pthread_mutex_unlock(&k->lock);
}

void gate_keeper_dismiss(struct gate_keeper *k, struct gate_waiter *w)
{
	struct gate_waiter **p = &k->first;

	pthread_mutex_lock(&k->lock);
	while (*p && *p != w)
		p = &(*p)->next;
	if (*p)
		*p = w->next;
	pthread_mutex_unlock(&k->lock);
}

void gate_keeper_call(struct gate_keeper *k)
{
	pthread_mutex_lock(&k->lock);
	for (struct gate_waiter *w = k->first; w; w = w->next)
		if (atomic_load(&w->waits))
			mailbox_wake(w->box);
	pthread_mutex_unlock(&k->lock);
}

static uint64_t count_change(struct gate_keeper *k)
{
	return atomic_fetch_add(&k->changes, 1) + 1;
}

void gate_pass_begin(struct gate_pass *pass, const struct gate_keeper *k, int64_t now_ms)
{
	*pass = (struct gate_pass){ .changes = atomic_load(&k->changes), .now_ms = now_ms, .partition = -1 };
}

/* --- a gate ------------------------------------------------------------------------------------------------------- */

struct gate *gate_new(struct gate_keeper *k, const struct kafka_partitioner *partitioner)
{
	struct gate *g = mem_new(struct gate);

	g->keeper = k;
	g->partitioner = partitioner;
	pthread_mutex_init(&g->lock, NULL);
	return g;
}

void gate_free(struct gate *g)
{
	if (!g)
		return;
	pthread_mutex_destroy(&g->lock);
	free(g->partitions);
	free(g);
}

/* Where partitions become known, or more of them. */
static void make_room(struct gate *g, int32_t count)
{
	if (count <= g->n_partitions)
		return;
	if (g->n_partitions == 0)
		g->changed = count_change(g->keeper);
	g->partitions = mem_resize(g->partitions, (size_t)count * sizeof(*g->partitions));
	memset(g->partitions + g->n_partitions, 0, (size_t)(count - g->n_partitions) * sizeof(*g->partitions));
	g->n_partitions = count;
}

static bool is_open(const struct partition *p, int64_t now_ms)
{
	return !p->first && p->acked_at_ms != 0 && now_ms - p->acked_at_ms < SILENCE_MS;
}

static bool admits(const struct partition *p, const struct gate_pass *pass)
{
	return p->changed <= pass->changes && !p->first;
}

/* On librdkafka's thread the row is one that was produced when the topic was unknown: it was admitted then. */
static bool pass_partition(struct gate *g, int32_t number, const struct event *ev)
{
	struct partition *p = &g->partitions[number];
	bool admitted = !producing || admits(p, producing);

	if (admitted && !p->first && !(producing && is_open(p, producing->now_ms))) {
		p->first = ev;
		g->firsts++;
	}
	return admitted;
}

static int32_t choose(const rd_kafka_topic_t *topic, const void *key, size_t key_len, int32_t count, void *gate, void *event)
{
	struct gate *g = gate;
	int32_t number = g->partitioner->choose(topic, key, key_len, count, NULL, NULL);
	bool admitted, became_known;

	pthread_mutex_lock(&g->lock);
	became_known = g->n_partitions == 0;
	make_room(g, count);
	if (g->unplaced == event)
		g->unplaced = NULL;
	admitted = pass_partition(g, number, event);
	pthread_mutex_unlock(&g->lock);
	if (became_known)
		gate_keeper_call(g->keeper);
	if (producing) {
		producing->refused = !admitted;
		producing->partition = number;
	}
	return admitted ? number : count;
}

void gate_install(struct gate *g, rd_kafka_topic_conf_t *conf)
{
	rd_kafka_topic_conf_set_opaque(conf, g);
	rd_kafka_topic_conf_set_partitioner_cb(conf, choose);
}

/* --- around a call of produce -------------------------------------------------------------------------------------- */

/* Once partitions are known no row is unplaced any more, so this does not become wrong after it was asked. */
static bool is_past(const struct gate *g, const struct gate_pass *pass)
{
	return g->n_partitions > 0 && !g->unplaced && g->changed <= pass->changes;
}

static bool enter_unknown_topic(struct gate *g, const struct gate_pass *pass, const struct event *ev)
{
	bool enters;

	pthread_mutex_lock(&g->lock);
	enters = !g->unplaced && g->changed <= pass->changes;
	if (enters && g->n_partitions == 0)
		g->unplaced = ev;
	pthread_mutex_unlock(&g->lock);
	return enters;
}

bool gate_enter(struct gate *g, struct gate_pass *pass, const struct event *ev)
{
	/* A row without a key goes anywhere, and has no order to lose. */
	bool asked = ev->key.ptr || g->partitioner->places_keyless;
	bool enters = !asked || is_past(g, pass) || enter_unknown_topic(g, pass, ev);

	pass->refused = !enters;
	pass->partition = -1;
	producing = enters ? pass : NULL;
	return enters;
}

void gate_leave(struct gate *g, struct gate_pass *pass, const struct event *ev, bool produced)
{
	producing = NULL;
	if (produced || pass->refused)
		return;
	/* librdkafka did not take it after all: it stands in nobody's way. */
	gate_report(g, pass->partition, ev, false, pass->now_ms);
}

bool gate_is_busy(const struct gate *g)
{
	return g->firsts > 0 || g->unplaced;
}

void gate_report(struct gate *g, int32_t partition, const struct event *ev, bool delivered, int64_t now_ms)
{
	struct partition *p;
	bool answered = false;

	pthread_mutex_lock(&g->lock);
	p = partition >= 0 && partition < g->n_partitions ? &g->partitions[partition] : NULL;
	if (g->unplaced == ev) {
		g->changed = count_change(g->keeper);
		g->unplaced = NULL;
		answered = true;
	}
	if (p && p->first == ev) {
		p->first = NULL;
		g->firsts--;
		p->changed = count_change(g->keeper);
		answered = true;
		p->acked_at_ms = delivered ? now_ms : 0;
	} else if (p && p->acked_at_ms != 0 && delivered) {
		p->acked_at_ms = now_ms;
	}
	pthread_mutex_unlock(&g->lock);
	if (answered)
		gate_keeper_call(g->keeper);
}
