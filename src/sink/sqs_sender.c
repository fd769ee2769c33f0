#include "sink/sqs_sender.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aws/call.h"
#include "aws/members.h"
#include "base/clock.h"
#include "base/mem.h"
#include "sink/sqs_answer.h"
#include "sink/sqs_batch.h"
#include "sink/sqs_errors.h"

enum {
	RETRY_FIRST_MS = 200,
	RETRY_MAX_MS = 10000,
	WAITING_PER_REQUEST = 2 * SQS_BATCH_MAX,        /* enough for the next batch to be full */
};

struct sqs_request {
	struct sqs_sender *sender;
	struct sqs_queue *queue;        /* NULL: nothing is under way */
	struct sqs_batch batch;         /* empty: the URL of the queue is asked for */
};

struct http_options sqs_http_options(const struct sqs_service *service)
{
	return (struct http_options){
		.user_agent = "postrider/" POSTRIDER_VERSION,
		.connect_timeout_ms = service->config->connect_timeout_ms,
		.request_timeout_ms = service->config->answer_timeout_ms,
		.ca_file = service->config->tls_ca_file,
	};
}

/* --- trouble, and its end ------------------------------------------------------------------------------------- */

/* Of requests that fail together, the first one begins the pause. */
static void pause_after(struct sqs_sender *s, const struct error *why)
{
	breaker_open(s->breaker, why);
	s->troubled = true;
	if (!s->paused)
		s->retry_at_ms = s->now_ms + backoff_next(&s->backoff);
	s->paused = true;
}

static void recover(struct sqs_sender *s)
{
	s->troubled = false;
	backoff_reset(&s->backoff);
	breaker_close(s->breaker);
}

/* True when the service is well, whatever it refuses. */
static bool mind_scope(struct sqs_sender *s, enum sqs_scope scope, const struct error *why)
{
	if (scope == SQS_CREDENTIALS)
		aws_keyring_doubt(&s->keyring);
	if (scope >= SQS_SERVICE)
		pause_after(s, why);
	return scope < SQS_SERVICE;
}

static void fail_waiting(struct sqs_sender *s, struct sqs_queue *queue, const struct error *why)
{
	outcomes_fail(s->outcomes, queue->waiting, queue->n_waiting, why);
	sqs_queue_drop(&s->queues, queue, queue->n_waiting);
}

static void fail_all_waiting(struct sqs_sender *s, const struct error *why)
{
	for (uint32_t i = 0; i < s->queues.count; i++)
		fail_waiting(s, s->queues.items[i], why);
}

/* --- answers -------------------------------------------------------------------------------------------------- */

/* Whom a refusal of several rows is meant for is not said: they go again one by one. */
static void refuse_batch(struct sqs_sender *s, struct sqs_request *r, const struct error *why)
{
	struct sqs_batch *b = &r->batch;

	if (why->kind != ERROR_REJECTED || b->count == 1) {
		outcomes_fail(s->outcomes, b->events, b->count, why);
		return;
	}
	for (uint32_t i = 0; i < b->count; i++)
		b->events[i]->alone = true;
	sqs_queue_push_front(&s->queues, r->queue, b->events, b->count);
}

static void take_refusal(struct sqs_sender *s, struct sqs_request *r, const struct http_answer *answer)
{
	enum sqs_scope scope = SQS_SERVICE;
	struct aws_refusal refusal;
	struct error why = answer->why;

	if (answer->status != 0) {
		aws_refusal_read(answer->body, &refusal);
		scope = sqs_error_set(&why, answer->status, &refusal, sqs_queue_topic(r->queue));
	}
	if (scope == SQS_QUEUE)
		sqs_queue_forget_url(r->queue);
	if (mind_scope(s, scope, &why))
		recover(s);
	if (r->batch.count > 0)
		refuse_batch(s, r, &why);
	else
		fail_waiting(s, r->queue, &why);
}

/* False when it tells of trouble with the service. */
static bool take_entry(struct sqs_sender *s, struct sqs_request *r, const struct sqs_answer *a, uint32_t number)
{
	struct event *const *event = &r->batch.events[number];
	struct error why;
	bool well = false;

	switch (a->fate[number]) {
	case SQS_STORED:
		outcomes_deliver(s->outcomes, event, 1);
		return true;
	case SQS_REFUSED:
		well = mind_scope(s, sqs_error_set(&why, 200, &a->why[number], sqs_queue_topic(r->queue)), &why);
		break;
	case SQS_UNKNOWN:
		error_set(&why, ERROR_LOST, "queue %s: the answer does not say what became of the message", r->queue->topic);
		pause_after(s, &why);
		break;
	}
	outcomes_fail(s->outcomes, event, 1, &why);
	return well;
}

static void take_results(struct sqs_sender *s, struct sqs_request *r, struct slice body)
{
	struct sqs_answer a;
	bool well = sqs_answer_read(body, &a);

	for (uint32_t i = 0; i < r->batch.count; i++)
		well = take_entry(s, r, &a, i) && well;
	if (well)
		recover(s);
}

static void take_url(struct sqs_sender *s, struct sqs_request *r, struct slice body)
{
	char url[2048];
	const struct aws_member members[] = { AWS_MEMBER("QueueUrl", url) };
	struct error why;

	if (body.ptr && aws_members_read(body, members, 1) && url[0]) {
		r->queue->url = mem_strdup(url);
		recover(s);
		return;
	}
	error_set(&why, ERROR_CONFIG, "queue %s: the endpoint does not answer as SQS does", r->queue->topic);
	error_hint(&why, "check endpoint");
	pause_after(s, &why);
	fail_waiting(s, r->queue, &why);
}

static void take_answer(void *request, const struct http_answer *answer)
{
	struct sqs_request *r = request;
	struct sqs_sender *s = r->sender;
	bool asked = r->batch.count == 0;

	s->under_way--;
	r->queue->under_way--;
	if (asked)
		r->queue->asking = false;
	if (answer->status != 200)
		take_refusal(s, r, answer);
	else if (asked)
		take_url(s, r, answer->body);
	else
		take_results(s, r, answer->body);
	sqs_batch_clear(&r->batch);
	r->queue = NULL;
}

/* --- requests ------------------------------------------------------------------------------------------------- */

static struct sqs_request *free_request(struct sqs_sender *s)
{
	for (uint32_t i = 0; i < s->n_requests; i++)
		if (!s->requests[i].queue)
			return &s->requests[i];
	return NULL;
}

static uint32_t allowed(const struct sqs_sender *s)
{
	return s->troubled ? 1 : s->n_requests;
}

/* False: it could not even be begun, and the batch has come back. */
static bool start(struct sqs_sender *s, struct sqs_request *r, struct sqs_queue *queue, const char *target,
		  const struct aws_credentials *credentials)
{
	_cleanup_(aws_call_release) struct aws_call call;
	struct error why;

	aws_call_init(&call, &s->service->endpoint, credentials, target, sqs_batch_body(&r->batch), (int64_t)time(NULL));
	if (!http_start(s->http, &call.request, r, &why)) {
		outcomes_fail(s->outcomes, r->batch.events, r->batch.count, &why);
		sqs_batch_clear(&r->batch);
		pause_after(s, &why);
		return false;
	}
	r->queue = queue;
	queue->under_way++;
	s->under_way++;
	return true;
}

static void ask_url(struct sqs_sender *s, struct sqs_queue *queue, const struct aws_credentials *credentials)
{
	struct sqs_request *r = free_request(s);

	if (queue->asking)
		return;
	sqs_batch_ask(&r->batch, queue);
	queue->asking = start(s, r, queue, "AmazonSQS.GetQueueUrl", credentials);
}

static bool send_batch(struct sqs_sender *s, struct sqs_queue *queue, const struct aws_credentials *credentials)
{
	struct sqs_request *r = free_request(s);

	sqs_batch_fill(&r->batch, &s->queues, queue, (size_t)s->service->config->max_message_bytes, s->outcomes);
	return r->batch.count == 0 || start(s, r, queue, "AmazonSQS.SendMessageBatch", credentials);
}

static void serve(struct sqs_sender *s, struct sqs_queue *queue, const struct aws_credentials *credentials)
{
	while (queue->url && queue->n_waiting > 0 && s->under_way < allowed(s))
		if (!send_batch(s, queue, credentials))
			return;
	if (!queue->url && queue->n_waiting > 0 && s->under_way < allowed(s))
		ask_url(s, queue, credentials);
}

static void dispatch(struct sqs_sender *s)
{
	const struct aws_credentials *credentials;

	if (s->queues.n_waiting == 0 || s->paused)
		return;
	credentials = aws_keyring_get(&s->keyring, s->now_ms, (int64_t)time(NULL));
	if (!credentials)
		return;
	s->turn++;
	for (uint32_t i = 0; i < s->queues.count && !s->paused; i++)
		serve(s, s->queues.items[(s->turn + i) % s->queues.count], credentials);
}

/* --- for the sink --------------------------------------------------------------------------------------------- */

bool sqs_sender_init(struct sqs_sender *s, const struct sqs_service *service, struct outcomes *outcomes,
		     struct breaker *breaker, struct error *err)
{
	struct http_options options = sqs_http_options(service);

	*s = (struct sqs_sender){ .service = service, .outcomes = outcomes, .breaker = breaker };
	if (!http_new(&options, take_answer, &s->http, err))
		return false;
	aws_keyring_init(&s->keyring, &service->sources);
	backoff_init(&s->backoff, RETRY_FIRST_MS, RETRY_MAX_MS, random_seed());
	s->n_requests = (uint32_t)service->config->requests;
	s->requests = mem_new_array(struct sqs_request, s->n_requests);
	for (uint32_t i = 0; i < s->n_requests; i++) {
		s->requests[i].sender = s;
		sqs_batch_init(&s->requests[i].batch);
	}
	return true;
}

void sqs_sender_release(struct sqs_sender *s)
{
	struct error why;

	http_free(s->http);
	error_set(&why, ERROR_LOST, "the sink was closed before SQS answered");
	fail_all_waiting(s, &why);
	for (uint32_t i = 0; i < s->n_requests; i++) {
		outcomes_fail(s->outcomes, s->requests[i].batch.events, s->requests[i].batch.count, &why);
		sqs_batch_release(&s->requests[i].batch);
	}
	free(s->requests);
	sqs_queues_release(&s->queues);
	aws_keyring_release(&s->keyring);
}

uint32_t sqs_sender_submit(struct sqs_sender *s, struct event *const events[], uint32_t n, int64_t now_ms)
{
	uint32_t taken = 0;

	s->now_ms = now_ms;
	if (s->paused)
		return 0;
	for (; taken < n && s->queues.n_waiting < WAITING_PER_REQUEST * allowed(s); taken++)
		sqs_queue_push(&s->queues, sqs_queues_find(&s->queues, events[taken]->topic), events[taken]);
	dispatch(s);
	return taken;
}

void sqs_sender_pump(struct sqs_sender *s, int64_t now_ms)
{
	struct error why;

	s->now_ms = now_ms;
	if (s->paused && now_ms >= s->retry_at_ms)
		s->paused = false;
	if (!aws_keyring_pump(&s->keyring, now_ms, (int64_t)time(NULL), &why)) {
		pause_after(s, &why);
		fail_all_waiting(s, &why);
	}
	http_pump(s->http, now_ms);
	dispatch(s);
}

/* Credentials that are being renewed are looked at when a request ends, so that one descriptor is enough. */
int sqs_sender_pollfd(const struct sqs_sender *s, short *ret_events, int64_t *ret_deadline_ms)
{
	int fd = http_pollfd(s->http, ret_events, ret_deadline_ms);

	if (s->under_way == 0 && aws_keyring_fd(&s->keyring) >= 0) {
		*ret_events = POLLIN;
		fd = aws_keyring_fd(&s->keyring);
	}
	if (s->paused)
		*ret_deadline_ms = MIN(*ret_deadline_ms, s->retry_at_ms);
	return fd;
}

void sqs_sender_recall(struct sqs_sender *s)
{
	struct error why;

	error_set(&why, ERROR_LOST, "not sent: the claim on its entity is gone");
	fail_all_waiting(s, &why);
}
