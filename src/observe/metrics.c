#include "observe/metrics.h"

#include <assert.h>
#include <string.h>

const struct metric metrics[METRIC_COUNT] = {
#define METRIC(id, name, type, labels, group, help) \
	[METRIC_##id] = { name, METRIC_##type, labels, METRIC_##group, help },
#include "observe/metrics.def"
#undef METRIC
};

static const char *const type_names[] = {
	[METRIC_COUNTER] = "counter",
	[METRIC_GAUGE] = "gauge",
	[METRIC_HISTOGRAM] = "histogram",
};

const char *metric_type_name(enum metric_type type)
{
	return type_names[type];
}

void metrics_begin(struct metrics_writer *w, struct buf *out)
{
	*w = (struct metrics_writer){ out, -1 };
}

static void add_help(struct buf *out, const char *help)
{
	for (const char *c = help; *c; c++)
		buf_add_str(out, *c == '\\' ? "\\\\" : *c == '\n' ? "\\n" : (char[]){ *c, '\0' });
}

static void head(struct metrics_writer *w, enum metric_id id)
{
	const struct metric *m = &metrics[id];

	if (w->last == (int)id)
		return;
	assert(w->last < (int)id);
	w->last = (int)id;
	buf_printf(w->out, "# HELP %s ", m->name);
	add_help(w->out, m->help);
	buf_printf(w->out, "\n# TYPE %s %s\n", m->name, type_names[m->type]);
}

/* Backslash, quote and newline are escaped; what is not UTF-8 becomes U+FFFD, because Prometheus drops a scrape over it. */
static void add_label_value(struct buf *out, const char *value)
{
	const unsigned char *p = (const unsigned char *)value;
	size_t left = strlen(value);

	while (left > 0) {
		size_t len = utf8_length(p, left);

		if (len == 0)
			buf_add_str(out, "\xef\xbf\xbd");
		else if (*p == '\n')
			buf_add_str(out, "\\n");
		else if (*p == '\\' || *p == '"')
			buf_printf(out, "\\%c", *p);
		else
			buf_add(out, p, len);
		len = len ? len : 1;
		p += len;
		left -= len;
	}
}

/* `extra` is one more label, written as it is: the bound of a step. */
static void add_labels(struct buf *out, const char *labels, const char *const values[], const char *extra)
{
	const char *name = labels;

	if (!*labels && !extra)
		return;
	buf_add_char(out, '{');
	for (size_t i = 0; *name; i++) {
		size_t len = strcspn(name, ",");

		buf_printf(out, "%s%.*s=\"", i ? "," : "", (int)len, name);
		add_label_value(out, values[i]);
		buf_add_char(out, '"');
		name += len + (name[len] == ',');
	}
	if (extra)
		buf_printf(out, "%s%s", *labels ? "," : "", extra);
	buf_add_char(out, '}');
}

static void add_line(struct metrics_writer *w, enum metric_id id, const char *suffix, const char *const values[],
		     const char *extra, double value)
{
	buf_add_str(w->out, metrics[id].name);
	buf_add_str(w->out, suffix);
	add_labels(w->out, metrics[id].labels, values, extra);
	buf_printf(w->out, " %.15g\n", value);
}

void metrics_sample(struct metrics_writer *w, enum metric_id id, const char *const values[], double value)
{
	head(w, id);
	add_line(w, id, "", values, NULL, value);
}

void metrics_histogram(struct metrics_writer *w, enum metric_id id, const char *const values[], const struct histogram *h)
{
	uint64_t so_far = 0;
	char bound[40];

	head(w, id);
	for (int i = 0; i <= HISTOGRAM_STEPS; i++) {
		so_far += h->counts[i];
		if (i < HISTOGRAM_STEPS)
			snprintf(bound, sizeof(bound), "le=\"%g\"", (double)histogram_bounds_us[i] / 1e6);
		else
			snprintf(bound, sizeof(bound), "le=\"+Inf\"");
		add_line(w, id, "_bucket", values, bound, (double)so_far);
	}
	add_line(w, id, "_sum", values, NULL, (double)h->sum_us / 1e6);
	add_line(w, id, "_count", values, NULL, (double)so_far);
}
