#include "observe/node_metrics.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "observe/process.h"
#include "observe/survey.h"
#include "sink/breaker.h"

/* What the workers of one outbox hold and have done, together. */
struct outbox_sums {
	const struct outbox *outbox;
	uint64_t workers, connected, entities, rows, bytes;
	struct feed_counts counts;
	struct sink_counts sinks[WINDOW_STAGES_MAX];
	struct histogram latency;
};

/* --- adding up ------------------------------------------------------------------------------------------------------ */

static void add_counts(struct feed_counts *to, const struct feed_counts *from)
{
	to->claimed += from->claimed;
	to->settled += from->settled;
	to->claims += from->claims;
	to->empty_claims += from->empty_claims;
	to->looked += from->looked;
	to->lost += from->lost;
	histogram_merge(&to->claim_time, &from->claim_time);
	for (int i = 0; i < HOLD_KIND_COUNT; i++)
		to->holds[i] += from->holds[i];
}

static void add_sink(struct sink_counts *to, const struct sink_counts *from)
{
	to->acknowledged += from->acknowledged;
	to->resent += from->resent;
	for (int i = 0; i < ERROR_KIND_COUNT; i++)
		to->errors[i] += from->errors[i];
}

static void add_worker(struct outbox_sums *to, struct worker *worker)
{
	struct worker_state w;

	worker_snapshot(worker, &w);
	to->workers++;
	to->connected += w.connected;
	to->entities += w.entities;
	to->rows += w.rows;
	to->bytes += w.bytes;
	add_counts(&to->counts, &w.counts);
	for (int i = 0; i < WINDOW_STAGES_MAX; i++)
		add_sink(&to->sinks[i], &w.sinks[i]);
	histogram_merge(&to->latency, &w.latency);
}

static struct outbox_sums *sum_up(const struct observed *seen)
{
	size_t n = seen->config->n_outboxes, next = 0;
	struct outbox_sums *sums = mem_new_array(struct outbox_sums, n);

	for (size_t i = 0; i < n; i++) {
		struct worker *const *workers = observed_workers(seen, i, &next);

		sums[i].outbox = &seen->outboxes[i];
		for (int64_t k = 0; k < seen->config->outboxes[i].workers; k++)
			add_worker(&sums[i], workers[k]);
	}
	return sums;
}

/* --- for each outbox ------------------------------------------------------------------------------------------------ */

#define SUM(id, member) { METRIC_##id, offsetof(struct outbox_sums, member) }

static const struct {
	enum metric_id id;
	size_t offset;                  /* of a uint64_t in struct outbox_sums */
} by_outbox[] = {
	SUM(WORKERS, workers),
	SUM(WORKERS_CONNECTED, connected),
	SUM(ENTITIES_IN_FLIGHT, entities),
	SUM(ROWS_IN_FLIGHT, rows),
	SUM(BYTES_IN_FLIGHT, bytes),
	SUM(CLAIMED, counts.claimed),
	SUM(PUBLISHED, counts.settled),
}, by_reader[] = {
	SUM(CLAIMS, counts.claims),
	SUM(EMPTY_CLAIMS, counts.empty_claims),
	SUM(CLAIM_LOOKED, counts.looked),
	SUM(CLAIM_LOST, counts.lost),
};

static const char *const hold_names[] = {
	[HOLD_RETRY] = "retry",
	[HOLD_STOP] = "stop",
	[HOLD_BLOCK] = "block",
	[HOLD_BURY] = "dead_letter",
	[HOLD_SKIP] = "skip",
};

static double sum_at(const struct outbox_sums *s, size_t offset)
{
	return (double)*(const uint64_t *)((const char *)s + offset);
}

static void write_outboxes(const struct outbox_sums *sums, size_t n, struct metrics_writer *w)
{
	const struct outbox_sums *end = sums + n;

	for (const struct outbox_sums *s = sums; s < end; s++)
		metrics_sample(w, METRIC_OUTBOX_INFO,
			       LABELS(s->outbox->config->name, s->outbox->table->name, s->outbox->reader->name), 1);
	for (const struct outbox_sums *s = sums; s < end; s++)
		metrics_sample(w, METRIC_OUTBOX_PAUSED, LABELS(s->outbox->config->name), bell_is_paused(&s->outbox->bell));
	for (size_t i = 0; i < ARRAY_SIZE(by_outbox); i++)
		for (const struct outbox_sums *s = sums; s < end; s++)
			metrics_sample(w, by_outbox[i].id, LABELS(s->outbox->config->name), sum_at(s, by_outbox[i].offset));
	for (const struct outbox_sums *s = sums; s < end; s++)
		for (int k = 0; k < HOLD_KIND_COUNT; k++)
			metrics_sample(w, METRIC_REFUSED, LABELS(s->outbox->config->name, hold_names[k]),
				       (double)s->counts.holds[k]);
	for (size_t i = 0; i < ARRAY_SIZE(by_reader); i++)
		for (const struct outbox_sums *s = sums; s < end; s++)
			metrics_sample(w, by_reader[i].id, LABELS(s->outbox->config->name, s->outbox->reader->name),
				       sum_at(s, by_reader[i].offset));
	for (const struct outbox_sums *s = sums; s < end; s++)
		metrics_histogram(w, METRIC_CLAIM_SECONDS, LABELS(s->outbox->config->name, s->outbox->reader->name),
				  &s->counts.claim_time);
	for (const struct outbox_sums *s = sums; s < end; s++)
		metrics_histogram(w, METRIC_CREATED_TO_ACK, LABELS(s->outbox->config->name), &s->latency);
}

/* --- for each sink -------------------------------------------------------------------------------------------------- */

typedef void write_sink(struct metrics_writer *w, const struct outbox *o, size_t sink, const struct sink_counts *c);

static void write_acknowledged(struct metrics_writer *w, const struct outbox *o, size_t sink, const struct sink_counts *c)
{
	metrics_sample(w, METRIC_SINK_ACKED, LABELS(o->config->name, o->config->sinks[sink].name), (double)c->acknowledged);
}

static void write_errors(struct metrics_writer *w, const struct outbox *o, size_t sink, const struct sink_counts *c)
{
	for (int kind = ERROR_NONE + 1; kind < ERROR_KIND_COUNT; kind++)
		metrics_sample(w, METRIC_SINK_ERRORS,
			       LABELS(o->config->name, o->config->sinks[sink].name, error_kind_name(kind)),
			       (double)c->errors[kind]);
}

static void write_resent(struct metrics_writer *w, const struct outbox *o, size_t sink, const struct sink_counts *c)
{
	metrics_sample(w, METRIC_SINK_RESENT, LABELS(o->config->name, o->config->sinks[sink].name), (double)c->resent);
}

static void write_breaker(struct metrics_writer *w, const struct outbox *o, size_t sink,
			  const struct sink_counts *c _unused_)
{
	const struct breaker *b = sink_driver_find(o->config->sinks[sink].type)->breaker(o->targets[sink]);

	metrics_sample(w, METRIC_SINK_BREAKER, LABELS(o->config->name, o->config->sinks[sink].name), breaker_is_open(b));
}

static void write_sinks(const struct outbox_sums *sums, size_t n, struct metrics_writer *w)
{
	static write_sink *const writers[] = { write_acknowledged, write_errors, write_resent, write_breaker };

	for (size_t k = 0; k < ARRAY_SIZE(writers); k++)
		for (const struct outbox_sums *s = sums; s < sums + n; s++)
			for (size_t i = 0; i < s->outbox->config->n_sinks; i++)
				writers[k](w, s->outbox, i, &s->sinks[i]);
}

/* --- for the process ------------------------------------------------------------------------------------------------ */

static void write_node(const struct observed *seen, struct metrics_writer *w)
{
	if (atomic_load(&seen->node->id) != 0)
		metrics_sample(w, METRIC_HEARTBEAT_AGE, NO_LABELS, (double)(clock_ms() - atomic_load(&seen->node->beat_ms)) / 1000);
	metrics_sample(w, METRIC_SURVEY_FAILURES, NO_LABELS, (double)survey_failures(seen->survey));
}

static void write_process(struct metrics_writer *w)
{
	struct process_figures p = process_read();
	const struct {
		enum metric_id id;
		double value;
	} figures[] = {
		{ METRIC_CPU_SECONDS, p.cpu_seconds }, { METRIC_RSS, p.resident_bytes }, { METRIC_OPEN_FDS, p.open_fds },
		{ METRIC_MAX_FDS, p.max_fds },         { METRIC_START_TIME, p.start_time },
	};

	for (size_t i = 0; i < ARRAY_SIZE(figures); i++)
		if (figures[i].value >= 0)
			metrics_sample(w, figures[i].id, NO_LABELS, figures[i].value);
}

void node_metrics_write(const struct observed *seen, struct metrics_writer *w)
{
	metrics_sample(w, METRIC_BUILD_INFO, LABELS(POSTRIDER_VERSION, seen->config->node), 1);
	if (atomic_load(&seen->running)) {
		_cleanup_(mem_freep) struct outbox_sums *sums = sum_up(seen);

		write_outboxes(sums, seen->config->n_outboxes, w);
		write_sinks(sums, seen->config->n_outboxes, w);
		write_node(seen, w);
	}
	write_process(w);
}
