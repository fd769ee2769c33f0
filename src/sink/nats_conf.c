#include "sink/nats_conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/slice.h"
#include "config/secret.h"
#include "sink/loopback.h"
#include "sink/nats_errors.h"

enum { CONNECT_TIMEOUT_MS = 5000 };

/* --- servers -------------------------------------------------------------------------------------------------- */

static struct slice trimmed(struct slice s)
{
	while (s.len > 0 && *s.ptr == ' ') {
		s.ptr++;
		s.len--;
	}
	while (s.len > 0 && s.ptr[s.len - 1] == ' ')
		s.len--;
	return s;
}

/* Takes away the scheme. False: it is one that we do not speak. */
static bool take_scheme(struct slice *s, bool *tls)
{
	const char *mark = memmem(s->ptr, s->len, "://", 3);
	struct slice scheme;

	if (!mark)
		return true;
	scheme = (struct slice){ s->ptr, (size_t)(mark - s->ptr) };
	if (!slice_is(scheme, "nats") && !slice_is(scheme, "tls"))
		return false;
	*tls |= slice_is(scheme, "tls");
	s->ptr += scheme.len + 3;
	s->len -= scheme.len + 3;
	return true;
}

static struct slice host_of(struct slice server)
{
	const char *end;

	if (server.len > 0 && server.ptr[0] == '[') {
		end = memchr(server.ptr, ']', server.len);
		return (struct slice){ server.ptr + 1, end ? (size_t)(end - server.ptr) - 1 : 0 };
	}
	end = memchr(server.ptr, ':', server.len);
	return (struct slice){ server.ptr, end ? (size_t)(end - server.ptr) : server.len };
}

static bool add_server(struct nats_servers *s, struct slice text, const char *where, struct error *err)
{
	struct slice server = text, host;

	if (memchr(text.ptr, '@', text.len)) {
		error_set(err, ERROR_CONFIG, "%s: a server of NATS is named without a user or password", where);
		return error_hint(err, "write them as user and password_file, or use token_file or credentials_file");
	}
	if (!take_scheme(&server, &s->tls) || (host = host_of(server)).len == 0) {
		error_set(err, ERROR_CONFIG, "%s: %.*s is not a server of NATS", where, (int)text.len, text.ptr);
		return error_hint(err, "write servers as nats://host:4222, several separated by commas");
	}
	s->items = mem_resize(s->items, (s->count + 1) * sizeof(*s->items));
	s->items[s->count++] = (struct nats_server){
		.url = mem_printf("nats://%.*s", (int)server.len, server.ptr),
		.host = mem_strndup(host.ptr, host.len),
	};
	return true;
}

/* Plain text leaves this machine only when asked for. */
static bool wants_tls(const struct nats_config *n, const struct nats_servers *s)
{
	if (n->tls != SINK_TLS_AUTO)
		return n->tls == SINK_TLS_ON;
	for (size_t i = 0; i < s->count; i++)
		if (!host_is_loopback(s->items[i].host))
			return true;
	return s->tls || n->tls_ca_file[0] || n->tls_cert_file[0];
}

/* Of two ways to say who we are, libnats would choose one. */
static bool one_identity(const struct sink_config *sink, struct error *err)
{
	const struct nats_config *n = &sink->nats;

	if (!!n->user[0] + !!n->token_file[0] + !!n->credentials_file[0] <= 1)
		return true;
	return error_set(err, ERROR_CONFIG, "%s: only one of user, token_file and credentials_file can be set", sink->where);
}

bool nats_servers_read(const struct sink_config *sink, struct nats_servers *ret, struct error *err)
{
	const char *at = sink->nats.servers;
	struct nats_servers s = { 0 };

	if (!one_identity(sink, err))
		return false;
	while (*at) {
		size_t len = strcspn(at, ",");
		struct slice text = trimmed((struct slice){ at, len });

		if (text.len > 0 && !add_server(&s, text, sink->where, err)) {
			nats_servers_release(&s);
			return false;
		}
		at += len + (at[len] == ',');
	}
	if (s.count == 0)
		return error_set(err, ERROR_CONFIG, "%s: servers names no server", sink->where);
	s.tls = wants_tls(&sink->nats, &s);
	*ret = s;
	return true;
}

void nats_servers_release(struct nats_servers *s)
{
	for (size_t i = 0; i < s->count; i++) {
		free(s->items[i].url);
		free(s->items[i].host);
	}
	free(s->items);
	*s = (struct nats_servers){ 0 };
}

/* --- options -------------------------------------------------------------------------------------------------- */

static bool done(natsStatus status, const char *what, const char *where, struct error *err)
{
	natsStatus last;

	if (status == NATS_OK)
		return true;
	error_set(err, ERROR_CONFIG, "%s: %s: %s", where, what, nats_GetLastError(&last));
	return false;
}

/* libnats would say that a file is wrong, but not always which. */
static bool readable(const char *option, const char *file, const char *where, struct error *err)
{
	if (access(file, R_OK) == 0)
		return true;
	return error_set(err, ERROR_CONFIG, "%s: %s: could not read %s: %s", where, option, file, strerror(errno));
}

static bool set_tls(natsOptions *o, const struct nats_config *n, const char *host, const char *where, struct error *err)
{
	if (!done(natsOptions_SetSecure(o, true), "tls", where, err) ||
	    !done(natsOptions_SetExpectedHostname(o, host), "servers", where, err))
		return false;
	if (n->tls_ca_file[0] &&
	    (!readable("tls_ca_file", n->tls_ca_file, where, err) ||
	     !done(natsOptions_LoadCATrustedCertificates(o, n->tls_ca_file), "tls_ca_file", where, err)))
		return false;
	if (!n->tls_cert_file[0])
		return true;
	return readable("tls_cert_file", n->tls_cert_file, where, err) &&
	       readable("tls_key_file", n->tls_key_file, where, err) &&
	       done(natsOptions_LoadCertificatesChain(o, n->tls_cert_file, n->tls_key_file), "tls_cert_file", where, err);
}

static bool set_credentials(natsOptions *o, const struct nats_config *n, const char *where, struct error *err)
{
	_cleanup_(mem_freep) char *secret = NULL;

	if (n->user[0])
		return (!n->password_file[0] || config_read_secret(n->password_file, &secret, err)) &&
		       done(natsOptions_SetUserInfo(o, n->user, secret), "user", where, err);
	if (n->token_file[0])
		return config_read_secret(n->token_file, &secret, err) &&
		       done(natsOptions_SetToken(o, secret), "token_file", where, err);
	if (n->credentials_file[0])
		return readable("credentials_file", n->credentials_file, where, err) &&
		       done(natsOptions_SetUserCredentialsFromFiles(o, n->credentials_file, NULL), "credentials_file", where, err);
	return true;
}

/* It must not reconnect by itself: it would first send what it has kept meanwhile, and by then nobody may want that any
 * more. Nor ping: that is done by a thread of its own, and who publishes finds out soon enough. */
static bool set_ours(natsOptions *o, const char *url, const char *where, struct error *err)
{
	return done(natsOptions_SetURL(o, url), "servers", where, err) &&
	       done(natsOptions_SetName(o, "postrider"), "name", where, err) &&
	       done(natsOptions_SetTimeout(o, CONNECT_TIMEOUT_MS), "timeout", where, err) &&
	       done(natsOptions_SetAllowReconnect(o, false), "reconnect", where, err) &&
	       done(natsOptions_SetIgnoreDiscoveredServers(o, true), "servers", where, err) &&
	       done(natsOptions_SetPingInterval(o, 0), "ping", where, err) &&
	       done(natsOptions_SetSendAsap(o, true), "send", where, err);
}

bool nats_conf_build(const struct sink_config *sink, const struct nats_servers *servers, size_t which, natsOptions **ret,
		     struct error *err)
{
	const struct nats_server *server = &servers->items[which];
	natsOptions *o;

	mem_must(natsOptions_Create(&o) == NATS_OK);
	if (!set_ours(o, server->url, sink->where, err) ||
	    (servers->tls && !set_tls(o, &sink->nats, server->host, sink->where, err))) {
		natsOptions_Destroy(o);
		return false;
	}
	*ret = o;
	return true;
}

/* Nothing of TLS may be set here: libnats would begin with a new context, without our authorities, as long as a connection
 * that is being closed uses the old one. */
bool nats_conf_identify(natsOptions *options, const struct sink_config *sink, struct error *err)
{
	return set_credentials(options, &sink->nats, sink->where, err);
}
