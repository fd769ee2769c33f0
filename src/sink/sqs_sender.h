/* Batches to SQS, several at a time, inside the worker's loop.
 *
 * Rows wait for a free request, and those of a queue that wait together travel together, up to ten of them: a single row
 * leaves at once, and under load batches are full. There is never a pause to wait for more. When the service cannot be
 * reached, refuses us or wants us to slow down, nothing is taken, and after a growing pause one request alone finds out
 * whether it is over. */
#ifndef POSTRIDER_SINK_SQS_SENDER_H
#define POSTRIDER_SINK_SQS_SENDER_H

#include "aws/endpoint.h"
#include "aws/keyring.h"
#include "base/backoff.h"
#include "config/config.h"
#include "sink/breaker.h"
#include "sink/http.h"
#include "sink/outcome.h"
#include "sink/sqs_queue.h"

struct sqs_request;

/* What a target has read from its settings, for all its workers. */
struct sqs_service {
	const struct sqs_config *config;
	struct aws_endpoint endpoint;
	struct aws_sources sources;
};

struct sqs_sender {
	const struct sqs_service *service;
	struct outcomes *outcomes;
	struct breaker *breaker;

	struct aws_keyring keyring;
	struct http *http;
	struct sqs_request *requests;   /* as many as may be under way */
	uint32_t n_requests;
	uint32_t under_way;

	struct sqs_queues queues;
	uint32_t turn;                  /* the queue that is served next */

	struct backoff backoff;
	bool troubled;                  /* the last request that says something about the service failed */
	bool paused;                    /* until retry_at_ms */
	int64_t retry_at_ms;
	int64_t now_ms;                 /* of the last call */
};

/* What HTTP is told about this service. */
struct http_options sqs_http_options(const struct sqs_service *service);

/* The arguments must outlive it, and stay where they are. */
bool sqs_sender_init(struct sqs_sender *s, const struct sqs_service *service, struct outcomes *outcomes,
		     struct breaker *breaker, struct error *err);
/* Events that wait or are under way come back as ERROR_LOST. */
void sqs_sender_release(struct sqs_sender *s);

/* As the functions of a sink. */
uint32_t sqs_sender_submit(struct sqs_sender *s, struct event *const events[], uint32_t n, int64_t now_ms);
int sqs_sender_pollfd(const struct sqs_sender *s, short *ret_events, int64_t *ret_deadline_ms);
void sqs_sender_pump(struct sqs_sender *s, int64_t now_ms);
/* Those that wait come back; a request that was begun is answered. */
void sqs_sender_recall(struct sqs_sender *s);

#endif
