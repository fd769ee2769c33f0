/* Connection strings without their secrets. What is shown is what is known to be harmless. Everything else is hidden:
 * a parameter that a later libpq invents, or a string that nobody can parse, hides too much rather than too little. */
#include <ctype.h>
#include <string.h>

#include "base/buf.h"
#include "base/macros.h"
#include "base/mem.h"
#include "config/secret.h"

#define HIDDEN "***"
#define SHOWN_MAX_BYTES (64 * 1024)

static const char *const harmless[] = {
	"application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname",
	"fallback_application_name", "gssencmode", "gsslib", "host", "hostaddr", "keepalives", "keepalives_count",
	"keepalives_idle", "keepalives_interval", "krbsrvname", "load_balance_hosts", "passfile", "port",
	"require_auth", "requirepeer", "service", "ssl_max_protocol_version", "ssl_min_protocol_version", "sslcert",
	"sslcompression", "sslcrl", "sslcrldir", "sslkey", "sslmode", "sslnegotiation", "sslrootcert", "sslsni",
	"target_session_attrs", "tcp_user_timeout", "user",
};

static bool is_harmless(struct slice key, struct slice value)
{
	/* A value that may itself be a connection string: libpq takes such a dbname for one. */
	static const char *const suspicious[] = { "=", "@", "%40", "://" };

	for (size_t i = 0; i < ARRAY_SIZE(suspicious); i++) {
		if (memmem(value.ptr, value.len, suspicious[i], strlen(suspicious[i])))
			return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
		if (slice_is(key, harmless[i]))
			return true;
	}
	return false;
}

/* One parameter; true when its value was hidden. */
static bool add_parameter(struct buf *out, struct slice key, struct slice value)
{
	bool show = is_harmless(key, value);

	buf_add_slice(out, key);
	buf_add_char(out, '=');
	if (show)
		buf_add_slice(out, value);
	else
		buf_add_str(out, HIDDEN);
	return !show;
}

static bool is_key(struct slice key)
{
	for (size_t i = 0; i < key.len; i++) {
		if (!isalnum((unsigned char)key.ptr[i]) && key.ptr[i] != '_' && key.ptr[i] != '%')
			return false;
	}
	return key.len > 0;
}

/* Cuts the text up to `separator` or the end off `rest`. */
static struct slice cut(struct slice *rest, char separator)
{
	const char *end = rest->len ? memchr(rest->ptr, separator, rest->len) : NULL;
	struct slice piece = { rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len };
	size_t gone = piece.len + (end != NULL);

	rest->ptr += gone;
	rest->len -= gone;
	return piece;
}

static bool is_query(struct slice query)
{
	while (query.len > 0) {
		struct slice value = cut(&query, '&');
		struct slice whole = value;

		if (!is_key(cut(&value, '=')) || !memchr(whole.ptr, '=', whole.len))
			return false;
	}
	return true;
}

static bool redact_query(struct buf *out, struct slice query)
{
	bool hidden = false;

	buf_add_char(out, '?');
	while (query.len > 0) {
		struct slice value = cut(&query, '&');
		struct slice key = cut(&value, '=');

		hidden |= add_parameter(out, key, value);
		if (query.len > 0)
			buf_add_char(out, '&');
	}
	return hidden;
}

/* user:password@host/database. People forget to encode @, / and ? in passwords, so the password is taken to last from
 * the first colon to the last @. */
static bool redact_authority(struct buf *out, struct slice s)
{
	const char *colon = memchr(s.ptr, ':', s.len);
	const char *at = memrchr(s.ptr, '@', s.len);

	if (!colon || !at || at < colon) {
		buf_add_slice(out, s);
		return false;
	}
	buf_add(out, s.ptr, (size_t)(colon + 1 - s.ptr));
	buf_add_str(out, HIDDEN);
	buf_add(out, at, (size_t)(s.ptr + s.len - at));
	return true;
}

static bool redact_uri(struct buf *out, const char *url, const char *behind_scheme)
{
	struct slice rest = slice_of(behind_scheme);
	const char *question = strchr(behind_scheme, '?');
	bool hidden;

	buf_add(out, url, (size_t)(behind_scheme - url));
	/* A ? that does not begin a list of parameters is part of a password. */
	if (!question || !is_query(slice_of(question + 1)))
		return redact_authority(out, rest);
	rest.len = (size_t)(question - behind_scheme);
	hidden = redact_authority(out, rest);
	return redact_query(out, slice_of(question + 1)) || hidden;
}

static const char *skip_blanks(const char *p)
{
	while (isspace((unsigned char)*p))
		p++;
	return p;
}

/* The end of a value of a key=value string: quotes and backslashes as libpq reads them. NULL: a quote stays open. */
static const char *value_end(const char *p)
{
	bool quoted = *p == '\'';

	if (quoted)
		p++;
	for (; *p; p++) {
		if (*p == '\\' && p[1])
			p++;
		else if (quoted && *p == '\'')
			return p + 1;
		else if (!quoted && isspace((unsigned char)*p))
			return p;
	}
	return quoted ? NULL : p;
}

static bool redact_pairs(struct buf *out, const char *text)
{
	bool hidden = false;

	for (const char *p = skip_blanks(text); *p; p = skip_blanks(p)) {
		struct slice key = { p, strcspn(p, "= \t\n\r\f\v") };
		const char *value = skip_blanks(p + key.len);
		const char *end = *value == '=' ? value_end(value = skip_blanks(value + 1)) : NULL;

		if (out->len > 0)
			buf_add_char(out, ' ');
		if (!is_key(key) || !end) {
			buf_add_str(out, HIDDEN);
			return true;
		}
		hidden |= add_parameter(out, key, (struct slice){ value, (size_t)(end - value) });
		p = end;
	}
	return hidden;
}

static bool redact(struct buf *out, const char *url)
{
	const char *scheme_end = strstr(url, "://");
	size_t scheme = strspn(url, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");

	if (scheme_end && scheme > 0 && url + scheme == scheme_end)
		return redact_uri(out, url, scheme_end + 3);
	return redact_pairs(out, url);
}

char *config_redact_url(const char *url)
{
	_cleanup_(buf_release) struct buf out = { .ceiling = SHOWN_MAX_BYTES };

	if (!url)
		return NULL;
	redact(&out, url);
	return out.overflow ? mem_strdup(HIDDEN) : buf_take(&out);
}

bool config_url_has_secret(const char *url)
{
	_cleanup_(buf_release) struct buf out = { .ceiling = SHOWN_MAX_BYTES };

	return redact(&out, url);
}
