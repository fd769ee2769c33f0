#include "sink/redis_link.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "base/macros.h"
#include "base/mem.h"

struct redis_link *redis_link_new(int fd)
{
	struct redis_link *l = mem_new(struct redis_link);

	l->context = redisConnectFd(fd);
	mem_must(l->context && !l->context->err);
	/* hiredis takes a descriptor that it did not open for a blocking one. */
	l->context->flags &= ~REDIS_BLOCK;
	return l;
}

void redis_link_free(struct redis_link *l)
{
	/* Otherwise the kernel would go on to send what it has, even to a server that hears it only minutes later. */
	struct linger at_once = { .l_onoff = 1, .l_linger = 0 };

	if (!l)
		return;
	setsockopt(redis_link_fd(l), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	redisFree(l->context);
	free(l);
}

void redis_link_freep(struct redis_link **l)
{
	redis_link_free(TAKE_PTR(*l));
}

int redis_link_fd(const struct redis_link *l)
{
	return l->context->fd;
}

static bool fail(struct redis_link *l, const char *what, struct error *err)
{
	error_set(err, ERROR_TRANSPORT, "%s: %s", what, l->context->errstr);
	/* A connection that takes nothing more may still hold the server's last words: hiredis is to hand them out. */
	l->context->err = 0;
	l->context->errstr[0] = '\0';
	l->unflushed = false;
	return false;
}

bool redis_link_flush(struct redis_link *l, struct error *err)
{
	int done = 0;

	if (redisBufferWrite(l->context, &done) != REDIS_OK)
		return fail(l, "could not send to Redis", err);
	l->unflushed = !done;
	return true;
}

bool redis_link_send(struct redis_link *l, struct slice text, struct error *err)
{
	mem_must(redisAppendFormattedCommand(l->context, text.ptr, text.len) == REDIS_OK);
	l->unflushed = true;
	return redis_link_flush(l, err);
}

bool redis_link_read(struct redis_link *l, struct error *err)
{
	size_t before;

	/* Until nothing comes: TLS may hold bytes that the descriptor does not tell of. */
	do {
		before = l->context->reader->len;
		if (redisBufferRead(l->context) != REDIS_OK)
			return fail(l, "lost the connection to Redis", err);
	} while (l->context->reader->len > before);
	return true;
}

bool redis_link_next(struct redis_link *l, redisReply **ret, struct error *err)
{
	void *reply = NULL;

	if (redisReaderGetReply(l->context->reader, &reply) != REDIS_OK)
		return error_set(err, ERROR_TRANSPORT, "Redis sent what is not its protocol: %s",
				 l->context->reader->errstr);
	*ret = reply;
	return true;
}

struct slice redis_reply_text(const redisReply *r)
{
	return r->str ? (struct slice){ r->str, (size_t)r->len } : SLICE_LITERAL("");
}

void redis_reply_freep(redisReply **r)
{
	if (*r)
		freeReplyObject(*r);
	*r = NULL;
}
