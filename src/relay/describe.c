#include "relay/describe.h"

#include <time.h>

#include "base/buf.h"
#include "base/macros.h"
#include "sink/breaker.h"

#define CEILING ((size_t)16 << 20)

static void add_text(struct buf *json, const char *key, const char *value)
{
	buf_printf(json, "%s\"%s\":", json->data[json->len - 1] == '{' ? "" : ",", key);
	buf_add_json(json, slice_of(value));
}

static void add_count(struct buf *json, const char *key, uint64_t value)
{
	buf_printf(json, ",\"%s\":%llu", key, (unsigned long long)value);
}

static void add_worker(struct buf *json, struct worker *worker)
{
	struct worker_state w;

	worker_snapshot(worker, &w);
	buf_printf(json, "{\"number\":%u,\"connected\":%s", w.number, w.connected ? "true" : "false");
	if (w.condition)
		add_text(json, "condition", w.condition);
	if (w.error[0])
		add_text(json, "error", w.error);
	if (w.session)
		add_count(json, "session", (uint64_t)w.session);
	add_count(json, "entities", w.entities);
	add_count(json, "rows", w.rows);
	add_count(json, "claimed", w.counts.claimed);
	add_count(json, "settled", w.counts.settled);
	add_count(json, "claims", w.counts.claims);
	add_count(json, "empty_claims", w.counts.empty_claims);
	add_count(json, "looked", w.counts.looked);
	add_count(json, "lost", w.counts.lost);
	add_count(json, "claim_ms", w.counts.claim_time.sum_us / 1000);
	buf_add_char(json, '}');
}

static void add_time(struct buf *json, const char *key, int64_t time_ms)
{
	time_t seconds = (time_t)(time_ms / 1000);
	struct tm utc;
	char day[32];

	gmtime_r(&seconds, &utc);
	strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &utc);
	buf_printf(json, ",\"%s\":\"%s.%03dZ\"", key, day, (int)(time_ms % 1000));
}

static void add_sink(struct buf *json, const struct sink_config *config, struct sink_target *target)
{
	const struct sink_driver *driver = sink_driver_find(config->type);
	struct error why;
	int64_t since_ms;

	buf_add_char(json, '{');
	add_text(json, "name", config->name);
	if (driver->unmatched)
		add_count(json, "unmatched", driver->unmatched(target));
	if (breaker_look(driver->breaker(target), &since_ms, &why)) {
		add_time(json, "open_since", since_ms);
		add_text(json, "kind", error_kind_name(why.kind));
		add_text(json, "reason", why.message);
	} else {
		buf_add_str(json, ",\"open_since\":null");
	}
	buf_add_char(json, '}');
}

char *describe_workers(const struct outbox *outboxes, size_t n_outboxes, struct worker *const *workers, size_t n_workers,
		       bool surveys)
{
	_cleanup_(buf_release) struct buf json = { 0 };
	size_t next = 0;

	buf_init(&json, CEILING);
	buf_add_str(&json, "{\"outboxes\":[");
	for (const struct outbox *o = outboxes; o < outboxes + n_outboxes; o++) {
		buf_add_str(&json, o > outboxes ? ",{" : "{");
		add_text(&json, "name", o->config->name);
		add_text(&json, "table", o->table->name);
		add_text(&json, "reader", o->reader->name);
		add_text(&json, "order", reader_keeps_order(o->reader, o->config) ? "entity" : "none");
		buf_printf(&json, ",\"paused\":%s,\"sinks\":[", bell_is_paused(&o->bell) ? "true" : "false");
		for (size_t i = 0; i < o->config->n_sinks; i++) {
			buf_add_str(&json, i ? "," : "");
			add_sink(&json, &o->config->sinks[i], o->targets[i]);
		}
		buf_add_str(&json, "],\"workers\":[");
		for (int64_t i = 0; i < o->config->workers && next < n_workers; i++) {
			buf_add_str(&json, i ? "," : "");
			add_worker(&json, workers[next++]);
		}
		buf_add_str(&json, "]}");
	}
	buf_add_str(&json, "],\"surveys\":[");
	for (const struct outbox *o = outboxes; surveys && o < outboxes + n_outboxes; o++) {
		buf_add_str(&json, o > outboxes ? "," : "");
		buf_add_json(&json, slice_of(o->table->name));
	}
	buf_add_str(&json, "]}");
	return buf_take(&json);
}
