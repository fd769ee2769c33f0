#include "sink/sqs_check.h"

#include <string.h>
#include <time.h>

#include "aws/call.h"
#include "aws/fetch.h"
#include "base/mem.h"
#include "sink/sqs_errors.h"

/* One call that says whether a queue is there, or without one, whether somebody answers. */
struct question {
	const char *target;
	const char *member;             /* that names the queue; NULL: none does */
	bool needed;                    /* the sink itself asks it. Who may send need not be allowed to look otherwise. */
};

static struct question question_for(const char *topic)
{
	if (!topic)
		return (struct question){ "AmazonSQS.ListQueues", NULL, false };
	if (strncmp(topic, "http", 4) == 0 && strstr(topic, "://"))
		return (struct question){ "AmazonSQS.GetQueueAttributes", "QueueUrl", false };
	return (struct question){ "AmazonSQS.GetQueueUrl", "QueueName", true };
}

static void add_question(struct buf *b, const struct question *q, const char *topic)
{
	buf_add_char(b, '{');
	if (q->member) {
		buf_printf(b, "\"%s\":", q->member);
		buf_add_json(b, slice_of(topic));
	}
	buf_add_char(b, '}');
}

static bool ask(const struct sqs_service *service, const struct aws_credentials *credentials, const char *topic,
		struct error *err)
{
	_cleanup_(buf_release) struct buf body = { .ceiling = HTTP_BODY_KEPT }, answer = { .ceiling = HTTP_BODY_KEPT };
	_cleanup_(aws_call_release) struct aws_call call;
	struct http_options options = sqs_http_options(service);
	struct question q = question_for(topic);
	struct aws_refusal refusal;
	int status;

	add_question(&body, &q, topic);
	aws_call_init(&call, &service->endpoint, credentials, q.target, (struct slice){ buf_str(&body), body.len },
		      (int64_t)time(NULL));
	if (!aws_fetch(&options, &call.request, -1, &status, &answer, err))
		return false;
	if (status == 200)
		return true;
	aws_refusal_read((struct slice){ buf_str(&answer), answer.len }, &refusal);
	sqs_error_set(err, status, &refusal, slice_of(topic ? topic : "(any)"));
	return false;
}

static bool is_denied(const struct error *err)
{
	return err->kind == ERROR_AUTH && strstr(err->message, "AccessDenied");
}

void sqs_check(const struct sqs_service *service, const char *topic, struct finding_list *findings)
{
	_cleanup_(aws_credentials_release) struct aws_credentials credentials = { 0 };
	const char *where = service->endpoint.url;
	struct error err = { 0 };

	if (!aws_credentials_load(&service->sources, -1, &credentials, &err))
		finding_add_error(findings, &err);
	else if (ask(service, &credentials, topic, &err))
		finding_add(findings, FINDING_OK, NULL, "SQS at %s answers%s%s", where, topic ? ", and has queue " : "",
			    topic ? topic : "");
	else if (is_denied(&err) && !question_for(topic).needed)
		finding_add(findings, FINDING_OK, NULL, "SQS at %s answers; queues could not be looked at", where);
	else
		finding_add_error(findings, &err);
}
