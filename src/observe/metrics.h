/* The metrics table and its one way onto paper: Prometheus' text format 0.0.4. Every metric is a row of metrics.def, from
 * which docs/metrics.md comes too. */
#ifndef POSTRIDER_OBSERVE_METRICS_H
#define POSTRIDER_OBSERVE_METRICS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/histogram.h"

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum metric_id {
#define METRIC(id, name, type, labels, group, help) METRIC_##id,
#include "observe/metrics.def"
#undef METRIC
	METRIC_COUNT
};

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
enum metric_group { METRIC_NODE, METRIC_TABLES };

struct metric {
	const char *name;
	enum metric_type type;
	const char *labels;             /* separated by commas; "" : none */
	enum metric_group group;
	const char *help;
};

extern const struct metric metrics[METRIC_COUNT];

const char *metric_type_name(enum metric_type type);

/* Writes samples; those of one metric must come together, and metrics in the order of the table. */
struct metrics_writer {
	struct buf *out;
	int last;                       /* metric that was written last; -1: none */
};

void metrics_begin(struct metrics_writer *w, struct buf *out);
/* `values` has one for each label of the metric. Any bytes may be in them. */
void metrics_sample(struct metrics_writer *w, enum metric_id id, const char *const values[], double value);
void metrics_histogram(struct metrics_writer *w, enum metric_id id, const char *const values[], const struct histogram *h);

#define LABELS(...) ((const char *const[]){ __VA_ARGS__ })
#define NO_LABELS NULL

/* docs/metrics.md */
void metrics_write_markdown(FILE *out);

#endif
