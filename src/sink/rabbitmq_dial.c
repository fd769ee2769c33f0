#include "sink/rabbitmq_dial.h"

#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/mem.h"
#include "base/slice.h"
#include "config/secret.h"
#include "sink/loopback.h"
#include "sink/rabbitmq_errors.h"

enum { FRAME_MAX = 131072, PLAIN_PORT = 5672, TLS_PORT = 5671, GOODBYE_MS = 1000 };

/* RabbitMQ's own default, for its user of the same name. */
static const char default_password[] = "guest";

/* --- the settings ------------------------------------------------------------------------------------------------ */

/* host, host:port, [v6] or [v6]:port */
static bool read_host(struct slice text, struct rabbitmq_host *ret)
{
	bool bracketed = text.len > 0 && text.ptr[0] == '[';
	const char *end = text.ptr + text.len, *name = text.ptr + bracketed;
	const char *behind = bracketed ? memchr(name, ']', (size_t)(end - name)) : memchr(name, ':', (size_t)(end - name));
	const char *colon;
	long port = 0;

	if (bracketed && !behind)
		return false;
	if (!behind)
		behind = end;
	colon = behind + bracketed;
	if (colon < end) {
		char *rest;

		if (*colon != ':')
			return false;
		port = strtol(colon + 1, &rest, 10);
		if (rest != end || port < 1 || port > 65535)
			return false;
	}
	if (behind == name)
		return false;
	*ret = (struct rabbitmq_host){ mem_strndup(name, (size_t)(behind - name)), (int)port };
	return true;
}

/* Plain text leaves this machine only when asked for. */
static bool wants_tls(const struct rabbitmq_place *p)
{
	const struct rabbitmq_config *c = p->config;
	bool local = true;

	if (c->tls != SINK_TLS_AUTO)
		return c->tls == SINK_TLS_ON;
	for (uint32_t i = 0; i < p->n_hosts; i++)
		local = local && host_is_loopback(p->hosts[i].name);
	return c->tls_ca_file[0] || c->tls_cert_file[0] || !local;
}

static bool read_hosts(struct rabbitmq_place *p, const char *where, struct error *err)
{
	size_t len;

	for (const char *at = p->config->hosts + strspn(p->config->hosts, ", "); *at; at += len, at += strspn(at, ", ")) {
		len = strcspn(at, ", ");
		if (p->n_hosts == RABBITMQ_HOSTS_MAX)
			return error_set(err, ERROR_CONFIG, "%s: hosts: there are more than %d", where, RABBITMQ_HOSTS_MAX);
		if (!read_host((struct slice){ at, len }, &p->hosts[p->n_hosts]))
			return error_set(err, ERROR_CONFIG, "%s: hosts: \"%.*s\" is not a host, or host:port", where, (int)len, at);
		p->n_hosts++;
	}
	return p->n_hosts > 0 || error_set(err, ERROR_CONFIG, "%s: hosts is empty", where);
}

/* The library would say that a file is wrong, but not which. */
static bool check_file(const char *option, const char *file, const char *where, struct error *err)
{
	if (file[0] == '\0' || access(file, R_OK) == 0)
		return true;
	return error_set(err, ERROR_CONFIG, "%s: %s: could not read %s: %s", where, option, file, strerror(errno));
}

bool rabbitmq_place_init(struct rabbitmq_place *p, const struct rabbitmq_config *config, const char *where,
			 struct error *err)
{
	*p = (struct rabbitmq_place){ .config = config };
	if (!read_hosts(p, where, err) || !check_file("tls_ca_file", config->tls_ca_file, where, err) ||
	    !check_file("tls_cert_file", config->tls_cert_file, where, err) ||
	    !check_file("tls_key_file", config->tls_key_file, where, err) ||
	    !check_file("password_file", config->password_file, where, err))
		return false;
	p->tls = wants_tls(p);
	for (uint32_t i = 0; i < p->n_hosts; i++)
		if (p->hosts[i].port == 0)
			p->hosts[i].port = p->tls ? TLS_PORT : PLAIN_PORT;
	return true;
}

void rabbitmq_place_release(struct rabbitmq_place *p)
{
	for (uint32_t i = 0; i < p->n_hosts; i++)
		free(p->hosts[i].name);
}

/* --- the connection ---------------------------------------------------------------------------------------------- */

static struct timeval as_timeval(int64_t ms)
{
	return (struct timeval){ .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };
}

static bool use_certificates(amqp_socket_t *socket, const struct rabbitmq_config *c, struct error *err)
{
	amqp_ssl_socket_set_verify_peer(socket, 1);
	amqp_ssl_socket_set_verify_hostname(socket, 1);
	amqp_ssl_socket_set_ssl_versions(socket, AMQP_TLSv1_2, AMQP_TLSvLATEST);
	/* Without a file of ours the system's authorities count. */
	if (!c->tls_ca_file[0])
		SSL_CTX_set_default_verify_paths(amqp_ssl_socket_get_context(socket));
	else if (amqp_ssl_socket_set_cacert(socket, c->tls_ca_file) != AMQP_STATUS_OK)
		return error_set(err, ERROR_CONFIG, "tls_ca_file: %s has no certificates in PEM", c->tls_ca_file);
	if (c->tls_cert_file[0] && amqp_ssl_socket_set_key(socket, c->tls_cert_file, c->tls_key_file) != AMQP_STATUS_OK)
		return error_set(err, ERROR_CONFIG, "tls_cert_file and tls_key_file: %s and %s are not a certificate and its key",
				 c->tls_cert_file, c->tls_key_file);
	return true;
}

static bool open_socket(amqp_connection_state_t conn, const struct rabbitmq_place *p, const struct rabbitmq_host *host,
			struct error *err)
{
	struct timeval patience = as_timeval(p->config->connect_timeout_ms);
	amqp_socket_t *socket = p->tls ? amqp_ssl_socket_new(conn) : amqp_tcp_socket_new(conn);
	int status;

	mem_must(socket);
	if (p->tls && !use_certificates(socket, p->config, err))
		return false;
	status = amqp_socket_open_noblock(socket, host->name, host->port, &patience);
	return status == AMQP_STATUS_OK || rabbitmq_error_status(err, status);
}

static amqp_table_entry_t flag_entry(const char *name)
{
	return (amqp_table_entry_t){ .key = amqp_cstring_bytes(name),
				     .value = { .kind = AMQP_FIELD_KIND_BOOLEAN, .value.boolean = 1 } };
}

/* The library does not tell the server that it understands connection.blocked, so we do. */
static amqp_rpc_reply_t log_in(amqp_connection_state_t conn, const struct rabbitmq_config *c, const char *password)
{
	amqp_table_entry_t capability = flag_entry("connection.blocked");
	amqp_table_entry_t entries[] = {
		{ .key = amqp_cstring_bytes("product"),
		  .value = { .kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("postrider") } },
		{ .key = amqp_cstring_bytes("connection_name"),
		  .value = { .kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes("postrider") } },
		{ .key = amqp_cstring_bytes("capabilities"),
		  .value = { .kind = AMQP_FIELD_KIND_TABLE, .value.table = { .num_entries = 1, .entries = &capability } } },
	};
	amqp_table_t properties = { .num_entries = ARRAY_SIZE(entries), .entries = entries };

	return amqp_login_with_properties(conn, c->vhost, 0, FRAME_MAX, (int)(c->heartbeat_ms / 1000), &properties,
					  AMQP_SASL_METHOD_PLAIN, c->user, password);
}

static bool introduce(amqp_connection_state_t conn, const struct rabbitmq_config *c, struct error *err)
{
	_cleanup_(mem_freep) char *password = NULL;
	struct timeval patience = as_timeval(c->connect_timeout_ms);
	amqp_rpc_reply_t reply;

	/* At each connect, so that a password may change while the relay runs. */
	if (c->password_file[0] && !config_read_secret(c->password_file, &password, err))
		return false;
	amqp_set_handshake_timeout(conn, &patience);
	amqp_set_rpc_timeout(conn, &patience);
	reply = log_in(conn, c, password ? password : default_password);
	return reply.reply_type == AMQP_RESPONSE_NORMAL || rabbitmq_error_reply(err, reply);
}

static bool reach(amqp_connection_state_t conn, const struct rabbitmq_place *p, const struct rabbitmq_host *host,
		  rabbitmq_opened *opened, void *context, struct error *err)
{
	if (!open_socket(conn, p, host, err))
		return false;
	if (opened)
		opened(amqp_get_sockfd(conn), context);
	return introduce(conn, p->config, err);
}

bool rabbitmq_connect(const struct rabbitmq_place *p, uint32_t turn, rabbitmq_opened *opened, void *context,
		      amqp_connection_state_t *ret, struct error *err)
{
	const struct rabbitmq_host *host = &p->hosts[turn % p->n_hosts];
	amqp_connection_state_t conn = amqp_new_connection();

	mem_must(conn);
	if (!reach(conn, p, host, opened, context, err)) {
		amqp_destroy_connection(conn);
		return error_prefix(err, "could not connect to RabbitMQ at %s:%d", host->name, host->port);
	}
	*ret = conn;
	return true;
}

bool rabbitmq_open_channel(amqp_connection_state_t conn, const char *exchange, struct error *err)
{
	if (!amqp_channel_open(conn, RABBITMQ_CHANNEL) || !amqp_confirm_select(conn, RABBITMQ_CHANNEL)) {
		rabbitmq_error_reply(err, amqp_get_rpc_reply(conn));
		return error_prefix(err, "could not open a channel with confirms");
	}
	/* Publishing to an exchange that is not there would cost the channel and blame rows. The default one always is. */
	if (exchange[0] && !amqp_exchange_declare(conn, RABBITMQ_CHANNEL, amqp_cstring_bytes(exchange), amqp_empty_bytes, 1, 0, 0,
						  0, amqp_empty_table)) {
		rabbitmq_error_reply(err, amqp_get_rpc_reply(conn));
		return error_prefix(err, "exchange %s", exchange);
	}
	return true;
}

bool rabbitmq_find_queue(amqp_connection_state_t conn, const char *queue, struct error *err)
{
	if (amqp_queue_declare(conn, RABBITMQ_CHANNEL, amqp_cstring_bytes(queue), 1, 0, 0, 0, amqp_empty_table))
		return true;
	rabbitmq_error_reply(err, amqp_get_rpc_reply(conn));
	return error_prefix(err, "queue %s", queue);
}

void rabbitmq_disconnect(amqp_connection_state_t conn, bool polite)
{
	struct timeval patience = as_timeval(GOODBYE_MS);

	if (polite) {
		amqp_set_rpc_timeout(conn, &patience);
		amqp_connection_close(conn, AMQP_REPLY_SUCCESS);
	}
	amqp_destroy_connection(conn);
}
