#include "sink/redis_server.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/mem.h"
#include "config/secret.h"
#include "sink/redis_entry.h"
#include "sink/redis_errors.h"

#define REQUEST_CEILING ((size_t)1 << 20)

/* Plain text leaves this machine only when asked for. */
static bool wants_tls(const struct redis_config *c, const struct tcp_address *address)
{
	if (c->tls != SINK_TLS_AUTO)
		return c->tls == SINK_TLS_ON;
	return c->tls_ca_file[0] || c->tls_cert_file[0] || c->tls_server_name[0] || !tcp_address_is_loopback(address);
}

bool redis_server_init(struct redis_server *s, const struct sink_config *config, struct error *err)
{
	const struct redis_config *c = &config->redis;

	*s = (struct redis_server){ .config = c };
	if (!tcp_address_parse(c->address, &s->address, err))
		return error_prefix(err, "%s: address \"%s\"", config->where, c->address);
	if (!wants_tls(c, &s->address))
		return true;
	return redis_tls_new(c, c->tls_server_name[0] ? c->tls_server_name : s->address.host, &s->tls, err) ||
	       error_prefix(err, "%s", config->where);
}

void redis_server_release(struct redis_server *s)
{
	redis_tls_free(s->tls);
}

static bool flush_all(struct redis_link *l, const struct redis_wait *wait, struct error *err)
{
	while (l->unflushed)
		if (!tcp_wait(redis_link_fd(l), POLLOUT, wait->interrupt_fd, wait->deadline_ms, err) ||
		    !redis_link_flush(l, err))
			return false;
	return true;
}

/* The handshake of TLS may want to read before it can write, so both are waited for. */
static bool await_reply(struct redis_link *l, const struct redis_wait *wait, redisReply **ret, struct error *err)
{
	for (*ret = NULL;;) {
		if (!redis_link_next(l, ret, err) || *ret)
			return *ret != NULL;
		if (!tcp_wait(redis_link_fd(l), POLLIN, wait->interrupt_fd, wait->deadline_ms, err))
			return false;
		/* The server's last words come before the end of the connection. */
		if (!redis_link_read(l, err)) {
			struct error ignored;

			return redis_link_next(l, ret, &ignored) && *ret;
		}
		if (l->unflushed && !redis_link_flush(l, err))
			return false;
	}
}

bool redis_ask(struct redis_link *l, const struct redis_wait *wait, const char *const words[], uint32_t n,
	       redisReply **ret, struct error *err)
{
	_cleanup_(buf_release) struct buf text = { .ceiling = REQUEST_CEILING };
	_cleanup_(redis_reply_freep) redisReply *reply = NULL;

	buf_add_command(&text, words, n);
	if (!redis_link_send(l, (struct slice){ buf_str(&text), text.len }, err) || (!l->tls && !flush_all(l, wait, err)) ||
	    !await_reply(l, wait, &reply, err))
		return false;
	if (reply->type == REDIS_REPLY_ERROR)
		return redis_error_set(err, redis_reply_text(reply));
	if (ret)
		*ret = TAKE_PTR(reply);
	return true;
}

static bool log_in(struct redis_link *l, const struct redis_wait *wait, const struct redis_config *c, struct error *err)
{
	_cleanup_(mem_freep) char *password = NULL;

	if (c->password_file[0] == '\0')
		return true;
	if (!config_read_secret(c->password_file, &password, err))
		return false;
	if (c->user[0] == '\0')
		return REDIS_ASK(l, wait, NULL, err, "AUTH", password);
	return REDIS_ASK(l, wait, NULL, err, "AUTH", c->user, password);
}

static bool select_database(struct redis_link *l, const struct redis_wait *wait, const struct redis_config *c,
			    struct error *err)
{
	char number[24];

	snprintf(number, sizeof(number), "%" PRId64, c->database);
	return c->database == 0 || REDIS_ASK(l, wait, NULL, err, "SELECT", number);
}

/* What the user may not do is better known before rows are sent: without MULTI, XADD would run by itself. */
static bool try_commands(struct redis_link *l, const struct redis_wait *wait, const struct redis_config *c,
			 struct error *err)
{
	return REDIS_ASK(l, wait, NULL, err, "MULTI") && REDIS_ASK(l, wait, NULL, err, "EXEC") &&
	       (c->wait_replicas == 0 || REDIS_ASK(l, wait, NULL, err, "WAIT", "0", "1"));
}

bool redis_server_connect(const struct redis_server *s, int interrupt_fd, struct redis_link **ret, struct error *err)
{
	struct redis_wait wait = { interrupt_fd, clock_ms() + s->config->connect_timeout_ms };
	_cleanup_(redis_link_freep) struct redis_link *l = NULL;
	int fd;

	if (!tcp_connect(&s->address, interrupt_fd, wait.deadline_ms, &fd, err))
		return false;
	l = redis_link_new(fd);
	if ((s->tls && !redis_tls_start(s->tls, l, err)) || !log_in(l, &wait, s->config, err) ||
	    !select_database(l, &wait, s->config, err) || !try_commands(l, &wait, s->config, err)) {
		if (s->tls && err->kind == ERROR_TRANSPORT)
			redis_tls_explain(s->tls, l, err);
		return error_prefix(err, "%s:%s", s->address.host, s->address.port);
	}
	*ret = TAKE_PTR(l);
	return true;
}
