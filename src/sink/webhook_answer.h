/* What an endpoint's answer means to us: one table of statuses. */
#ifndef POSTRIDER_SINK_WEBHOOK_ANSWER_H
#define POSTRIDER_SINK_WEBHOOK_ANSWER_H

#include <stdint.h>
#include <time.h>

#include "sink/http.h"

enum webhook_concern {
	WEBHOOK_ROW,                    /* this row alone, or its topic */
	WEBHOOK_ENDPOINT,               /* everything that goes there: wait */
	WEBHOOK_GONE,                   /* the same, for good */
};

struct webhook_meaning {
	struct error why;               /* ERROR_NONE: delivered */
	enum webhook_concern concern;
	int64_t told_ms;                /* how long we were asked to wait; -1: nobody said */
};

/* `url` names the endpoint in messages; `by_topic`: it differs by topic, and so may what is wrong with it. */
struct webhook_meaning webhook_answer_meaning(const struct http_answer *answer, const char *url, bool by_topic, time_t now);

/* The value of Retry-After, seconds or a date, in ms from now, at most a year; -1: it is neither. */
int64_t webhook_retry_after_ms(struct slice value, time_t now);

#endif
