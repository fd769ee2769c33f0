#include "pg/conninfo.h"

#include <arpa/inet.h>
#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "config/secret.h"

#define SYSTEM_CERTIFICATES "/etc/ssl/certs/ca-certificates.crt"
#define LIBPQ_WITH_SYSTEM_STORE 160000

struct parameter {
	const char *keyword;
	const char *value;
};

/* What the user may override in the URL. A peer that is gone is noticed within 25 s when nothing is on its way to it,
 * and within 15 s when something is; the system's defaults are hours, for which its locks would stay taken. */
static const struct parameter defaults[] = {
	{ "keepalives", "1" },
	{ "keepalives_idle", "10" },
	{ "keepalives_interval", "5" },
	{ "keepalives_count", "3" },
	{ "tcp_user_timeout", "15000" },
	/* On a standby rows could be published and not settled. */
	{ "target_session_attrs", "read-write" },
};

void conninfo_set(struct conninfo *info, const char *keyword, const char *value)
{
	size_t n = info->count++;

	info->keywords = mem_resize(info->keywords, (n + 2) * sizeof(*info->keywords));
	info->values = mem_resize(info->values, (n + 2) * sizeof(*info->values));
	info->keywords[n] = mem_strdup(keyword);
	info->values[n] = mem_strdup(value);
	info->keywords[n + 1] = info->values[n + 1] = NULL;
}

const char *conninfo_get(const struct conninfo *info, const char *keyword)
{
	for (size_t i = info->count; i-- > 0;)
		if (strcmp(info->keywords[i], keyword) == 0)
			return info->values[i];
	return NULL;
}

void conninfo_release(struct conninfo *info)
{
	for (size_t i = 0; i < info->count; i++) {
		explicit_bzero(info->values[i], strlen(info->values[i]));
		free(info->keywords[i]);
		free(info->values[i]);
	}
	free(info->keywords);
	free(info->values);
	*info = (struct conninfo){ 0 };
}

static void options_freep(PQconninfoOption **options)
{
	PQconninfoFree(*options);
}

static bool bad_url(struct error *err, const char *why)
{
	error_set(err, ERROR_CONFIG, "database.url is wrong: %s", why);
	return error_hint(err, "write postgresql://user@host:port/database, and characters such as @ : / ? # %% inside "
			       "a part as %%40 %%3A %%2F %%3F %%23 %%25; the password can come from "
			       "database.password_file");
}

/* libpq's message up to what it quotes: that may be a piece of the password. */
static bool bad_url_libpq(struct error *err, char *message)
{
	_cleanup_(mem_freep) char *why = NULL;

	if (!message)
		return bad_url(err, "out of memory");
	why = mem_strndup(message, strcspn(message, "\"\n"));
	PQfreemem(message);
	for (size_t len = strlen(why); len && strchr(": ", why[len - 1]); len--)
		why[len - 1] = '\0';
	return bad_url(err, why);
}

/* A password with a bare @ or / in it makes libpq find hosts, ports and databases that are pieces of it, and name them
 * in its messages. Such names are refused here. */
static bool looks_torn(const struct conninfo *info)
{
	const char *host = conninfo_get(info, "host");
	const char *port = conninfo_get(info, "port");
	const char *dbname = conninfo_get(info, "dbname");

	return (host && host[0] != '@' && strchr(host, '@')) || (port && port[strspn(port, "0123456789,")]) ||
	       (dbname && strchr(dbname, '@') && !conninfo_get(info, "user"));
}

static bool add_url(struct conninfo *info, const char *url, struct error *err)
{
	_cleanup_(options_freep) PQconninfoOption *options = NULL;
	char *message = NULL;

	if (!url[0])
		return true;
	options = PQconninfoParse(url, &message);
	if (!options)
		return bad_url_libpq(err, message);
	for (const PQconninfoOption *o = options; o->keyword; o++)
		if (o->val)
			conninfo_set(info, o->keyword, o->val);
	return looks_torn(info) ? bad_url(err, "a character in it must be percent-encoded") : true;
}

static bool is_local_address(const char *host)
{
	struct in_addr four;
	struct in6_addr six;

	if (!host[0] || host[0] == '/' || host[0] == '@' || strcasecmp(host, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, host, &four) == 1)
		return ntohl(four.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

/* Every one of a comma-separated list; none at all is libpq's default, the Unix socket. */
static bool all_local(const char *hosts)
{
	_cleanup_(mem_freep) char *list = mem_strdup(hosts ? hosts : "");
	char *rest = list, *host;

	while ((host = strsep(&rest, ",")))
		if (!is_local_address(host))
			return false;
	return true;
}

static const char *option_value(const PQconninfoOption *options, const char *keyword)
{
	for (const PQconninfoOption *o = options; o->keyword; o++)
		if (strcmp(o->keyword, keyword) == 0)
			return o->val;
	return NULL;
}

/* From the URL, else from PG* variables and the service file that PGSERVICE names. */
static const char *effective(const struct conninfo *info, const PQconninfoOption *environment, const char *keyword)
{
	const char *value = conninfo_get(info, keyword);

	return value ? value : option_value(environment, keyword);
}

static bool has_own_root_certificate(const struct conninfo *info, const PQconninfoOption *environment)
{
	_cleanup_(mem_freep) char *own = NULL;
	const char *home = getenv("HOME");

	if (effective(info, environment, "sslrootcert"))
		return true;
	own = mem_printf("%s/.postgresql/root.crt", home ? home : "");
	return access(own, R_OK) == 0;
}

static void verify_server(struct conninfo *info, const PQconninfoOption *environment)
{
	conninfo_set(info, "sslmode", "verify-full");
	if (has_own_root_certificate(info, environment))
		return;
	if (PQlibVersion() >= LIBPQ_WITH_SYSTEM_STORE)
		conninfo_set(info, "sslrootcert", "system");
	else if (access(SYSTEM_CERTIFICATES, R_OK) == 0)
		conninfo_set(info, "sslrootcert", SYSTEM_CERTIFICATES);
}

/* Off this machine, encrypted and verified unless the user asked for something else. libpq's own default (prefer)
 * would silently send everything in the clear to whoever answers. */
static void add_tls(struct conninfo *info, enum database_tls tls)
{
	_cleanup_(options_freep) PQconninfoOption *environment = PQconndefaults();
	const char *mode, *address;

	if (tls == DATABASE_TLS_OFF) {
		conninfo_set(info, "sslmode", "disable");
		return;
	}
	if (conninfo_get(info, "sslmode") || getenv("PGSSLMODE") || !environment)
		return;
	/* Only a service file can still have said something else than the built-in default. */
	mode = option_value(environment, "sslmode");
	if (mode && strcmp(mode, "prefer") != 0)
		return;
	address = effective(info, environment, "hostaddr");
	/* What service=… in the URL leads to is known to libpq alone: then nothing is local. */
	if (!conninfo_get(info, "service") && all_local(address ? address : effective(info, environment, "host")))
		return;
	verify_server(info, environment);
}

static bool add_password(struct conninfo *info, const char *password_file, struct error *err)
{
	char *password = NULL;

	if (!password_file[0])
		return true;
	if (!config_read_secret(password_file, &password, err))
		return error_prefix(err, "database.password_file");
	conninfo_set(info, "password", password);
	explicit_bzero(password, strlen(password));
	free(password);
	return true;
}

bool conninfo_build(const struct database_config *db, const char *purpose, struct conninfo *ret, struct error *err)
{
	_cleanup_(mem_freep) char *application = mem_printf("postrider %s", purpose);
	_cleanup_(conninfo_release) struct conninfo info = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(defaults); i++)
		conninfo_set(&info, defaults[i].keyword, defaults[i].value);
	conninfo_set(&info, "application_name", application);
	if (!add_url(&info, db->url, err) || !add_password(&info, db->password_file, err))
		return false;
	add_tls(&info, db->tls);
	conninfo_set(&info, "client_encoding", "UTF8");
	*ret = info;
	info = (struct conninfo){ 0 };
	return true;
}
