#include "sink/redis_tls.h"

#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include "base/macros.h"
#include "base/mem.h"

struct redis_tls {
	SSL_CTX *context;
	bool has_certificate;           /* of ours */
	char *server_name;
};

static const char *last_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());

	return reason ? reason : "unknown error";
}

static bool refuse_file(const char *option, const char *file, struct error *err)
{
	return error_set(err, ERROR_CONFIG, "%s: could not use %s: %s", option, file, last_reason());
}

static bool load_authorities(SSL_CTX *context, const char *file, struct error *err)
{
	if (file[0] == '\0') {
		SSL_CTX_set_default_verify_paths(context);
		return true;
	}
	return SSL_CTX_load_verify_locations(context, file, NULL) == 1 || refuse_file("tls_ca_file", file, err);
}

static bool load_own(SSL_CTX *context, const struct redis_config *c, struct error *err)
{
	if (c->tls_cert_file[0] == '\0')
		return true;
	if (SSL_CTX_use_certificate_chain_file(context, c->tls_cert_file) != 1)
		return refuse_file("tls_cert_file", c->tls_cert_file, err);
	return SSL_CTX_use_PrivateKey_file(context, c->tls_key_file, SSL_FILETYPE_PEM) == 1 ||
	       refuse_file("tls_key_file", c->tls_key_file, err);
}

bool redis_tls_new(const struct redis_config *config, const char *server_name, struct redis_tls **ret, struct error *err)
{
	struct redis_tls *t = mem_new(struct redis_tls);

	ERR_clear_error();
	t->server_name = mem_strdup(server_name);
	t->has_certificate = config->tls_cert_file[0] != '\0';
	t->context = SSL_CTX_new(TLS_client_method());
	mem_must(t->context);
	SSL_CTX_set_min_proto_version(t->context, TLS1_2_VERSION);
	SSL_CTX_set_verify(t->context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_mode(t->context, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	if (!load_authorities(t->context, config->tls_ca_file, err) || !load_own(t->context, config, err)) {
		redis_tls_free(t);
		return false;
	}
	*ret = t;
	return true;
}

void redis_tls_free(struct redis_tls *t)
{
	if (!t)
		return;
	SSL_CTX_free(t->context);
	free(t->server_name);
	free(t);
}

static bool is_ip(const char *name)
{
	unsigned char ignored[sizeof(struct in6_addr)];

	return inet_pton(AF_INET, name, ignored) == 1 || inet_pton(AF_INET6, name, ignored) == 1;
}

static bool expect_name(SSL *ssl, const char *name)
{
	if (is_ip(name))
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
	SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

static bool refuse(const struct redis_tls *t, long result, struct error *err)
{
	error_set(err, ERROR_AUTH, "the certificate of Redis was refused: %s", X509_verify_cert_error_string(result));
	return error_hint(err, "check tls_ca_file, and that the certificate names %s (tls_server_name, or else the host of `address`)",
			  t->server_name);
}

/* The server may have said everything already, so that a handshake can fail here. */
bool redis_tls_start(const struct redis_tls *t, struct redis_link *l, struct error *err)
{
	SSL *ssl = SSL_new(t->context);
	long result;

	mem_must(ssl);
	if (expect_name(ssl, t->server_name) && redisInitiateSSL(l->context, ssl) == REDIS_OK) {
		l->tls = ssl;
		return true;
	}
	result = SSL_get_verify_result(ssl);
	SSL_free(ssl);
	if (result != X509_V_OK)
		return refuse(t, result, err);
	return error_set(err, ERROR_TRANSPORT, "could not begin TLS with Redis: %s", l->context->errstr);
}

void redis_tls_explain(const struct redis_tls *t, const struct redis_link *l, struct error *err)
{
	long result = l->tls ? SSL_get_verify_result(l->tls) : X509_V_OK;

	if (result != X509_V_OK)
		refuse(t, result, err);
	else if (!t->has_certificate) /* many a server says nothing of it, and hangs up */
		error_hint(err, "the server may want a certificate of ours: tls_cert_file and tls_key_file");
}
