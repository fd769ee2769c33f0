#include "sink/nats_check.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "sink/nats_errors.h"
#include "sink/nats_link.h"

#define STREAM_NAMES "$JS.API.STREAM.NAMES"

/* The first server that takes us; the last one says why none did. */
static bool connect_any(const struct sink_config *config, const struct nats_servers *servers, struct nats_link **ret,
			struct error *err)
{
	bool connected = false;

	for (size_t i = 0; !connected && i < servers->count; i++) {
		natsOptions *options;

		if (!nats_conf_build(config, servers, i, &options, err))
			return false;
		connected = nats_conf_identify(options, config, err) && nats_link_open(options, NULL, NULL, ret, err);
		if (!connected)
			error_prefix(err, "%s", servers->items[i].url);
		natsOptions_Destroy(options);
	}
	return connected;
}

static bool find_stream(struct nats_link *link, const char *subject, struct nats_answer *ret, struct error *err)
{
	_cleanup_(buf_release) struct buf body = { .ceiling = 64 * 1024 };

	buf_add_str(&body, "{\"subject\":");
	buf_add_json(&body, slice_of(subject));
	buf_add_char(&body, '}');
	if (!nats_link_ask(link, STREAM_NAMES, buf_str(&body), ret, err))
		return false;
	if (ret->refused)
		return nats_code_error(err, ret->code, ret->class, ret->description);
	if (!ret->stream[0])
		return nats_code_error(err, NATS_NO_RESPONDERS, 0, "no stream takes this subject");
	return true;
}

/* One whose rows may not ask is not wrong for it. */
static void say_unanswered(const struct sink_config *config, const struct error *err, struct finding_list *findings)
{
	finding_add(findings, FINDING_WARN, "allow the user to publish to $JS.API.STREAM.INFO.> and $JS.API.STREAM.NAMES",
		    "sink %s: the server answers, but streams could not be looked at: %s", config->name, err->message);
}

static bool subject_is_kept(struct nats_link *link, const struct sink_config *config, const char *topic,
			    struct nats_answer *ret, struct error *err)
{
	const char *stream = config->nats.stream;

	if (!find_stream(link, topic, ret, err)) {
		error_prefix(err, "subject %s", topic);
		return false;
	}
	if (stream[0] && strcmp(stream, ret->stream) != 0) {
		error_set(err, ERROR_CONFIG, "subject %s belongs to stream %s, not to %s", topic, ret->stream, stream);
		return error_hint(err, "check stream and route.topic, or the subjects of the streams");
	}
	return true;
}

static void look(struct nats_link *link, const struct sink_config *config, const char *topic, struct finding_list *findings)
{
	const char *stream = config->nats.stream;
	struct nats_answer answer;
	struct error err = { 0 };

	if ((stream[0] && !nats_link_expect_stream(link, stream, &err)) ||
	    (topic && !subject_is_kept(link, config, topic, &answer, &err))) {
		if (err.kind == ERROR_LOST) {
			say_unanswered(config, &err, findings);
			return;
		}
		error_prefix(&err, "sink %s", config->name);
		finding_add_error(findings, &err);
	} else if (topic) {
		finding_add(findings, FINDING_OK, NULL, "sink %s: the server answers, stream %s keeps subject %s", config->name,
			    answer.stream, topic);
	} else {
		finding_add(findings, FINDING_OK, NULL,
			    "sink %s: the server answers%s%s; the subject differs by row and was not looked at", config->name,
			    stream[0] ? ", and has stream " : "", stream);
	}
}

void nats_check(const struct sink_config *config, const struct nats_servers *servers, const char *topic,
		struct finding_list *findings)
{
	struct nats_link *link;
	struct error err = { 0 };

	if (!connect_any(config, servers, &link, &err)) {
		error_prefix(&err, "sink %s", config->name);
		finding_add_error(findings, &err);
		return;
	}
	look(link, config, topic, findings);
	nats_link_close(link);
}
