#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "send.h"

enum { IN_FLIGHT = 1000, WORDS = 3 + 2 * (3 + SEND_HEADERS) };

static void append_entry(redisContext *redis, const struct load *load, const struct send_message *m)
{
	const char *words[WORDS] = {"XADD", load->topic, "*", "id", m->id, "key", m->key};
	size_t lengths[WORDS];
	int n = 7;

	for (int i = 0; i < SEND_HEADERS; i++) {
		words[n++] = m->headers[i].name;
		words[n++] = m->headers[i].value;
	}
	words[n++] = "payload";
	words[n++] = m->payload;
	for (int i = 0; i < n - 1; i++)
		lengths[i] = strlen(words[i]);
	lengths[n - 1] = m->payload_len;
	if (redisAppendCommandArgv(redis, n, words, lengths) != REDIS_OK)
		peer_die("redis: %s", redis->errstr);
}

static void take_replies(redisContext *redis, long n)
{
	while (n-- > 0) {
		redisReply *reply;

		if (redisGetReply(redis, (void **)&reply) != REDIS_OK)
			peer_die("redis: %s", redis->errstr);
		if (reply->type == REDIS_REPLY_ERROR)
			peer_die("redis: %s", reply->str);
		freeReplyObject(reply);
	}
}

static void send_all(const struct load *load)
{
	char *host = strdup(load->address);
	int port = send_port(host);
	redisContext *redis = redisConnect(host, port);
	struct send_message m = {0};
	long unanswered = 0;

	if (!redis || redis->err)
		peer_die("redis: %s", redis ? redis->errstr : "out of memory");
	for (long i = 0; i < load->rows; i++) {
		send_message_fill(&m, load, i);
		append_entry(redis, load, &m);
		if (++unanswered == IN_FLIGHT) {
			take_replies(redis, unanswered);
			unanswered = 0;
		}
	}
	take_replies(redis, unanswered);
	redisFree(redis);
	free(m.payload);
	free(host);
}

const struct sender send_redis = {"redis", send_all};
