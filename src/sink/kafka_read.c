#include "sink/kafka_read.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/mem.h"
#include "sink/kafka_conf.h"
#include "sink/kafka_errors.h"

enum { ASK_MS = 10 * 1000, SILENCE_MS = 30 * 1000, WAIT_MS = 200, CHUNK = 1000 };

struct read_partition {
	int64_t start, end;
	bool started, done;
};

struct read_topic {
	uint32_t number;
	rd_kafka_topic_t *handle;
	struct read_partition *partitions;
	int32_t n_partitions;
};

struct kafka_reader {
	const struct sink_config *sink;
	rd_kafka_t *rk;
	rd_kafka_queue_t *queue;
	struct read_topic **topics;             /* their addresses are known to librdkafka */
	uint32_t n_topics;
	uint32_t unfinished;                    /* partitions that are not at their end */
	struct error reason;                    /* the last that went wrong on the way to the brokers */
};

/* Ours, over what the sink's settings say. */
static const struct {
	const char *name, *value;
} properties[] = {
	{ "enable.auto.commit", "false" },
	{ "enable.partition.eof", "true" },             /* the last offsets may be marks of transactions, never seen */
	{ "auto.offset.reset", "earliest" },            /* retention was faster than we: go on with what is left */
	{ "isolation.level", "read_committed" },
	{ "check.crcs", "true" },
	{ "fetch.wait.max.ms", "100" },
	{ "queued.max.messages.kbytes", "4096" },       /* of each partition */
	{ "fetch.queue.backoff.ms", "2" },              /* once that much is queued: it is soon read */
};

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static void on_error(rd_kafka_t *rk _unused_, int code, const char *text, void *opaque)
{
	struct kafka_reader *r = opaque;

	/* A refusal is followed by a lost connection, which says less. */
	if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN && r->reason.kind != ERROR_AUTH)
		kafka_error_set(&r->reason, (rd_kafka_resp_err_t)code, text);
}

/* librdkafka would print to standard error, that settings of producers mean nothing to a consumer among others. */
static void on_log(const rd_kafka_t *rk _unused_, int level _unused_, const char *facility _unused_,
		   const char *text _unused_)
{
}

static bool set_properties(rd_kafka_conf_t *conf, const struct sink_config *sink, struct error *err)
{
	char reason[512];

	for (size_t i = 0; i < ARRAY_SIZE(properties); i++)
		if (rd_kafka_conf_set(conf, properties[i].name, properties[i].value, reason, sizeof(reason)))
			return error_set(err, ERROR_CONFIG, "%s: Kafka property %s: %s", sink->where,
					 properties[i].name, reason);
	return true;
}

bool kafka_reader_open(const struct sink_config *sink, struct kafka_reader **ret, struct error *err)
{
	_cleanup_(kafka_reader_freep) struct kafka_reader *r = mem_new(struct kafka_reader);
	rd_kafka_conf_t *conf;
	char reason[512];

	r->sink = sink;
	if (!kafka_conf_build(sink, false, &conf, err))
		return false;
	rd_kafka_conf_set_opaque(conf, r);
	rd_kafka_conf_set_error_cb(conf, on_error);
	rd_kafka_conf_set_log_cb(conf, on_log);
	if (!set_properties(conf, sink, err)) {
		rd_kafka_conf_destroy(conf);
		return false;
	}
	r->rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof(reason));
	if (!r->rk) {
		rd_kafka_conf_destroy(conf);
		return error_set(err, ERROR_CONFIG, "%s: %s", sink->where, reason);
	}
	r->queue = rd_kafka_queue_new(r->rk);
	*ret = TAKE_PTR(r);
	return true;
}

static void stop_partition(struct read_topic *t, int32_t partition)
{
	if (t->partitions[partition].started)
		rd_kafka_consume_stop(t->handle, partition);
	t->partitions[partition].started = false;
}

static void topic_free(struct read_topic *t)
{
	for (int32_t i = 0; i < t->n_partitions; i++)
		stop_partition(t, i);
	if (t->handle)
		rd_kafka_topic_destroy(t->handle);
	free(t->partitions);
	free(t);
}

void kafka_reader_free(struct kafka_reader *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; i < r->n_topics; i++)
		topic_free(r->topics[i]);
	free(r->topics);
	if (r->queue)
		rd_kafka_queue_destroy(r->queue);
	if (r->rk)
		rd_kafka_destroy(r->rk);
	free(r);
}

void kafka_reader_freep(struct kafka_reader **r)
{
	kafka_reader_free(*r);
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static bool topic_error(struct error *err, const char *topic, rd_kafka_resp_err_t code)
{
	kafka_error_set(err, code, NULL);
	if (code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
		error_hint(err, "grant the user Read and Describe on the topic");
	if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC)
		error_hint(err, "see route.topic: this is where it sends rows of the table");
	return error_prefix(err, "topic %s", topic);
}

/* What went wrong on the way says more than that there was no answer. */
static bool no_answer(struct kafka_reader *r, rd_kafka_resp_err_t code, struct error *err)
{
	rd_kafka_poll(r->rk, 0);
	if (r->reason.kind != ERROR_NONE)
		*err = r->reason;
	else
		kafka_error_set(err, code, NULL);
	return error_prefix(err, "no answer from the brokers %s", r->sink->kafka.brokers);
}

/* ---- Where topics begin and end ---------------------------------------------------------------------------------- */

static bool count_partitions(struct kafka_reader *r, struct read_topic *t, const char *name, struct error *err)
{
	const struct rd_kafka_metadata *metadata = NULL;
	rd_kafka_resp_err_t code = rd_kafka_metadata(r->rk, 0, t->handle, &metadata, ASK_MS);

	if (code)
		return no_answer(r, code, err);
	code = metadata->topic_cnt == 1 ? metadata->topics[0].err : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
	if (!code) {
		t->n_partitions = metadata->topics[0].partition_cnt;
		t->partitions = mem_new_array(struct read_partition, (size_t)t->n_partitions + 1);
	}
	rd_kafka_metadata_destroy(metadata);
	return !code || topic_error(err, name, code);
}

static bool find_ends(struct kafka_reader *r, struct read_topic *t, const char *name, struct kafka_extent *extent,
		      struct error *err)
{
	for (int32_t i = 0; i < t->n_partitions; i++) {
		struct read_partition *p = &t->partitions[i];
		rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(r->rk, name, i, &p->start, &p->end, ASK_MS);

		if (code && kafka_error_kind(code) == ERROR_TRANSPORT)
			return no_answer(r, code, err);
		if (code)
			return topic_error(err, name, code);
		extent->missing += p->start;
	}
	return true;
}

static bool take_starts(const rd_kafka_topic_partition_list_t *list, struct read_topic *t,
			rd_kafka_resp_err_t *ret_code)
{
	for (int i = 0; i < list->cnt; i++) {
		const rd_kafka_topic_partition_t *found = &list->elems[i];
		struct read_partition *p;

		if (found->err) {
			*ret_code = found->err;
			return false;
		}
		if (found->partition < 0 || found->partition >= t->n_partitions)
			continue;
		p = &t->partitions[found->partition];
		/* Negative: no record is that young. */
		p->start = found->offset < 0 ? p->end : MAX(p->start, found->offset);
	}
	return true;
}

static bool find_starts(struct kafka_reader *r, struct read_topic *t, const char *name, int64_t since_ms,
			struct error *err)
{
	rd_kafka_topic_partition_list_t *list;
	rd_kafka_resp_err_t code;
	bool ok = true;

	if (since_ms < 0)
		return true;
	list = rd_kafka_topic_partition_list_new(t->n_partitions);
	for (int32_t i = 0; i < t->n_partitions; i++)
		rd_kafka_topic_partition_list_add(list, name, i)->offset = since_ms;
	code = rd_kafka_offsets_for_times(r->rk, list, ASK_MS);
	if (code)
		ok = no_answer(r, code, err);
	else if (!take_starts(list, t, &code))
		ok = topic_error(err, name, code);
	rd_kafka_topic_partition_list_destroy(list);
	return ok;
}

static bool open_handle(struct kafka_reader *r, struct read_topic *t, const char *name, struct error *err)
{
	rd_kafka_topic_conf_t *conf = rd_kafka_default_topic_conf_dup(r->rk);

	rd_kafka_topic_conf_set_opaque(conf, t);
	t->handle = rd_kafka_topic_new(r->rk, name, conf);
	if (t->handle)
		return true;
	rd_kafka_topic_conf_destroy(conf);
	return topic_error(err, name, RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION);
}

bool kafka_reader_add(struct kafka_reader *r, const char *topic, int64_t since_ms, struct kafka_extent *ret,
		      struct error *err)
{
	struct read_topic *t = mem_new(struct read_topic);
	struct kafka_extent extent = { 0 };

	t->number = r->n_topics;
	r->topics = mem_resize(r->topics, (r->n_topics + 1) * sizeof(struct read_topic *));
	r->topics[r->n_topics++] = t;
	if (!open_handle(r, t, topic, err) || !count_partitions(r, t, topic, err) ||
	    !find_ends(r, t, topic, &extent, err) || !find_starts(r, t, topic, since_ms, err))
		return false;
	extent.partitions = t->n_partitions;
	for (int32_t i = 0; i < t->n_partitions; i++)
		extent.length += t->partitions[i].end - t->partitions[i].start;
	*ret = extent;
	return true;
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static bool start(struct kafka_reader *r, struct error *err)
{
	for (uint32_t k = 0; k < r->n_topics; k++) {
		struct read_topic *t = r->topics[k];

		for (int32_t i = 0; i < t->n_partitions; i++) {
			struct read_partition *p = &t->partitions[i];

			p->done = p->start >= p->end;
			if (p->done)
				continue;
			if (rd_kafka_consume_start_queue(t->handle, i, p->start, r->queue) != 0)
				return topic_error(err, rd_kafka_topic_name(t->handle), rd_kafka_last_error());
			p->started = true;
			r->unfinished++;
		}
	}
	return true;
}

static void finish_partition(struct kafka_reader *r, struct read_topic *t, int32_t partition)
{
	t->partitions[partition].done = true;
	stop_partition(t, partition);
	r->unfinished--;
}

static struct slice header_of(const rd_kafka_message_t *m, const char *name)
{
	rd_kafka_headers_t *headers;
	const void *value;
	size_t len;

	if (rd_kafka_message_headers(m, &headers) || rd_kafka_header_get_last(headers, name, &value, &len) || !value)
		return SLICE_NULL;
	return (struct slice){ value, len };
}

/* What is read and where it goes. */
struct reading {
	const char *header;
	kafka_record_fn *take;
	void *context;
};

static bool take_message(struct kafka_reader *r, const struct reading *to, const rd_kafka_message_t *m,
			 struct error *err)
{
	struct read_topic *t = m->rkt ? rd_kafka_topic_opaque(m->rkt) : NULL;
	struct read_partition *p;

	if (!t || m->partition < 0 || m->partition >= t->n_partitions)
		return true;
	p = &t->partitions[m->partition];
	/* More may have come behind the end that was noted: none of our business. */
	if (p->done)
		return true;
	if (m->err && m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
		if (kafka_error_kind(m->err) == ERROR_TRANSPORT)
			return true;            /* librdkafka tries again; silence is noticed */
		return topic_error(err, rd_kafka_topic_name(t->handle), m->err);
	}
	if (!m->err && m->offset < p->end)
		to->take(to->context, &(struct kafka_record){
			.topic = t->number, .partition = m->partition, .offset = m->offset,
			.header = header_of(m, to->header) });
	if (m->err || m->offset + 1 >= p->end)
		finish_partition(r, t, m->partition);
	return true;
}

static bool take_chunk(struct kafka_reader *r, const struct reading *to, ssize_t *ret_count, struct error *err)
{
	rd_kafka_message_t *messages[CHUNK];
	ssize_t n = rd_kafka_consume_batch_queue(r->queue, WAIT_MS, messages, CHUNK);
	bool ok = true;

	if (n < 0)
		return no_answer(r, rd_kafka_last_error(), err);
	for (ssize_t i = 0; i < n; i++) {
		ok = ok && take_message(r, to, messages[i], err);
		rd_kafka_message_destroy(messages[i]);
	}
	*ret_count = n;
	return ok;
}

bool kafka_reader_run(struct kafka_reader *r, const char *header, kafka_record_fn *take, void *context,
		      struct error *err)
{
	const struct reading to = { header, take, context };
	int64_t heard_ms = clock_ms();
	ssize_t n = 0;

	if (!start(r, err))
		return false;
	while (r->unfinished > 0) {
		rd_kafka_poll(r->rk, 0);
		if (!take_chunk(r, &to, &n, err))
			return false;
		if (n > 0)
			heard_ms = clock_ms();
		else if (clock_ms() - heard_ms > SILENCE_MS)
			return no_answer(r, RD_KAFKA_RESP_ERR__TIMED_OUT, err);
	}
	return true;
}
