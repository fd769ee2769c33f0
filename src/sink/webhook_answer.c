#include "sink/webhook_answer.h"

#include <curl/curl.h>
#include <stdio.h>

#include "base/macros.h"
#include "sink/http_errors.h"

#define YEAR_MS ((int64_t)365 * 24 * 3600 * 1000)

static const char redirects[] = "redirects are not followed: set url to where it leads";
static const char who_we_are[] = "check secret_file and authorization_file against what the endpoint knows";

/* The first that fits counts. */
static const struct rule {
	int from, to;
	enum error_kind kind;
	enum webhook_concern concern;
	const char *hint;
} rules[] = {
	{ 200, 299, ERROR_NONE, WEBHOOK_ROW, NULL },
	{ 300, 399, ERROR_CONFIG, WEBHOOK_ENDPOINT, redirects },
	{ 401, 401, ERROR_AUTH, WEBHOOK_ENDPOINT, who_we_are },
	{ 403, 403, ERROR_AUTH, WEBHOOK_ENDPOINT, who_we_are },
	{ 404, 404, ERROR_CONFIG, WEBHOOK_ENDPOINT, "nothing is there: check url, or create the endpoint" },
	{ 405, 405, ERROR_CONFIG, WEBHOOK_ENDPOINT, "it takes no POST: check url" },
	{ 407, 407, ERROR_CONFIG, WEBHOOK_ENDPOINT, "a proxy wants to know who we are: check url" },
	{ 408, 408, ERROR_TRANSPORT, WEBHOOK_ENDPOINT, NULL },
	{ 410, 410, ERROR_CONFIG, WEBHOOK_GONE, "rows wait until the relay is restarted: set another url, or remove the sink" },
	{ 421, 421, ERROR_TRANSPORT, WEBHOOK_ENDPOINT, NULL },
	{ 425, 425, ERROR_TRANSPORT, WEBHOOK_ENDPOINT, NULL },
	{ 429, 429, ERROR_THROTTLED, WEBHOOK_ENDPOINT, NULL },
	{ 400, 499, ERROR_REJECTED, WEBHOOK_ROW, NULL },
	{ 0, 999, ERROR_TRANSPORT, WEBHOOK_ENDPOINT, NULL },
};

static const struct rule *rule_of(int status)
{
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(rules) && (status < rules[i].from || status > rules[i].to))
		i++;
	return &rules[i];
}

static bool is_digits(struct slice value)
{
	for (size_t i = 0; i < value.len; i++)
		if (value.ptr[i] < '0' || value.ptr[i] > '9')
			return false;
	return value.len > 0;
}

static int64_t seconds_of(struct slice digits)
{
	int64_t seconds = 0;

	for (size_t i = 0; i < digits.len && seconds < YEAR_MS; i++)
		seconds = seconds * 10 + (digits.ptr[i] - '0');
	return seconds;
}

int64_t webhook_retry_after_ms(struct slice value, time_t now)
{
	char text[64];
	time_t then;

	if (is_digits(value))
		return MIN(seconds_of(value), YEAR_MS / 1000) * 1000;
	if (value.len == 0 || value.len >= sizeof(text) || memchr(value.ptr, '\0', value.len))
		return -1;
	snprintf(text, sizeof(text), "%.*s", (int)value.len, value.ptr);
	then = curl_getdate(text, NULL);
	if (then == (time_t)-1)
		return -1;
	return then <= now ? 0 : MIN((int64_t)(then - now), YEAR_MS / 1000) * 1000;
}

static void describe(struct error *err, enum error_kind kind, int status, const char *url, int64_t told_ms)
{
	char origin[300];

	http_origin(url, origin, sizeof(origin));
	error_set(err, kind, "%s answered %d", origin, status);
	if (kind == ERROR_THROTTLED && told_ms >= 0)
		error_set(err, kind, "%s answered %d and asks us to wait for %lld s", origin, status, (long long)(told_ms / 1000));
}

struct webhook_meaning webhook_answer_meaning(const struct http_answer *answer, const char *url, bool by_topic, time_t now)
{
	struct webhook_meaning m = { .concern = WEBHOOK_ENDPOINT, .told_ms = -1 };
	const struct rule *rule = rule_of(answer->status);
	enum error_kind kind = rule->kind;

	if (answer->status == 0) {
		m.why = answer->why;
		return m;
	}
	m.concern = rule->concern;
	if (kind == ERROR_NONE)
		return m;
	if (answer->status == 429 || answer->status == 503)
		m.told_ms = webhook_retry_after_ms(answer->retry_after, now);
	if (answer->status == 503 && m.told_ms >= 0)
		kind = ERROR_THROTTLED;
	if (by_topic && (kind == ERROR_CONFIG || kind == ERROR_AUTH))
		m.concern = WEBHOOK_ROW;
	describe(&m.why, kind, answer->status, url, m.told_ms);
	if (rule->hint)
		error_hint(&m.why, "%s", rule->hint);
	return m;
}
