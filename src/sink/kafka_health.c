#include "sink/kafka_health.h"

#include "base/clock.h"
#include "base/log.h"
#include "sink/kafka_errors.h"

enum { COMPLAINT_EVERY_MS = 60 * 1000 };

void kafka_health_init(struct kafka_health *h, const struct sink_config *sink, struct breaker *breaker)
{
	*h = (struct kafka_health){ .sink = sink, .breaker = breaker };
	pthread_mutex_init(&h->lock, NULL);
}

void kafka_health_release(struct kafka_health *h)
{
	pthread_mutex_destroy(&h->lock);
}

static void note_reason(struct kafka_health *h, const struct error *err)
{
	pthread_mutex_lock(&h->lock);
	h->reason = *err;
	pthread_mutex_unlock(&h->lock);
}

/* True once in a while. */
static bool may_complain(struct kafka_health *h)
{
	int64_t now = clock_ms();
	bool may;

	pthread_mutex_lock(&h->lock);
	may = h->complained_at_ms == 0 || now - h->complained_at_ms >= COMPLAINT_EVERY_MS;
	h->complained_at_ms = now;
	pthread_mutex_unlock(&h->lock);
	return may;
}

/* The brokers are away, all of them; what each of them said before says why. */
static void open_breaker(struct kafka_health *h, const struct error *err)
{
	struct error why = kafka_health_reason(h);

	if (why.kind == ERROR_NONE)
		why = *err;
	if (breaker_open(h->breaker, &why))
		log_warn("kafka.unreachable", F_STR("sink", h->sink->name), F_STR("brokers", h->sink->kafka.brokers),
			 F_ERROR(&why), F_STR("meanwhile", "rows wait, in order"));
}

void kafka_health_error(struct kafka_health *h, rd_kafka_resp_err_t code, const char *text)
{
	struct error err;

	kafka_error_set(&err, code, text);
	/* That all of them are away says less than what each of them said before. */
	if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
		note_reason(h, &err);
	if (err.kind == ERROR_AUTH) {
		if (may_complain(h))
			log_error("kafka.refused", F_STR("sink", h->sink->name), F_ERROR(&err));
	} else if (code != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
		log_debug("kafka.error", F_STR("sink", h->sink->name), F_ERROR(&err));
	}
	if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || breaker_is_open(h->breaker))
		open_breaker(h, &err);
}

void kafka_health_answered(struct kafka_health *h)
{
	if (breaker_close(h->breaker))
		log_info("kafka.back", F_STR("sink", h->sink->name));
}

struct error kafka_health_reason(struct kafka_health *h)
{
	struct error reason;

	pthread_mutex_lock(&h->lock);
	reason = h->reason;
	pthread_mutex_unlock(&h->lock);
	return reason;
}
