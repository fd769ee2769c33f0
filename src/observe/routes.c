#include "observe/routes.h"

#include "base/clock.h"
#include "observe/health.h"
#include "observe/metrics.h"
#include "observe/node_metrics.h"
#include "observe/survey.h"

static void answer_metrics(void *arg, struct http_answer *to)
{
	const struct observed *seen = arg;
	struct metrics_writer w;

	to->status = 200;
	to->content_type = METRICS_CONTENT_TYPE;
	metrics_begin(&w, &to->body);
	node_metrics_write(seen, &w);
	if (atomic_load(&seen->running))
		survey_write(seen->survey, &to->body);
}

static void answer_health(struct http_answer *to, bool good)
{
	to->status = good ? 200 : 503;
	to->content_type = "application/json";
}

static void answer_alive(void *arg, struct http_answer *to)
{
	answer_health(to, health_alive(arg, clock_ms(), &to->body));
}

static void answer_ready(void *arg, struct http_answer *to)
{
	answer_health(to, health_ready(arg, clock_ms(), &to->body));
}

const struct http_route observe_routes[] = {
	{ "/metrics", false, answer_metrics },
	{ "/healthz", true, answer_alive },
	{ "/readyz", false, answer_ready },
	{ 0 },
};
