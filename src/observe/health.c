#include "observe/health.h"

#include "base/macros.h"
#include "base/mem.h"
#include "observe/survey.h"
#include "sink/breaker.h"

/* --- reasons -------------------------------------------------------------------------------------------------------- */

struct report {
	struct buf *json;
	bool fails;
};

static void begin(struct report *r, struct buf *json)
{
	*r = (struct report){ .json = json };
	buf_add_str(json, "{\"reasons\":[");
}

static bool end(struct report *r)
{
	buf_printf(r->json, "],\"status\":\"%s\"}\n", r->fails ? "failing" : "ok");
	return !r->fails;
}

/* `outbox` and `name` may be NULL. */
static void add_reason(struct report *r, const char *what, const char *outbox, const char *name, const char *reason)
{
	const struct {
		const char *key, *value;
	} members[] = { { "outbox", outbox }, { "name", name }, { "reason", reason } };

	buf_printf(r->json, "%s{\"what\":\"%s\"", r->fails ? "," : "", what);
	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		if (!members[i].value)
			continue;
		buf_printf(r->json, ",\"%s\":", members[i].key);
		buf_add_json(r->json, slice_of(members[i].value));
	}
	buf_add_char(r->json, '}');
	r->fails = true;
}

static void add_silence(struct report *r, const char *what, const char *outbox, const char *name, int64_t silent_ms)
{
	_cleanup_(mem_freep) char *reason = mem_printf("its loop has not turned for %.1f s", (double)silent_ms / 1000);

	add_reason(r, what, outbox, name, reason);
}

/* --- alive ---------------------------------------------------------------------------------------------------------- */

static void check_turns(const struct observed *seen, size_t outbox, struct worker *const *workers, int64_t now,
			struct report *r)
{
	const struct outbox_config *config = &seen->config->outboxes[outbox];

	for (int64_t i = 0; i < config->workers; i++) {
		int64_t silent = now - worker_last_turn_ms(workers[i]);
		_cleanup_(mem_freep) char *name = mem_printf("%lld", (long long)i);

		if (!worker_ended(workers[i]) && silent > seen->config->http.alive_within_ms)
			add_silence(r, "worker", config->name, name, silent);
	}
}

bool health_alive(const struct observed *seen, int64_t now, struct buf *json)
{
	struct report r;
	size_t next = 0;

	begin(&r, json);
	if (atomic_load(&seen->running)) {
		int64_t silent = now - heart_last_turn_ms(seen->heart);

		for (size_t i = 0; i < seen->config->n_outboxes; i++)
			check_turns(seen, i, observed_workers(seen, i, &next), now, &r);
		/* It turns once each heartbeat. */
		if (silent > seen->config->http.alive_within_ms + seen->config->heartbeat_ms)
			add_silence(&r, "heart", NULL, NULL, silent);
	}
	return end(&r);
}

/* --- ready ---------------------------------------------------------------------------------------------------------- */

static void check_connections(const struct observed *seen, size_t outbox, struct worker *const *workers, struct report *r)
{
	const struct outbox_config *config = &seen->config->outboxes[outbox];

	for (int64_t i = 0; i < config->workers; i++) {
		struct worker_state state;
		_cleanup_(mem_freep) char *name = mem_printf("%lld", (long long)i);

		worker_snapshot(workers[i], &state);
		if (!state.connected)
			add_reason(r, "worker", config->name, name,
				   state.error[0] ? state.error : "it is not connected to the database yet");
	}
}

static void check_sinks(const struct outbox *o, struct report *r)
{
	for (size_t i = 0; i < o->config->n_sinks; i++) {
		const struct sink_config *sink = &o->config->sinks[i];
		struct error why;
		int64_t since_ms;

		if (breaker_look(sink_driver_find(sink->type)->breaker(o->targets[i]), &since_ms, &why))
			add_reason(r, "sink", o->config->name, sink->name, why.message);
	}
}

static void check_lag(const struct observed *seen, size_t outbox, struct report *r)
{
	int64_t oldest = survey_oldest_ms(seen->survey, outbox), most = seen->config->http.ready_max_lag_ms;
	_cleanup_(mem_freep) char *reason = NULL;

	if (most == 0 || oldest <= most)
		return;
	reason = mem_printf("the oldest pending row is %.1f s old, and http.ready_max_lag is %.1f s", (double)oldest / 1000,
			    (double)most / 1000);
	add_reason(r, "lag", seen->config->outboxes[outbox].name, NULL, reason);
}

bool health_ready(const struct observed *seen, int64_t now, struct buf *json)
{
	struct report r;
	size_t next = 0;

	begin(&r, json);
	if (!atomic_load(&seen->running)) {
		add_reason(&r, "start", NULL, NULL, "waiting for the database, or for another node that is in the way");
		return end(&r);
	}
	if (!node_is_trusted(seen->node, now))
		add_reason(&r, "database", NULL, NULL, "no heartbeat has reached it for a while");
	for (size_t i = 0; i < seen->config->n_outboxes; i++) {
		check_connections(seen, i, observed_workers(seen, i, &next), &r);
		check_sinks(&seen->outboxes[i], &r);
		check_lag(seen, i, &r);
	}
	return end(&r);
}
